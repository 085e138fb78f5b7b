//! Modification times of PFS directories that a drain visits. It changes entries there, so each directory gets its old
//! time back in the end, unless others have changed it meanwhile: then it keeps the time that it has from them.
//!
//! The driver looks at directories, without a lock, and sets times. `F` is how it keeps one open.

use crate::facts::{Attr, Inode, Timestamp};
use crate::identity::Identity;
use crate::path::TreePath;
use std::collections::BTreeMap;

/// How many directories a drain keeps open. These get their times back even if the drain has renamed them. The
/// others are found again by their paths.
const OPEN_DIRS: usize = 256;

/// The directories that one drain has visited.
#[derive(Debug)]
pub struct VisitedDirs<F> {
    dirs: Vec<KeptDir<F>>,
    by_path: BTreeMap<TreePath, usize>,
    by_inode: BTreeMap<Inode, usize>,
    /// Directories changed by programs since the drain began.
    touched: BTreeMap<TreePath, (Timestamp, Option<Identity>)>,
}

#[derive(Debug)]
struct KeptDir<F> {
    /// The path at which the drain visited it last.
    path: TreePath,
    file: Option<F>,
    inode: Inode,
    /// The times that it gets back.
    atime: Timestamp,
    mtime: Timestamp,
    /// Its modification time when the drain changed an entry last. If it has another one, somebody else has changed it since.
    /// `None`: it could not be found then.
    left: Option<Timestamp>,
    /// Acts of the drain that may be changing entries now. What changes meanwhile counts as the drain's.
    acts: usize,
    /// How many acts have begun or ended here, and times were written. A look during which this has grown says nothing.
    crossings: u64,
}

/// A directory to be looked at.
#[derive(Debug)]
pub struct DirLook<F> {
    /// The directory, if it is kept open.
    pub file: Option<F>,
    /// Else where it was visited last.
    pub path: TreePath,
    inode: Inode,
    crossings: u64,
}

/// What a look at a directory has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirSeen {
    /// Its modification time, unless it can't be found.
    mtime: Option<Timestamp>,
    /// [`KeptDir::crossings`] before the look.
    crossings: u64,
}

/// A visited directory, after the last change of the drain.
#[derive(Debug)]
pub struct VisitedDir<F> {
    /// The directory, if it is kept open.
    pub file: Option<F>,
    /// Else where it was visited last.
    pub path: TreePath,
    inode: Inode,
    times: (Timestamp, Timestamp),
    /// The modification time that it must have, if any.
    left: Option<Timestamp>,
}

impl<F> DirLook<F> {
    /// What was seen: the attributes, if there is a directory. Another one in its place is none.
    pub fn seen(&self, now: Option<&Attr>) -> DirSeen {
        let now = now.filter(|now| now.inode() == self.inode);
        DirSeen {
            mtime: now.map(|now| now.mtime),
            crossings: self.crossings,
        }
    }
}

impl<F> VisitedDir<F> {
    /// The times that the directory gets, of access and of modification. `now`: its attributes.
    pub fn gets(&self, now: &Attr) -> Option<(Timestamp, Timestamp)> {
        let is_it = now.inode() == self.inode;
        let is_as_left = self.left.is_none_or(|left| now.mtime == left);
        (is_it && is_as_left && now.mtime != self.times.1).then_some(self.times)
    }
}

impl<F> Default for VisitedDirs<F> {
    fn default() -> Self {
        VisitedDirs {
            dirs: Vec::new(),
            by_path: BTreeMap::new(),
            by_inode: BTreeMap::new(),
            touched: BTreeMap::new(),
        }
    }
}

impl<F: Clone> VisitedDirs<F> {
    /// A program has changed entries of this directory.
    pub fn touch(&mut self, path: &TreePath, dir: Option<Identity>, at: Timestamp) {
        self.touched.insert(path.clone(), (at, dir));
    }

    /// How often something has crossed a look at the directory with these attributes, if it is visited: to be asked before a time is
    /// written to it, for [`VisitedDirs::has_written`].
    pub fn crossings(&self, dir: &Attr) -> Option<u64> {
        let number = self.by_inode.get(&dir.inode())?;
        Some(self.dirs[*number].crossings)
    }

    /// The time of a change by a program has been written to the directory at this path, which had these attributes. `before`: what
    /// [`VisitedDirs::crossings`] gave before that.
    pub fn has_written(&mut self, path: &TreePath, dir: &Attr, at: Timestamp, before: Option<u64>) {
        if let Some(dir) = self.settle_touch(path, dir, at) {
            // Else an act may have changed it since, and tells so when it ends.
            if dir.acts == 0 && before == Some(dir.crossings) {
                dir.left = Some(at);
            }
            // A look from before that says nothing.
            dir.crossings += 1;
        }
    }

    /// The directory at this path, with these attributes, has a later time than that of a change by a program.
    pub fn has_later(&mut self, path: &TreePath, dir: &Attr, at: Timestamp) {
        self.settle_touch(path, dir, at);
    }

    /// From now on the directory itself tells that a program has changed it then, and what the program gives it after that. Gives it if it
    /// is visited.
    fn settle_touch(
        &mut self,
        path: &TreePath,
        dir: &Attr,
        at: Timestamp,
    ) -> Option<&mut KeptDir<F>> {
        let number = self.by_inode.get(&dir.inode()).copied();
        let kept = number.map(|number| &self.dirs[number].path);
        for path in [Some(path), kept].into_iter().flatten() {
            if self.touched.get(path).is_some_and(|touch| touch.0 == at) {
                self.touched.remove(path);
            }
        }
        let dir = &mut self.dirs[number?];
        dir.mtime = at.max(dir.mtime);
        Some(dir)
    }

    /// Are the times of this directory remembered?
    pub fn has(&self, path: &TreePath) -> bool {
        self.by_path.contains_key(path)
    }

    /// Remembers the times that a directory has before the drain changes it. If the drain visits it again
    /// under another name, the first times count. Gives its number.
    pub fn keep(&mut self, path: &TreePath, file: F, attr: &Attr) -> usize {
        let number = match self.by_inode.get(&attr.inode()) {
            Some(&number) => {
                self.dirs[number].path = path.clone();
                number
            }
            None => {
                let number = self.dirs.len();
                self.by_inode.insert(attr.inode(), number);
                self.dirs.push(KeptDir {
                    path: path.clone(),
                    file: (number < OPEN_DIRS).then_some(file),
                    inode: attr.inode(),
                    atime: attr.atime,
                    mtime: attr.mtime,
                    left: Some(attr.mtime),
                    acts: 0,
                    crossings: 0,
                });
                number
            }
        };
        self.by_path.insert(path.clone(), number);
        number
    }

    /// How the directory with this number is looked at, before [`VisitedDirs::begins`] and [`VisitedDirs::ends`].
    pub fn look(&self, number: usize) -> Option<DirLook<F>> {
        let dir = self.dirs.get(number)?;
        Some(DirLook {
            file: dir.file.clone(),
            path: dir.path.clone(),
            inode: dir.inode,
            crossings: dir.crossings,
        })
    }

    /// An act of the drain begins that may change entries of this directory. False if another act, or a time that was written, has
    /// crossed the look: it has to be made again.
    pub fn begins(&mut self, number: usize, seen: DirSeen) -> bool {
        let dir = &mut self.dirs[number];
        if dir.acts == 0 {
            if dir.crossings != seen.crossings {
                return false;
            }
            if let (Some(mtime), Some(left)) = (seen.mtime, dir.left)
                && mtime != left
            {
                // Others have changed it: it keeps that time.
                dir.mtime = mtime;
            }
        }
        dir.acts += 1;
        dir.crossings += 1;
        true
    }

    /// An act ends. The last one needs a look that nothing has crossed: false without that.
    pub fn ends(&mut self, number: usize, seen: DirSeen) -> bool {
        let dir = &mut self.dirs[number];
        debug_assert!(dir.acts > 0, "{} was not begun", dir.path);
        if dir.acts == 1 {
            if dir.crossings != seen.crossings {
                return false;
            }
            dir.left = seen.mtime;
        }
        dir.acts -= 1;
        dir.crossings += 1;
        true
    }

    /// All of them, after the last change of the drain.
    pub fn into_visited(self) -> impl Iterator<Item = VisitedDir<F>> {
        let touched = self.touched;
        self.dirs.into_iter().map(move |dir| {
            let mtime = match touched.get(&dir.path) {
                Some((at, touched)) if touched.is_none_or(|it| it.inode() == dir.inode.1) => {
                    dir.mtime.max(*at)
                }
                _ => dir.mtime,
            };
            VisitedDir {
                // What an act that has not ended has changed is the drain's.
                left: dir.left.filter(|_| dir.acts == 0),
                file: dir.file,
                path: dir.path,
                inode: dir.inode,
                times: (dir.atime, mtime),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn time(sec: i64) -> Timestamp {
        Timestamp { sec, nsec: 0 }
    }

    fn dir(ino: u64, mtime: i64) -> Attr {
        Attr {
            ino,
            atime: time(1),
            mtime: time(mtime),
            ..Attr::default()
        }
    }

    /// A drain that has visited directory 7, which had the time 10.
    fn visited() -> VisitedDirs<&'static str> {
        let mut dirs = VisitedDirs::default();
        assert_eq!(dirs.keep(&path("d"), "open", &dir(7, 10)), 0);
        dirs
    }

    /// A program changes entries of the directory with this number, which is at the path of the visited one.
    fn touch(dirs: &mut VisitedDirs<&'static str>, ino: u64, at: i64) {
        dirs.touch(&path("d"), Some(Identity::of_dir(&dir(ino, 0))), time(at));
    }

    /// An act that finds the directory with one time and leaves it with another one.
    fn act(dirs: &mut VisitedDirs<&'static str>, before: i64, after: i64) {
        let look = dirs.look(0).unwrap();
        assert!(dirs.begins(0, look.seen(Some(&dir(7, before)))));
        let look = dirs.look(0).unwrap();
        assert!(dirs.ends(0, look.seen(Some(&dir(7, after)))));
    }

    /// A time is written to it, with nothing in between.
    fn write(dirs: &mut VisitedDirs<&'static str>, at: i64) {
        let before = dirs.crossings(&dir(7, 20));
        dirs.has_written(&path("d"), &dir(7, 20), time(at), before);
    }

    /// The time of modification that the only directory gets, if it has this one now.
    fn gets(dirs: VisitedDirs<&'static str>, now: i64) -> Option<i64> {
        let visited: Vec<_> = dirs.into_visited().collect();
        assert_eq!(visited.len(), 1);
        let (atime, mtime) = visited[0].gets(&dir(7, now))?;
        assert_eq!(atime, time(1));
        Some(mtime.sec)
    }

    #[test]
    fn a_directory_that_only_the_drain_has_changed_gets_its_time_back() {
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        act(&mut dirs, 20, 30);
        assert_eq!(gets(dirs, 30), Some(10));
        assert_eq!(gets(visited(), 10), None, "nothing was changed");
    }

    #[test]
    fn a_directory_that_others_have_changed_keeps_their_time() {
        // Between two acts.
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        act(&mut dirs, 25, 30);
        assert_eq!(gets(dirs, 30), Some(25));
        // After the last one.
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        assert_eq!(gets(dirs, 25), None);
    }

    #[test]
    fn a_program_that_has_changed_a_directory_since_gives_it_a_later_time_and_no_earlier_one() {
        for (at, expected) in [(15, 15), (5, 10)] {
            let mut dirs = visited();
            act(&mut dirs, 10, 20);
            touch(&mut dirs, 7, at);
            assert_eq!(gets(dirs, 20), Some(expected));
        }
        // Another directory was there when it did.
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        touch(&mut dirs, 8, 15);
        assert_eq!(gets(dirs, 20), Some(10));
        // That time was written meanwhile, and is no change of others.
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        touch(&mut dirs, 7, 40);
        write(&mut dirs, 40);
        assert_eq!(gets(dirs, 40), None, "it has it");
        // Nor is what the program gives it after that.
        for (gives, expected) in [(5, 5), (40, 40)] {
            let mut dirs = visited();
            act(&mut dirs, 10, 20);
            touch(&mut dirs, 7, 40);
            write(&mut dirs, 40);
            act(&mut dirs, gives, 50);
            assert_eq!(gets(dirs, 50), Some(expected));
        }
        // An act has looked before that.
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        touch(&mut dirs, 7, 40);
        let early = dirs.look(0).unwrap().seen(Some(&dir(7, 20)));
        write(&mut dirs, 40);
        assert!(!dirs.begins(0, early));
        act(&mut dirs, 40, 50);
        assert_eq!(gets(dirs, 50), Some(40));
        let mut dirs = visited();
        dirs.has_written(&path("e"), &dir(8, 20), time(40), None);
        act(&mut dirs, 10, 20);
        assert_eq!(gets(dirs, 20), Some(10), "another directory");
    }

    #[test]
    fn what_a_program_gives_a_directory_after_its_change_counts_also_before_the_first_visit() {
        // The change was written, or needed not be; after that the program gives the directory a time, and the drain comes.
        for is_later in [false, true] {
            let mut dirs = VisitedDirs::default();
            touch(&mut dirs, 7, 40);
            match is_later {
                false => dirs.has_written(&path("d"), &dir(7, 10), time(40), None),
                true => dirs.has_later(&path("d"), &dir(7, 45), time(40)),
            }
            dirs.keep(&path("d"), "open", &dir(7, 5));
            act(&mut dirs, 5, 50);
            assert_eq!(gets(dirs, 50), Some(5));
        }
        // The drain had stamped it by then.
        let mut dirs = visited();
        touch(&mut dirs, 7, 15);
        act(&mut dirs, 10, 20);
        dirs.has_later(&path("d"), &dir(7, 20), time(15));
        assert_eq!(dirs.touched.len(), 0);
        act(&mut dirs, 5, 50);
        assert_eq!(gets(dirs, 50), Some(5));
        // Nor does the change get lost that was noted before the drain began.
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        write(&mut dirs, 40);
        act(&mut dirs, 40, 50);
        assert_eq!(gets(dirs, 50), Some(40));
    }

    #[test]
    fn an_act_that_ends_while_a_time_is_written_tells_what_it_has_left() {
        let mut dirs = visited();
        let seen = dirs.look(0).unwrap().seen(Some(&dir(7, 10)));
        assert!(dirs.begins(0, seen));
        let before = dirs.crossings(&dir(7, 10));
        let seen = dirs.look(0).unwrap().seen(Some(&dir(7, 50)));
        assert!(dirs.ends(0, seen));
        dirs.has_written(&path("d"), &dir(7, 10), time(40), before);
        assert_eq!(gets(dirs, 50), Some(40));
        // Or that has not ended.
        let mut dirs = visited();
        let seen = dirs.look(0).unwrap().seen(Some(&dir(7, 10)));
        assert!(dirs.begins(0, seen));
        write(&mut dirs, 40);
        assert!(!dirs.ends(0, seen));
        let seen = dirs.look(0).unwrap().seen(Some(&dir(7, 50)));
        assert!(dirs.ends(0, seen));
        assert_eq!(gets(dirs, 50), Some(40));
    }

    #[test]
    fn a_look_that_another_act_has_crossed_says_nothing() {
        let mut dirs = visited();
        let early = dirs.look(0).unwrap().seen(Some(&dir(7, 10)));
        act(&mut dirs, 10, 20);
        assert!(!dirs.begins(0, early));
        let seen = dirs.look(0).unwrap().seen(Some(&dir(7, 20)));
        assert!(dirs.begins(0, seen));
        // While one act goes on, others begin and end without a look of use.
        assert!(dirs.begins(0, early));
        assert!(dirs.ends(0, early));
        assert!(!dirs.ends(0, early), "the last one needs one");
        let seen = dirs.look(0).unwrap().seen(Some(&dir(7, 30)));
        assert!(dirs.ends(0, seen));
        assert_eq!(gets(dirs, 30), Some(10));
    }

    #[test]
    fn what_an_act_that_has_not_ended_has_changed_is_the_drains() {
        let mut dirs = visited();
        let seen = dirs.look(0).unwrap().seen(Some(&dir(7, 10)));
        assert!(dirs.begins(0, seen));
        assert_eq!(gets(dirs, 99), Some(10));
    }

    #[test]
    fn another_directory_in_its_place_is_not_it() {
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        let seen = dirs.look(0).unwrap().seen(Some(&dir(8, 25)));
        assert_eq!(seen, dirs.look(0).unwrap().seen(None));
        let visited: Vec<_> = dirs.into_visited().collect();
        assert_eq!(visited[0].gets(&dir(8, 20)), None);
    }

    #[test]
    fn a_directory_that_could_not_be_found_gets_its_time_back_all_the_same() {
        let mut dirs = visited();
        let look = dirs.look(0).unwrap();
        assert!(dirs.begins(0, look.seen(None)));
        let look = dirs.look(0).unwrap();
        assert!(dirs.ends(0, look.seen(None)));
        assert_eq!(gets(dirs, 25), Some(10));
    }

    #[test]
    fn a_directory_that_the_drain_has_renamed_is_the_same_one() {
        let mut dirs = visited();
        act(&mut dirs, 10, 20);
        assert!(!dirs.has(&path("e")));
        assert_eq!(dirs.keep(&path("e"), "again", &dir(7, 20)), 0);
        assert!(dirs.has(&path("d")) && dirs.has(&path("e")));
        let look = dirs.look(0).unwrap();
        assert_eq!((look.path, look.file), (path("e"), Some("open")));
        assert_eq!(gets(dirs, 20), Some(10), "the first time counts");
    }

    #[test]
    fn only_so_many_directories_are_kept_open() {
        let mut dirs = VisitedDirs::default();
        let all = OPEN_DIRS as u64 + 1;
        (0..all).for_each(|ino| {
            dirs.keep(&path(&format!("d{ino}")), "open", &dir(ino, 10));
        });
        let visited: Vec<_> = dirs.into_visited().collect();
        assert!(visited[OPEN_DIRS - 1].file.is_some());
        assert_eq!(visited[OPEN_DIRS].file, None);
        assert_eq!(visited[OPEN_DIRS].path, path(&format!("d{OPEN_DIRS}")));
    }
}
