//! What the transaction layer keeps in the tables, as named values, and its encoding.

use super::memory::REQUESTS_PER_VALUE;
use super::messages::{Part, Stand, TxnId};
use crate::encoding::{changes, count, path, put_bytes, put_changes, put_count, put_token, token};
use crate::path::TreePath;
use crate::record::{BadRecord, BridgeId, ObjectId, ObjectName, Reader, Token};
use crate::speakers::Lowers;
use crate::table::Change;

/// Everything of this layer begins so.
pub(super) const PREFIX: &[u8] = b"bridge/";
/// A transaction that this bridge coordinates.
pub(super) const INTENT: &[u8] = b"bridge/intent/";
/// A transaction that this bridge has promised to carry out if it is committed.
pub(super) const PREPARED: &[u8] = b"bridge/prepared/";
/// What became of a transaction of another coordinator.
pub(super) const OUTCOME: &[u8] = b"bridge/outcome/";
/// Below which number another coordinator's transactions are over.
pub(super) const SETTLED: &[u8] = b"bridge/settled/";
/// Versions of a directory that have ended.
pub(super) const ENDED: &[u8] = b"bridge/ended/";
/// Path of an object that is kept here while the record is elsewhere.
pub(super) const OWNED: &[u8] = b"bridge/owned/";
/// Tokens of requests that were carried out, a ring.
pub(super) const CARRIED_OUT: &[u8] = b"bridge/done/";

/// Numbers of absences, by path.
pub(super) const ABSENCE: &[u8] = b"bridge/absence/";
/// The number of all other paths.
pub(super) const ABSENCE_FLOOR: &[u8] = b"bridge/absences-below";

pub(super) fn set(key: Vec<u8>, value: Vec<u8>) -> Change {
    Change::Meta {
        key,
        value: Some(value),
    }
}

pub(super) fn clear(key: Vec<u8>) -> Change {
    Change::Meta { key, value: None }
}

pub(super) fn txn_key(prefix: &[u8], txn: TxnId) -> Vec<u8> {
    let mut key = prefix.to_vec();
    key.extend_from_slice(&txn.coordinator.0.to_be_bytes());
    key.extend_from_slice(&txn.seq.to_be_bytes());
    key
}

pub(super) fn txn_of(prefix: &[u8], key: &[u8]) -> Result<TxnId, BadRecord> {
    let mut r = Reader(key.strip_prefix(prefix).ok_or(BadRecord::Damaged)?);
    Ok(TxnId {
        coordinator: BridgeId(u32::from_be_bytes(r.array()?)),
        seq: u64::from_be_bytes(r.array()?),
    })
}

pub(super) fn bridge_key(prefix: &[u8], bridge: BridgeId) -> Vec<u8> {
    let mut key = prefix.to_vec();
    key.extend_from_slice(&bridge.0.to_be_bytes());
    key
}

pub(super) fn bridge_of(prefix: &[u8], key: &[u8]) -> Result<BridgeId, BadRecord> {
    let mut r = Reader(key.strip_prefix(prefix).ok_or(BadRecord::Damaged)?);
    Ok(BridgeId(u32::from_be_bytes(r.array()?)))
}

pub(super) fn owned_key(object: ObjectName) -> Vec<u8> {
    let mut key = OWNED.to_vec();
    key.extend_from_slice(&object.oid.0.to_be_bytes());
    key.extend_from_slice(&object.link.to_be_bytes());
    key
}

/// The keys of all names of an object begin so.
pub(super) fn owned_prefix(object: ObjectId) -> Vec<u8> {
    [OWNED, &object.0.to_be_bytes()].concat()
}

/// The object of a key made by [`owned_key`]; `None` for other keys.
pub(super) fn owned_object(key: &[u8]) -> Option<ObjectName> {
    let mut r = Reader(key.strip_prefix(OWNED)?);
    Some(ObjectName {
        oid: ObjectId(u128::from_be_bytes(r.array().ok()?)),
        link: u32::from_be_bytes(r.array().ok()?),
    })
}

/// What a coordinator remembers of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Intent {
    pub(super) token: Token,
    pub(super) primary: BridgeId,
    pub(super) participants: Vec<BridgeId>,
    /// Changes of the own tables that follow from a commit elsewhere.
    pub(super) follow_up: Vec<Change>,
    /// Once the outcome is known and carried out here.
    pub(super) outcome: Option<bool>,
}

impl Intent {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = vec![match self.outcome {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        }];
        put_token(&mut w, self.token);
        w.extend_from_slice(&self.primary.0.to_le_bytes());
        put_count(&mut w, self.participants.len());
        for p in &self.participants {
            w.extend_from_slice(&p.0.to_le_bytes());
        }
        put_changes(&mut w, &self.follow_up);
        w
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut r = Reader(bytes);
        let outcome = match r.u8()? {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => return Err(BadRecord::Damaged),
        };
        let token = token(&mut r)?;
        let primary = BridgeId(u32::from_le_bytes(r.array()?));
        let participants = (0..count(&mut r)?)
            .map(|_| Ok(BridgeId(u32::from_le_bytes(r.array()?))))
            .collect::<Result<_, BadRecord>>()?;
        Ok(Intent {
            token,
            primary,
            participants,
            follow_up: changes(&mut r)?,
            outcome,
        })
    }
}

/// What a participant remembers of its promise. The versions have been checked.
pub(super) fn encode_prepared(primary: BridgeId, part: &Part) -> Vec<u8> {
    let mut w = primary.0.to_le_bytes().to_vec();
    put_paths(&mut w, part.reads.iter().map(|(path, _)| path));
    put_paths(&mut w, part.ranges.iter().map(|(dir, _)| dir));
    let (at, within) = part
        .speakers
        .iter()
        .map(|(of, _)| of)
        .partition::<Vec<_>, _>(|of| matches!(of, Lowers::At(_)));
    for some in [at, within] {
        let paths: Vec<_> = some
            .into_iter()
            .map(|of| match of {
                Lowers::At(path) | Lowers::Within(path) => path,
            })
            .collect();
        put_paths(&mut w, paths.into_iter());
    }
    w.push(u8::from(part.uncovers));
    put_ended(&mut w, &part.ended);
    put_changes(&mut w, &part.changes);
    w
}

pub(super) fn decode_prepared(bytes: &[u8]) -> Result<(BridgeId, Part), BadRecord> {
    let mut r = Reader(bytes);
    let primary = BridgeId(u32::from_le_bytes(r.array()?));
    let part = Part {
        reads: paths(&mut r)?
            .into_iter()
            .map(|p| (p, Stand::Absent(0)))
            .collect(),
        above: Vec::new(),
        ranges: paths(&mut r)?.into_iter().map(|p| (p, 0)).collect(),
        speakers: {
            let at = paths(&mut r)?.into_iter().map(Lowers::At);
            let within = paths(&mut r)?.into_iter().map(Lowers::Within);
            at.chain(within).map(|of| (of, 0)).collect()
        },
        uncovers: r.u8()? != 0,
        ended: ended(&mut r)?,
        changes: changes(&mut r)?,
    };
    Ok((primary, part))
}

/// One mark per incarnation of a directory, so that each end writes a few bytes, whatever came before.
pub(super) fn ended_key(dir: &TreePath, incarnation: u64) -> Vec<u8> {
    let mut key = [ENDED, dir.as_bytes(), &[0]].concat();
    key.extend_from_slice(&incarnation.to_le_bytes());
    key
}

/// The directory and incarnation of a key made by [`ended_key`], without its prefix.
pub(super) fn ended_dir(key: &[u8]) -> Result<(TreePath, u64), BadRecord> {
    let nul = key.iter().position(|&b| b == 0).ok_or(BadRecord::Damaged)?;
    let dir = TreePath::new(&key[..nul]).ok_or(BadRecord::Damaged)?;
    let incarnation = Reader(&key[nul + 1..]).array()?;
    Ok((dir, u64::from_le_bytes(incarnation)))
}

/// Requests that were carried out, each with its number in the order of all.
/// Bytes for the requests that share a value, each a number and a token.
const CARRIED_OUT_BYTES: usize = REQUESTS_PER_VALUE * 20;

pub(super) fn encode_carried_out<'a>(requests: impl Iterator<Item = &'a (u64, Token)>) -> Vec<u8> {
    // Made for each commit.
    let mut w = Vec::with_capacity(CARRIED_OUT_BYTES);
    for (number, token) in requests {
        w.extend_from_slice(&number.to_le_bytes());
        put_token(&mut w, *token);
    }
    w
}

pub(super) fn decode_carried_out(bytes: &[u8]) -> Result<Vec<(u64, Token)>, BadRecord> {
    let mut r = Reader(bytes);
    let mut requests = Vec::new();
    while !r.0.is_empty() {
        requests.push((u64::from_le_bytes(r.array()?), token(&mut r)?));
    }
    Ok(requests)
}

fn put_paths<'a>(w: &mut Vec<u8>, paths: impl ExactSizeIterator<Item = &'a TreePath>) {
    put_count(w, paths.len());
    paths.for_each(|p| put_bytes(w, p.as_bytes()));
}

fn paths(r: &mut Reader<'_>) -> Result<Vec<TreePath>, BadRecord> {
    (0..count(r)?).map(|_| path(r)).collect()
}

fn put_ended(w: &mut Vec<u8>, ended: &[(TreePath, u64)]) {
    put_count(w, ended.len());
    for (dir, incarnation) in ended {
        put_bytes(w, dir.as_bytes());
        w.extend_from_slice(&incarnation.to_le_bytes());
    }
}

fn ended(r: &mut Reader<'_>) -> Result<Vec<(TreePath, u64)>, BadRecord> {
    (0..count(r)?)
        .map(|_| Ok((path(r)?, u64::from_le_bytes(r.array()?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_survives_encoding_and_every_truncation_is_refused() {
        let object = ObjectName {
            oid: ObjectId(7),
            link: 1,
        };
        let token = Token { client: 1, seq: 2 };
        let path = TreePath::new(*b"a/b").unwrap();
        let intent = Intent {
            token,
            primary: BridgeId(3),
            participants: vec![BridgeId(3), BridgeId(4)],
            follow_up: vec![
                Change::Delete {
                    path: path.clone(),
                    object,
                },
                Change::Doom(object),
                Change::Undoom(object),
                Change::Relabel(object),
                Change::Relabeled(object),
                set(owned_key(object), path.as_bytes().to_vec()),
                clear(owned_key(object)),
            ],
            outcome: Some(true),
        };
        let bytes = intent.encode();
        assert_eq!(Intent::decode(&bytes), Ok(intent));
        for cut in 0..bytes.len() {
            assert_eq!(
                Intent::decode(&bytes[..cut]),
                Err(BadRecord::Damaged),
                "cut {cut}"
            );
        }
    }

    #[test]
    fn a_promise_survives_encoding() {
        let path = TreePath::new(*b"d").unwrap();
        let part = Part {
            reads: vec![
                (TreePath::root(), Stand::Absent(0)),
                (path.clone(), Stand::Absent(0)),
            ],
            above: vec![],
            ranges: vec![(path.clone(), 0)],
            speakers: vec![
                (Lowers::At(path.clone()), 0),
                (Lowers::Within(path.clone()), 0),
            ],
            uncovers: true,
            ended: vec![(path.clone(), 3), (path.clone(), 4)],
            changes: vec![Change::Relabel(ObjectName::default())],
        };
        let bytes = encode_prepared(BridgeId(1), &part);
        assert_eq!(decode_prepared(&bytes), Ok((BridgeId(1), part)));
    }

    #[test]
    fn keys_give_their_parts_back() {
        let txn = TxnId {
            coordinator: BridgeId(5),
            seq: 6 << 32 | 7,
        };
        assert_eq!(txn_of(INTENT, &txn_key(INTENT, txn)), Ok(txn));
        let object = ObjectName {
            oid: ObjectId(9),
            link: 2,
        };
        assert_eq!(owned_object(&owned_key(object)), Some(object));
        assert_eq!(owned_object(&txn_key(INTENT, txn)), None);
        for incarnation in [0, u64::MAX] {
            let dir = TreePath::new(*b"a/b").unwrap();
            let key = ended_key(&dir, incarnation);
            assert_eq!(ended_dir(&key[ENDED.len()..]), Ok((dir, incarnation)));
        }
    }
}
