//! What must hold for any bytes that arrive, whoever sent them.

use forebay_wire::{
    Attr, Base, DirEntries, DirEntryWriter, MAGIC, MAX_NAME_BYTES, MAX_PATH_BYTES,
    MAX_REQUEST_BYTES, Reply, Request,
};

/// Decodes `bytes` in every way that there is, also as a message of this version, since seeds outlive their version. What
/// decodes is within its limits, and encoded again it is the same. Returns whether a request and whether a reply decoded.
pub fn any_message(bytes: &[u8]) -> [bool; 2] {
    let mut of_now = bytes.to_vec();
    if let Some(magic) = of_now.first_chunk_mut() {
        *magic = MAGIC.to_le_bytes();
    }
    let decodes = |check: fn(&[u8]) -> bool| check(bytes) | check(&of_now);
    [decodes(request_decodes), decodes(reply_decodes)]
}

fn request_decodes(bytes: &[u8]) -> bool {
    let request = Request::decode(bytes);
    if let Ok(request) = request {
        let mut again = vec![0; MAX_REQUEST_BYTES];
        let len = request.encode(&mut again).expect("what came fits");
        assert_eq!(Request::decode(&again[..len]), Ok(request));
        for (base, path) in [(request.base1, request.str1), (request.base2, request.str2)] {
            assert!(path.len() <= MAX_PATH_BYTES && !path.contains(&0));
            if let Base::Lower(lower, _) = base {
                assert!(lower.len() <= MAX_PATH_BYTES && !lower.contains(&0));
            }
        }
    }
    request.is_ok()
}

fn reply_decodes(bytes: &[u8]) -> bool {
    let reply = Reply::decode(bytes);
    if let Ok(reply) = reply {
        let mut again = vec![0; bytes.len()];
        if let Ok(len) = reply.encode(&mut again) {
            assert_eq!(Reply::decode(&again[..len]), Ok(reply));
        }
        if let Ok(attr) = Attr::decode(reply.body) {
            assert_eq!(Attr::decode(&attr.encode()), Ok(attr));
        }
        let mut packed = vec![0; reply.body.len()];
        let mut writer = DirEntryWriter::new(&mut packed);
        for entry in DirEntries::new(reply.body) {
            assert!(entry.name.len() <= MAX_NAME_BYTES);
            assert!(writer.push(&entry));
        }
        let len = writer.len();
        assert_eq!(packed[..len], reply.body[..len]);
    }
    reply.is_ok()
}
