//! What a process tells others about its access: an aggregator the pieces in its domain, as runs; rank 0, for the trace, the nested
//! strides. Numbers are in groups of 7 bits, the lowest first.

use super::{Access, AccessError, FileDomain, Run, TypeMap};

/// With no more pieces than this an access can always be told: a domain cuts a piece into at most three runs.
pub const MAX_PIECES: u64 = TypeMap::MAX_RUNS as u64 / 4;

/// The part of an access that lies in a domain, as bytes for a message. Fails only beyond [`MAX_PIECES`].
pub fn encode(access: &Access, domain: &FileDomain) -> Result<Vec<u8>, AccessError> {
    let mut message = Runs::default();
    let mut last: Option<Run> = None;
    // Granules in which nothing is wanted are passed over: a gap may have billions.
    let mut at = 0;
    while let Some(wanted) = access.next_piece(at)
        && let Some(piece) = domain.pieces_from(wanted.start).next()
    {
        at = piece.end;
        for part in access.pieces_within(piece) {
            let part = Run::piece(part.start as i64, part.bytes());
            let rest = match &mut last {
                Some(last) => last.join(part),
                None => Some(part),
            };
            if let Some(rest) = rest {
                last.replace(rest).map_or(Ok(()), |run| message.put(run))?;
            }
        }
    }
    last.map_or(Ok(()), |run| message.put(run))?;
    Ok(message.bytes)
}

/// Runs as bytes.
#[derive(Default)]
struct Runs {
    bytes: Vec<u8>,
    count: usize,
    /// Where the last one ends.
    end: u64,
}

impl Runs {
    fn put(&mut self, run: Run) -> Result<(), AccessError> {
        self.count += 1;
        if self.count > TypeMap::MAX_RUNS {
            return Err(AccessError::TooLarge);
        }
        let message = &mut self.bytes;
        put(message, run.offset as u64 - self.end);
        put(message, run.block << 1 | u64::from(run.count > 1));
        if run.count > 1 {
            put(message, run.count);
            put(message, run.stride as u64 - run.block);
        }
        self.end = run.offset as u64 + run.stride as u64 * (run.count - 1) + run.block;
        Ok(())
    }
}

/// The access in a message of [`encode`], in the memory of another one.
pub fn decode(message: &[u8], memory: Access) -> Result<Access, AccessError> {
    let mut rest = message;
    let mut end = 0_u64;
    let mut access = memory;
    access.clear();
    // Small gaps and small blocks take two bytes each.
    access.reserve(message.len() / 4);
    while !rest.is_empty() {
        let start = end.checked_add(take(&mut rest)?);
        let start = start.ok_or(AccessError::TooLarge)?;
        let word = take(&mut rest)?;
        let block = word >> 1;
        match word & 1 {
            0 => access.append_piece(start, block)?,
            _ => {
                let (count, gap) = (take(&mut rest)?, take(&mut rest)?);
                access.append(start, block, &[(count, gap.saturating_add(block))])?;
            }
        }
        end = access.hull().ok_or(AccessError::Overlap)?.end;
    }
    Ok(access)
}

/// An access with all of its levels, as bytes for a message.
pub fn encode_nested(access: &Access) -> Vec<u8> {
    let mut message = Vec::new();
    for (start, block, levels) in access.strides() {
        let words = [start, block, levels.len() as u64];
        let levels = levels
            .into_iter()
            .flat_map(|(count, stride)| [count, stride]);
        words
            .into_iter()
            .chain(levels)
            .for_each(|word| put(&mut message, word));
    }
    message
}

/// The access in a message of [`encode_nested`].
///
/// # Errors
/// If it is none.
pub fn decode_nested(message: &[u8]) -> Result<Access, AccessError> {
    let mut rest = message;
    let mut access = Access::default();
    while !rest.is_empty() {
        let (start, block, depth) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        let mut levels = Vec::new();
        for _ in 0..depth {
            levels.push((take(&mut rest)?, take(&mut rest)?));
        }
        access.append(start, block, &levels)?;
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
                let told = decode(&encode(&access, &domain).unwrap(), Access::default()).unwrap();
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
    fn what_is_far_apart_is_told_without_a_look_at_each_granule_between() {
        let access = Access::strided(4096 + 7, 10, &[(3, 1 << 60)]).unwrap();
        let domains = FileDomains::new(
            Method::StaticCyclic,
            access.hull().unwrap(),
            4,
            Layout::new(4096, 4),
        );
        // Granule 1 and those 2^48 further.
        let told = encode(&access, &domains.domain(1)).unwrap();
        assert_eq!(decode(&told, Access::default()), Ok(access.clone()));
        for other in [0, 2, 3] {
            assert_eq!(encode(&access, &domains.domain(other)), Ok(Vec::new()));
        }
    }

    #[test]
    fn nested_strides_are_the_same_after_a_message_and_a_damaged_one_is_an_error() {
        let mut access = Access::strided(7, 3, &[(4, 100), (5, 10)]).unwrap();
        access.append(1000, 9, &[]).unwrap();
        let message = encode_nested(&access);
        assert_eq!(decode_nested(&message), Ok(access));
        let first = message.len() - encode_nested(&Access::strided(1000, 9, &[]).unwrap()).len();
        for end in 1..message.len() {
            let cut = decode_nested(&message[..end]);
            assert!(cut.is_err() || end == first, "{end}: {cut:?}");
        }
        let most = [[0xff; 9].as_slice(), &[1]].concat();
        assert!(decode_nested(&[[0, 1].as_slice(), &most].concat()).is_err());
        let huge = [[0].as_slice(), &most, &[1], &most, &most].concat();
        assert!(decode_nested(&huge).is_err());
    }

    #[test]
    fn a_damaged_message_is_an_error() {
        for damaged in [&[0x80][..], &[0, 0], &[0xff; 30]] {
            assert!(decode(damaged, Access::default()).is_err());
        }
    }
}
