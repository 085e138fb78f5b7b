//! Mount points on which requests take much longer than on others of the same type of file system.

use super::loss::{Loss, Part, real_files, slowest_path};
use super::pace::{Usual, is_measured, is_stored, lower_median, mean_size};
use super::places::{Slow, detail, measured, named, worst_of};
use super::{Finding, NAMED_FILES, Subject};
use crate::model::{Amount, FileUse, Interface};
use crate::units::{self, share};
use std::collections::{BTreeMap, BTreeSet};

/// The rule.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    slow_mount(subject).into_iter().collect()
}

/// Requests of mount points are compared if their mean sizes differ by this factor at most.
const SAME_SIZE: f64 = 4.0;

/// Requests that can be compared: of one interface and type of file system, in one direction.
type Lane<'a> = (Interface, &'a str, bool);

/// Files at the interfaces below all others, on a known mount point.
fn mounted<'a>(subject: &'a Subject) -> impl Iterator<Item = (Interface, &'a FileUse)> {
    let layers = subject.job.layers.iter();
    let layers =
        layers.filter(|layer| matches!(layer.interface, Interface::Posix | Interface::Stdio));
    let uses =
        layers.flat_map(|layer| real_files(subject, layer).map(|one| (layer.interface, one)));
    uses.filter(|(_, one)| {
        let file = &subject.job.files[one.file];
        !file.is_calls && !file.mount.is_empty() && !file.fs.is_empty()
    })
}

/// Of mount points those whose mean requests are of about the same size.
fn same_size(places: BTreeMap<usize, Amount>) -> BTreeMap<usize, Amount> {
    let usual = lower_median(places.values().map(mean_size).collect());
    let is_same = |size: f64| size <= SAME_SIZE * usual && usual <= SAME_SIZE * size;
    let same = places
        .into_iter()
        .filter(|(_, one)| is_same(mean_size(one)));
    same.collect()
}

/// The mount points of a job.
struct Mounts<'a> {
    /// In ascending order.
    names: Vec<&'a str>,
    slow: BTreeMap<usize, Slow>,
    /// Types of the slow ones.
    types: BTreeMap<usize, &'a str>,
    /// The share of their time that requests of slow ones lose, by interface, mount point and whether they are writes.
    lost: BTreeMap<(Interface, usize, bool), f64>,
}

impl<'a> Mounts<'a> {
    fn of(subject: &'a Subject) -> Self {
        let files = &subject.job.files;
        let names = mounted(subject).map(|(_, one)| files[one.file].mount.as_str());
        let names: BTreeSet<&str> = names.collect();
        let mut mounts = Mounts {
            names: names.into_iter().collect(),
            slow: BTreeMap::new(),
            types: BTreeMap::new(),
            lost: BTreeMap::new(),
        };
        let mut lanes: BTreeMap<Lane, BTreeMap<usize, Amount>> = BTreeMap::new();
        for (interface, one) in mounted(subject) {
            let file = &files[one.file];
            let Some(place) = mounts.place(&file.mount) else {
                continue;
            };
            for is_write in [false, true] {
                let lane = lanes.entry((interface, &file.fs, is_write)).or_default();
                let sum = lane.entry(place).or_default();
                sum.add(&Amount::of(&one.total, is_write));
            }
        }
        for (lane, mut places) in lanes {
            places.retain(|_, one| is_measured(one) && is_stored(subject, one));
            mounts.judge(lane, &same_size(places), subject.limits.slow_mount);
        }
        mounts
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.names.binary_search(&name).ok()
    }

    /// Notes the mount points of one lane that take so many times as long as usual.
    fn judge(&mut self, lane: Lane<'a>, places: &BTreeMap<usize, Amount>, limit: f64) {
        let (interface, fs, is_write) = lane;
        if places.len() < 2 {
            return;
        }
        let usual = Usual::of(places.values());
        let slow = places
            .iter()
            .filter(|(_, work)| usual.is_exceeded(work, limit));
        for (place, work) in slow {
            let seconds = usual.seconds(work);
            let lost = 1.0 - seconds / work.seconds;
            self.lost.insert((interface, *place, is_write), lost);
            self.types.insert(*place, fs);
            let one = self.slow.entry(*place).or_default();
            one.seconds += work.seconds;
            one.usual += seconds;
            let name = self.names[*place];
            one.details
                .push(detail(interface, name, is_write, work, &usual));
            for (other, other_work) in places {
                let times = share(other_work.seconds, usual.seconds(other_work));
                one.add_elsewhere(*other, times * seconds);
            }
        }
    }

    /// What the ranks lose on the slow ones. Time in C streams and in other calls is told by the larger of both.
    fn loss(&self, subject: &'a Subject) -> Loss<'a> {
        let files = &subject.job.files;
        let [posix, stdio] = [Interface::Posix, Interface::Stdio].map(|interface| {
            let uses = mounted(subject).filter(move |(of, _)| *of == interface);
            slowest_path(subject, uses.map(|(_, one)| one), Part::Data, |one| {
                let Some(place) = self.place(&files[one.file].mount) else {
                    return 0.0;
                };
                let of = |is_write| {
                    let share = self.lost.get(&(interface, place, is_write)).copied();
                    share.unwrap_or(0.0) * Amount::of(&one.total, is_write).seconds
                };
                of(false) + of(true)
            })
        });
        if stdio.seconds > posix.seconds {
            stdio
        } else {
            posix
        }
    }
}

/// A mount point on which requests take much longer than on others of the same type of file system.
fn slow_mount(subject: &Subject) -> Option<Finding> {
    let mounts = Mounts::of(subject);
    let (worst, most) = worst_of(&mounts.slow)?;
    let (name, fs) = (
        |at: usize| mounts.names[at].to_owned(),
        mounts.types[&worst],
    );
    let title = format!(
        "{} is slow: reads and writes take {} there, at the pace of other mount points of {fs} {}",
        name(worst),
        units::seconds(most.seconds),
        units::seconds(most.usual)
    );
    let estimate = "measured time to read and write on slow mount points, less what as many requests, or bytes if that is more, take on \
                    the median of mount points of the same type"
        .to_owned();
    let loss = mounts.loss(subject);
    let mut finding = Finding::of_loss(subject, "slow-mount", title, &loss, estimate);
    finding.evidence = vec![format!(
        "requests of about the same size take {} times as long or more there, for a request and for a byte; the seconds are those of \
         all ranks together",
        subject.limits.slow_mount
    )];
    let details = most.details.iter().take(NAMED_FILES).cloned();
    finding.evidence.extend(details);
    finding.measured = measured(most, name, "mount points");
    finding.files = named(&mounts.slow, name);
    finding.advice = format!(
        "Put these files on another {fs} mount point, or ask the operators why this one is slow. A log does not tell whether a cache has \
         served the others."
    );
    Some(finding)
}
