//! What a process tells an aggregator about its access: the pieces in the aggregator's domain, as runs.

use super::{Access, AccessError, FileDomain, Run, TypeMap};

/// With no more pieces than this an access can always be told: a domain cuts a piece into at most three runs.
pub const MAX_PIECES: u64 = TypeMap::MAX_RUNS as u64 / 4;

/// The part of an access that lies in a domain, as bytes for a message. Fails only beyond [`MAX_PIECES`].
pub fn encode(access: &Access, domain: &FileDomain) -> Result<Vec<u8>, AccessError> {
    let mut map = TypeMap::default();
    let Some(hull) = access.hull() else {
        return Ok(Vec::new());
    };
    for piece in domain.pieces_from(hull.start) {
        if piece.start >= hull.end {
            break;
        }
        for part in access.pieces_within(piece) {
            map.push(Run::piece(part.start as i64, part.bytes()))?;
        }
    }
    let mut message = Vec::with_capacity(map.runs().len() * 4);
    let mut end = 0;
    for run in map.runs() {
        put(&mut message, run.offset as u64 - end);
        put(&mut message, run.block << 1 | u64::from(run.count > 1));
        if run.count > 1 {
            put(&mut message, run.count);
            put(&mut message, run.stride as u64 - run.block);
        }
        end = run.offset as u64 + run.stride as u64 * (run.count - 1) + run.block;
    }
    Ok(message)
}

/// The access in a message of [`encode`].
pub fn decode(message: &[u8]) -> Result<Access, AccessError> {
    let mut rest = message;
    let mut end = 0_u64;
    let mut access = Access::default();
    while !rest.is_empty() {
        let start = end.checked_add(take(&mut rest)?);
        let start = start.ok_or(AccessError::TooLarge)?;
        let word = take(&mut rest)?;
        let block = word >> 1;
        let levels = match word & 1 {
            0 => (1, 0),
            _ => (take(&mut rest)?, take(&mut rest)?.saturating_add(block)),
        };
        access.append(start, block, &[levels])?;
        end = access.hull().ok_or(AccessError::Overlap)?.end;
    }
    Ok(access)
}

fn put(message: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

fn take(rest: &mut &[u8]) -> Result<u64, AccessError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or(AccessError::Outside)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(AccessError::Outside)
}

#[cfg(test)]
mod tests {
    use super::super::{Extent, FileDomains, Layout, Method};
    use super::*;

    #[test]
    fn every_aggregator_learns_its_part_and_nothing_else() {
        let access = Access::strided(2574, 60, &[(4, 1200), (3, 150)]).unwrap();
        let region = access.hull().unwrap();
        for method in Method::ALL {
            let domains = FileDomains::new(method, region, 3, Layout::new(64, 2));
            for aggregator in 0..3 {
                let domain = domains.domain(aggregator);
                let told = decode(&encode(&access, &domain).unwrap()).unwrap();
                let all = Extent::new(0, 1 << 20);
                let bytes = |a: &Access| -> Vec<u64> {
                    a.pieces_within(all).flat_map(|p| p.start..p.end).collect()
                };
                let mut expected = bytes(&access);
                expected.retain(|&byte| domain.contains(byte));
                assert_eq!(bytes(&told), expected, "{method:?} {aggregator}");
            }
        }
    }

    #[test]
    fn a_damaged_message_is_an_error() {
        assert!(decode(&[0x80]).is_err());
        assert!(decode(&[0, 0]).is_err());
        assert!(decode(&[0xff; 30]).is_err());
    }
}
