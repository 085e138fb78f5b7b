//! Makes up scripts: few names, so that steps meet, and mostly calls that can be done.

use super::judge::is_reserved;
use super::play::Play;
use super::script::{Act, START, Script, Step, entry, path};
use crate::faults::Broken;
use crate::faults::history::Action;
use crate::faults::random::Random;
use forebay_core::drain::Side;
use forebay_core::path::TreePath;
use forebay_core::record::Kind;

/// Names that both writers use, beside those of the beginning.
const NAMES: [&str; 12] = [
    "d", "d/a", "d/s", "d/s/b", "f", "g", "x", "n", "n/x", "n/s", "d/new", "d/s/new",
];

/// More names that files of the beginning may have.
const FURTHER_NAMES: [&str; 7] = [
    "d/x=d/a",
    "d/f=f",
    "d/s/i=h",
    "d/i=h",
    "d/s/g=g",
    "y=d/s/b",
    "d/y=d/s/b",
];

/// Steps that are tried for each one that is taken.
const TRIES: u32 = 8;

/// How a script begins.
pub(super) fn beginning(random: &mut Random) -> (Script, u64) {
    let entries = START.iter().filter_map(|text| entry(text));
    let mut start: Vec<_> = entries.filter(|_| !random.chance(150_000)).collect();
    let further = FURTHER_NAMES.iter().filter_map(|text| entry(text));
    start.extend(further.filter(|_| random.chance(200_000)));
    let script = Script {
        start,
        stages: random.chance(500_000),
        others: Vec::new(),
        sticky: Vec::new(),
        steps: Vec::new(),
    };
    (script, random.between(2, 9))
}

/// The next step of a script, which is taken; `None` if none was found.
pub(super) fn next(
    play: &mut Play,
    random: &mut Random,
    steps: &mut Vec<Step>,
) -> Result<(), Broken> {
    for _ in 0..TRIES {
        let Some(step) = any(play, random)? else {
            continue;
        };
        // Also if it breaks something.
        steps.push(step.clone());
        if play.take(&step)? {
            return Ok(());
        }
        steps.pop();
    }
    Ok(())
}

fn any(play: &Play, random: &mut Random) -> Result<Option<Step>, Broken> {
    if !play.conflicts.is_empty() && random.chance(300_000) {
        let side = *random.pick(&[Side::Ours, Side::Theirs, Side::Both]);
        return Ok(Some(Step::Take(side, random.pick(&play.conflicts).clone())));
    }
    Ok(match random.below(100) {
        0..=41 => call(play, random)?.map(Step::Call),
        42..=49 => existing(play, random)?.map(Step::RemoveAll),
        50..=67 => Some(Step::Drain {
            keep: random.chance(750_000),
            refused: None,
        }),
        68..=70 => Some(Step::Drain {
            keep: random.chance(750_000),
            refused: Some(random.below(3) as u32),
        }),
        71..=73 => Some(Step::Restart),
        _ => they(play, random).map(Step::They),
    })
}

fn name(random: &mut Random) -> Option<TreePath> {
    path(random.pick::<&str>(&NAMES))
}

/// Something that users see.
fn existing(play: &Play, random: &mut Random) -> Result<Option<TreePath>, Broken> {
    let view = play.view()?;
    let all: Vec<_> = view.into_keys().collect();
    Ok((!all.is_empty()).then(|| random.pick(&all).clone()))
}

fn call(play: &Play, random: &mut Random) -> Result<Option<Action>, Broken> {
    let (Some(old), Some(new)) = (existing(play, random)?, name(random)) else {
        return Ok(None);
    };
    let other = existing(play, random)?.unwrap_or_else(|| new.clone());
    let exists = random.chance(300_000);
    let target = if exists { other.clone() } else { new.clone() };
    Ok(Some(match random.below(20) {
        0..=2 => Action::Create(target, 0),
        3..=4 => Action::Truncate(old, 0),
        5..=6 => Action::Mkdir(new),
        7..=8 => Action::Unlink(old),
        9 => Action::Rmdir(old),
        10..=16 => Action::Rename(old, target, 0),
        17..=18 => Action::Rename(old, other, libc::RENAME_EXCHANGE),
        _ => Action::Link(old, new),
    }))
}

/// Back to where it was, something that the neighbour has renamed.
fn back(play: &Play, random: &mut Random) -> Option<Act> {
    let mut renamed = Vec::new();
    for (path, number) in play.world.pfs().numbers() {
        let homes = play.homes.get(&number).into_iter().flatten();
        let elsewhere = homes.filter(|home| *home != path && !is_reserved(home));
        renamed.extend(elsewhere.map(|home| Act::Rename(path.clone(), home.clone())));
    }
    (!renamed.is_empty()).then(|| random.pick(&renamed).clone())
}

fn they(play: &Play, random: &mut Random) -> Option<Act> {
    if random.chance(300_000)
        && let Some(back) = back(play, random)
    {
        return Some(back);
    }
    let there = play.world.pfs().tree().into_keys();
    let there: Vec<_> = there.filter(|path| !is_reserved(path)).collect();
    if there.is_empty() {
        return None;
    }
    let old = random.pick(&there).clone();
    let new = match random.chance(200_000) {
        true => random.pick(&there).join(b"x"),
        false => name(random)?,
    };
    let kind = match random.chance(250_000) {
        true => Kind::Dir,
        false => Kind::File,
    };
    Some(match random.below(20) {
        0..=6 => Act::Make(new, kind),
        7..=10 => Act::Replace(old, kind),
        11..=13 => Act::Write(old),
        14..=15 => Act::Remove(old),
        16 => Act::Link(old, new),
        _ => Act::Rename(
            old,
            if random.chance(500_000) {
                new
            } else {
                random.pick(&there).clone()
            },
        ),
    })
}
