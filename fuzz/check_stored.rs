//! What must hold for any bytes that lie on the storage or beside the buffer, whatever a crash has left of them.

use forebay_core::claim::Claim;
use forebay_core::encoding::{decode_batch, encode_batch};
use forebay_core::record::PathRecord;
use forebay_objects::label;

/// Reads `bytes` as everything that is kept. What can be read is the same when it is written and read again.
pub fn anything_stored(bytes: &[u8]) {
    if let Ok(record) = PathRecord::decode(bytes) {
        assert_eq!(PathRecord::decode(&record.encode()), Ok(record));
    }
    if let Ok(label) = label::decode(bytes) {
        assert_eq!(label::decode(&label::encode(&label)), Ok(label));
    }
    if let Some(claim) = Claim::from_text(bytes) {
        assert_eq!(Claim::from_text(&claim.to_text()), Some(claim));
    }
    a_batch(bytes);
    // Checksums of entries are right in the second reading, as if the journal had been written so.
    for is_sealed in [false, true] {
        for payload in forebay_tables::payloads_of_journal(bytes, is_sealed) {
            a_batch(&payload);
        }
    }
}

fn a_batch(bytes: &[u8]) {
    if let Ok(batch) = decode_batch(bytes) {
        let mut again = Vec::new();
        encode_batch(&batch, &mut again);
        assert_eq!(decode_batch(&again), Ok(batch));
    }
}
