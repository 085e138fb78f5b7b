//! Changes of the tables as bytes: for what the transaction layer stores, and for the
//! journal of a store.

use crate::path::TreePath;
use crate::record::{BadRecord, ObjectId, ObjectName, PathRecord, Reader, Token};
use crate::table::Change;

/// Appends a batch to `out`.
pub fn encode_batch(batch: &[Change], out: &mut Vec<u8>) {
    put_changes(out, batch);
}

/// Reads what [`encode_batch`] wrote.
///
/// # Errors
/// [`BadRecord`] for anything else.
pub fn decode_batch(bytes: &[u8]) -> Result<Vec<Change>, BadRecord> {
    let mut r = Reader(bytes);
    let batch = changes(&mut r)?;
    r.0.is_empty().then_some(batch).ok_or(BadRecord::Damaged)
}

pub(crate) fn put_token(w: &mut Vec<u8>, t: Token) {
    w.extend_from_slice(&t.client.to_le_bytes());
    w.extend_from_slice(&t.seq.to_le_bytes());
}

pub(crate) fn token(r: &mut Reader<'_>) -> Result<Token, BadRecord> {
    Ok(Token {
        client: u64::from_le_bytes(r.array()?),
        seq: u32::from_le_bytes(r.array()?),
    })
}

pub(crate) fn put_count(w: &mut Vec<u8>, n: usize) {
    w.extend_from_slice(&(n as u32).to_le_bytes());
}

pub(crate) fn count(r: &mut Reader<'_>) -> Result<u32, BadRecord> {
    Ok(u32::from_le_bytes(r.array()?))
}

pub(crate) fn put_bytes(w: &mut Vec<u8>, bytes: &[u8]) {
    put_count(w, bytes.len());
    w.extend_from_slice(bytes);
}

pub(crate) fn bytes<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], BadRecord> {
    let n = count(r)? as usize;
    r.take(n)
}

pub(crate) fn path(r: &mut Reader<'_>) -> Result<TreePath, BadRecord> {
    TreePath::new(bytes(r)?).ok_or(BadRecord::Damaged)
}

pub(crate) fn put_object(w: &mut Vec<u8>, o: ObjectName) {
    w.extend_from_slice(&o.oid.0.to_le_bytes());
    w.extend_from_slice(&o.link.to_le_bytes());
}

pub(crate) fn object(r: &mut Reader<'_>) -> Result<ObjectName, BadRecord> {
    Ok(ObjectName {
        oid: ObjectId(u128::from_le_bytes(r.array()?)),
        link: u32::from_le_bytes(r.array()?),
    })
}

pub(crate) fn put_changes(w: &mut Vec<u8>, changes: &[Change]) {
    put_count(w, changes.len());
    for change in changes {
        match change {
            Change::Put { path, record } => {
                w.push(1);
                put_bytes(w, path.as_bytes());
                put_bytes(w, &record.encode());
            }
            Change::Delete { path, object } => {
                w.push(2);
                put_bytes(w, path.as_bytes());
                put_object(w, *object);
            }
            Change::Doom(object) => {
                w.push(3);
                put_object(w, *object);
                // Earlier programs put a token here, and read one.
                put_token(w, Token::default());
            }
            Change::Undoom(object) => {
                w.push(4);
                put_object(w, *object);
            }
            Change::Relabel(object) => {
                w.push(5);
                put_object(w, *object);
            }
            Change::Relabeled(object) => {
                w.push(6);
                put_object(w, *object);
            }
            Change::Meta { key, value } => {
                w.push(if value.is_some() { 7 } else { 8 });
                put_bytes(w, key);
                if let Some(v) = value {
                    put_bytes(w, v);
                }
            }
        }
    }
}

pub(crate) fn changes(r: &mut Reader<'_>) -> Result<Vec<Change>, BadRecord> {
    (0..count(r)?).map(|_| change(r)).collect()
}

pub(crate) fn change(r: &mut Reader<'_>) -> Result<Change, BadRecord> {
    Ok(match r.u8()? {
        1 => Change::Put {
            path: path(r)?,
            record: PathRecord::decode(bytes(r)?)?,
        },
        2 => Change::Delete {
            path: path(r)?,
            object: object(r)?,
        },
        3 => {
            let object = object(r)?;
            token(r)?;
            Change::Doom(object)
        }
        4 => Change::Undoom(object(r)?),
        5 => Change::Relabel(object(r)?),
        6 => Change::Relabeled(object(r)?),
        7 => Change::Meta {
            key: bytes(r)?.to_vec(),
            value: Some(bytes(r)?.to_vec()),
        },
        8 => Change::Meta {
            key: bytes(r)?.to_vec(),
            value: None,
        },
        _ => return Err(BadRecord::Damaged),
    })
}
