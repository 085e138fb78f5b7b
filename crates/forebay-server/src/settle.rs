//! Sync points: moments at which everything that was committed is durable, and what follows them.

use crate::ServerHandle;
use crate::log::Cause;
use forebay_core::recovery;
use forebay_core::storage::SyncStep;
use forebay_core::table::{Change, TableError};
use forebay_objects::{Objects, Removed};
use forebay_pfs::Lower;
use forebay_sys::Errno;
use forebay_tables::Settling;
use parking_lot::Mutex;
use std::sync::Arc;

/// Removed files that are unlinked before somebody else gets a turn.
const UNLINKED_AT_ONCE: usize = 256;

/// What names rely on: contents of objects, and what the bridge has changed on the PFS.
pub(crate) struct Footing {
    pub(crate) objects: Arc<Objects>,
    pub(crate) lower: Arc<Lower>,
}

fn failed(what: &str, e: Errno) -> TableError {
    let said = format!("{what}: {e}");
    match e {
        Errno::NOSPC | Errno::DQUOT => TableError::NoSpace(said),
        _ => TableError::Failed(said),
    }
}

impl Settling for Footing {
    fn begins(&self) -> Vec<Change> {
        let watermark = recovery::watermark(self.objects.settled());
        self.objects.sync_point_begins();
        vec![watermark.into()]
    }

    fn prepare(&self) -> Result<(), TableError> {
        for step in self.objects.storage().sync_point(None) {
            match step {
                SyncStep::OwnContents => self
                    .objects
                    .write_out_own()
                    .map_err(|e| failed("contents of backing objects", e))?,
                SyncStep::Storage => self
                    .objects
                    .sync_all()
                    .map_err(|e| failed("syncfs of the storage", e))?,
                SyncStep::PfsNames => self
                    .lower
                    .sync_changed()
                    .map_err(|e| failed("names on the PFS", e))?,
                // The last one: whoever calls this writes them then.
                SyncStep::Names => {}
            }
        }
        Ok(())
    }
}

/// What follows sync points.
#[derive(Default)]
pub(crate) struct Settled {
    /// One at a time: who waits for a sync point finds that another one was enough.
    turn: Mutex<()>,
    /// Removed objects that may be unlinked now.
    removed: Mutex<Removed>,
}

impl ServerHandle {
    /// Makes everything durable that is committed now, unless it is already. What may go then is unlinked by
    /// [`ServerHandle::unlink_removed`].
    ///
    /// # Errors
    /// The tables or the storage failed. Nothing is lost, and the next sync point tries again.
    pub(crate) fn sync_point(&self) -> Result<(), TableError> {
        self.sync_point_telling(&mut || {})
    }

    /// [`ServerHandle::sync_point`]; `written` as with [`forebay_tables::Journaled::sync_telling`].
    ///
    /// # Errors
    /// As [`ServerHandle::sync_point`].
    pub(crate) fn sync_point_telling(&self, written: &mut dyn FnMut()) -> Result<(), TableError> {
        let wanted = self.durability.last_commit();
        if self.is_settled(wanted) {
            return Ok(());
        }
        let _turn = self.settled.turn.lock();
        if self.is_settled(wanted) {
            return Ok(());
        }
        let now = self.durability.last_commit();
        let removed = self.objects.removed_so_far();
        if let Err(e) = self.namespace.sync_telling(written) {
            self.objects.keep_removed(removed);
            return Err(e);
        }
        self.settled.removed.lock().add(removed);
        self.durability.reached(now);
        // Not only its own thread makes durable what is committed.
        self.durability.rouse();
        Ok(())
    }

    /// Lets go what was removed, if all commits are durable. Are there files that no sync point needs any more? Takes no lock of the
    /// namespace.
    pub(crate) fn has_removed(&self) -> bool {
        if self.durability.is_durable(self.durability.last_commit()) {
            // Some may have been removed when their commit was durable already.
            self.settle_removed();
        }
        !self.settled.removed.lock().is_empty()
    }

    /// Is everything up to this commit durable, and nothing else to be written? Then what was removed by then may go.
    fn is_settled(&self, commit: u64) -> bool {
        // Where commits need no sync point, the journal has to be emptied all the same.
        if !self.durability.is_durable(commit) || self.namespace.is_sync_due() {
            return false;
        }
        self.settle_removed();
        true
    }

    /// If all commits are durable, what was removed may go.
    fn settle_removed(&self) {
        let removed = self.objects.removed_so_far();
        // Taken first: whatever was removed until then is in the commits that are asked for now.
        if self.durability.is_durable(self.durability.last_commit()) {
            self.settled.removed.lock().add(removed);
        } else {
            self.objects.keep_removed(removed);
        }
    }

    /// Makes the contents of all files durable that are in the buffer.
    ///
    /// # Errors
    /// The storage failed.
    pub(crate) fn sync_contents(&self) -> Result<(), TableError> {
        let synced = self.objects.sync_all();
        synced.map_err(|e| failed("syncfs of the storage", e))
    }

    /// Unlinks some of the files that no sync point needs any more. False if none are left.
    pub(crate) fn unlink_removed(&self) -> bool {
        let mut removed = std::mem::take(&mut *self.settled.removed.lock());
        let (gone, trouble) = self.objects.unlink_some(&mut removed, UNLINKED_AT_ONCE);
        for object in gone {
            self.namespace.object_gone(object);
        }
        if let Some((object, e)) = trouble {
            self.log.limited(
                Cause::Io,
                format_args!("backing object {object} could not be removed: {e}"),
            );
        }
        let mut rest = self.settled.removed.lock();
        rest.add(removed);
        !rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Server, start};
    use forebay_client::Client;
    use std::os::fd::AsFd;
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Nobody who does not hang waits so long.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn bridge(dir: &Path) -> Server {
        for sub in ["pfs", "storage"] {
            std::fs::create_dir(dir.join(sub)).unwrap();
        }
        let root = dir.join("pfs").canonicalize().unwrap();
        let storage = dir.join("storage").canonicalize().unwrap();
        let mut config = Config::new(&root, &storage).unwrap();
        config.socket = dir.join("socket");
        start(config).unwrap()
    }

    /// Asks for the attributes of `path` by so many connections that each event loop has some. Panics if one does not answer.
    fn looks(dir: &Path, path: &str) -> Vec<Result<u64, i32>> {
        let (socket, path) = (dir.join("socket"), path.to_owned());
        let (done, answers) = mpsc::channel();
        std::thread::spawn(move || {
            let looked = (0..4).map(|_| {
                let mut client = Client::connect(&socket).unwrap();
                let looked = client.stat(&path).map(|attr| attr.size);
                looked.map_err(|e| e.errno().expect("the bridge answers"))
            });
            let _ = done.send(looked.collect());
        });
        answers
            .recv_timeout(PATIENCE)
            .expect("an event loop waits for the disk")
    }

    #[test]
    fn who_unlinks_an_open_file_waits_for_the_disk_and_nobody_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let server = bridge(dir.path());
        let mut client = Client::connect(&dir.path().join("socket")).unwrap();
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = client.open("f", flags, 0o644).unwrap();
        server.handle.sync_point().unwrap();
        let disk = server.handle.settled.turn.lock();
        let (done, ended) = mpsc::channel();
        let unlinks = std::thread::spawn(move || {
            client.unlink("f").unwrap();
            done.send(()).unwrap();
        });
        // It is committed before it waits.
        while looks(dir.path(), "f") != vec![Err(libc::ENOENT); 4] {
            std::thread::yield_now();
        }
        assert!(ended.try_recv().is_err(), "it is answered too early");
        drop(disk);
        ended.recv_timeout(PATIENCE).unwrap();
        unlinks.join().unwrap();
        let links = forebay_sys::stat(file.as_fd(), b"").unwrap().nlink;
        assert_eq!(links, 0, "who has it open sees that it has no name");
        server.stop().unwrap();
    }

    #[test]
    fn who_commits_while_the_journal_is_full_waits_for_the_disk_and_nobody_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let server = bridge(dir.path());
        let socket = dir.path().join("socket");
        let mut client = Client::connect(&socket).unwrap();
        client.mkdir("d", 0o755).unwrap();
        let disk = server.handle.settled.turn.lock();
        let (done, ended) = mpsc::channel();
        let makes = std::thread::spawn(move || {
            let mut made = 0;
            while ended.try_recv().is_err() {
                let name = format!("d/{made:0200}");
                client.mkdir(&name, 0o755).unwrap();
                made += 1;
            }
            made
        });
        while !server.handle.namespace.waits_for_sync(&[]) {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            assert!(looks(dir.path(), "d").iter().all(Result::is_ok));
        }
        drop(disk);
        done.send(()).unwrap();
        assert!(makes.join().unwrap() > 0);
        server.stop().unwrap();
    }
}
