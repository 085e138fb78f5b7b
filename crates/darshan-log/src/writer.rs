//! Writes a log of format 3.41, piece by piece, so that memory does not grow with the job.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::write::ZlibEncoder;

use crate::entry::{Module, nul_padded};
use crate::header::{HEADER_BYTES, MAGIC, WRITTEN_VERSION};
use crate::job::{JobText, METADATA_BYTES, text_of};
use crate::{Error, Extent, Job, MAX_MODULES, ModuleId, Mount, Result};

/// zlib's level. Records are mostly zeros: higher levels take more than twice the time and save an eighth.
const COMPRESSION_LEVEL: u32 = 2;

/// What a finished log holds, and what had no room in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Length of the log in bytes.
    pub bytes: u64,
    /// The command line had to be cut.
    pub exe_truncated: bool,
    /// How many mounts had no room beside the command line, or names that can't be written.
    pub mounts_left_out: usize,
}

/// Writes one log.
///
/// Names come first, then the records of each module, in the order of module numbers. That is also
/// their order in the file, so nothing but the current record is kept.
///
/// ```
/// use darshan_log::{Job, Log, LogWriter, ModuleId, Stdio, Record, record_id};
/// let path = std::env::temp_dir().join(format!("writer-doc-{}.darshan", std::process::id()));
/// let mut job = Job { nprocs: 2, id: 4711, ..Job::default() };
/// job.metadata.insert("nnodes", "1")?;
/// let mut writer = LogWriter::create(&path, &job, "./app", &[])?;
/// let id = record_id(b"<STDOUT>");
/// writer.name(id, b"<STDOUT>")?;
/// for rank in 0..2 {
///     writer.record::<Stdio>(&Record::new(id, rank))?;
/// }
/// writer.mark_partial(ModuleId::Stdio);
/// writer.finish()?;
/// let log = Log::open(&path)?;
/// assert!(log.module(ModuleId::Stdio).unwrap().partial);
/// assert_eq!(log.records::<Stdio>().count(), 2);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), darshan_log::Error>(())
/// ```
pub struct LogWriter<W: Write + Seek> {
    sink: Sink<W>,
    region: OpenRegion,
    /// Where the region starts.
    start: u64,
    names: Extent,
    modules: [(Extent, u32); MAX_MODULES],
    partial: u64,
    written: Written,
    /// The record being encoded.
    record: Vec<u8>,
    target: Option<Target<W>>,
}

enum Sink<W: Write + Seek> {
    /// Between regions, within a region that has nothing yet, or behind the last one.
    Plain(BufWriter<W>),
    Compressed(ZlibEncoder<BufWriter<W>>),
    /// An error has left the file in an unknown state.
    Broken,
}

/// The region that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OpenRegion {
    Job,
    Names,
    Module(u8),
    Trailing,
}

/// The file of [`LogWriter::create`]. The temporary file is removed if the log isn't finished.
struct Target<W> {
    temporary: Option<PathBuf>,
    path: PathBuf,
    sync: fn(&W) -> io::Result<()>,
}

impl<W> Drop for Target<W> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // If it can't be removed, its name still says that it isn't complete.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

impl<W> Target<W> {
    /// Brings the complete file to stable storage and gives it its name.
    fn publish(mut self, file: &W) -> Result<()> {
        let Some(temporary) = self.temporary.as_ref() else {
            return Ok(());
        };
        (self.sync)(file).map_err(failed_on("sync", temporary))?;
        std::fs::rename(temporary, &self.path).map_err(failed_on("rename", temporary))?;
        self.temporary = None;
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(failed_on("sync", directory))
    }
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io {
        operation,
        path: None,
        source,
    }
}

fn failed_on(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io {
        operation,
        path: Some(path.to_owned()),
        source,
    }
}

fn unwritable(reason: impl Into<String>) -> Error {
    Error::Unwritable {
        reason: reason.into(),
    }
}

impl LogWriter<File> {
    /// Starts a log that will be at `path`.
    ///
    /// Until [`finish`](LogWriter::finish) its name has `_partial` appended, like that of Darshan's
    /// own unfinished logs. It is removed if the writer is dropped before. Only the owner may read
    /// it. An existing log at `path` is replaced at the end.
    ///
    /// # Errors
    /// [`Error::Io`] if the file can't be made, and those of [`LogWriter::new`].
    pub fn create(path: impl AsRef<Path>, job: &Job, exe: &str, mounts: &[Mount]) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let mut temporary = path.clone().into_os_string();
        temporary.push("_partial");
        let temporary = PathBuf::from(temporary);
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let file = options
            .open(&temporary)
            .map_err(failed_on("create", &temporary))?;
        let target = Target {
            temporary: Some(temporary),
            path,
            sync: File::sync_all,
        };
        let mut writer = LogWriter::new(file, job, exe, mounts)?;
        writer.target = Some(target);
        Ok(writer)
    }
}

impl<W: Write + Seek> LogWriter<W> {
    /// Starts a log at the beginning of `sink`. Command line and mounts have 3,015 bytes; what
    /// doesn't fit is left out, and [`Written`] says so.
    ///
    /// # Errors
    /// [`Error::Io`] if `sink` can't be written, [`Error::Unwritable`] if the command line has a
    /// NUL in it.
    pub fn new(mut sink: W, job: &Job, exe: &str, mounts: &[Mount]) -> Result<Self> {
        if exe.contains('\0') {
            return Err(unwritable("a NUL in the command line"));
        }
        // The header is known only at the end.
        sink.seek(SeekFrom::Start(0)).map_err(failed("seek"))?;
        sink.write_all(&[0; HEADER_BYTES])
            .map_err(failed("write"))?;
        let JobText {
            text,
            exe_truncated,
            mounts_left_out,
        } = text_of(exe, mounts);
        let mut writer = LogWriter {
            sink: Sink::Plain(BufWriter::new(sink)),
            region: OpenRegion::Job,
            start: HEADER_BYTES as u64,
            names: Extent::default(),
            modules: [(Extent::default(), 0); MAX_MODULES],
            partial: 0,
            written: Written {
                bytes: 0,
                exe_truncated,
                mounts_left_out,
            },
            record: Vec::new(),
            target: None,
        };
        writer.compress(&job_record(job))?;
        writer.compress(text.as_bytes())?;
        writer.compress(&[0])?;
        writer.go_to(OpenRegion::Names)?;
        Ok(writer)
    }

    /// Adds the name of the records with that id.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Unwritable`] if records were already written, or if the name has a
    /// NUL in it.
    pub fn name(&mut self, id: u64, name: &[u8]) -> Result<()> {
        if self.region != OpenRegion::Names {
            return Err(unwritable("names come before records"));
        }
        if name.contains(&0) {
            return Err(unwritable(format!(
                "a NUL in the name \"{}\"",
                name.escape_ascii()
            )));
        }
        let mut bytes = std::mem::take(&mut self.record);
        bytes.clear();
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.push(0);
        let result = self.compress(&bytes);
        self.record = bytes;
        result
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Unwritable`] if records of a module with a higher number were already
    /// written, or if the record can't be represented.
    pub fn record<M: Module>(&mut self, record: &M::Record) -> Result<()> {
        let mut bytes = std::mem::take(&mut self.record);
        bytes.clear();
        let result = M::encode(record, &mut bytes)
            .and_then(|()| self.module_bytes(M::ID, M::WRITTEN_VERSION, &bytes));
        self.record = bytes;
        result
    }

    /// Adds bytes of a module that this crate doesn't encode: whole records, little endian.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn module_bytes(&mut self, id: ModuleId, version: u32, bytes: &[u8]) -> Result<()> {
        let number = id.number();
        if usize::from(number) >= MAX_MODULES {
            return Err(unwritable(format!("module {number}")));
        }
        self.go_to(OpenRegion::Module(number))?;
        self.modules[usize::from(number)].1 = version;
        self.compress(bytes)
    }

    /// Marks a module of which records are missing.
    pub fn mark_partial(&mut self, id: ModuleId) {
        self.partial |= 1 << (id.number() % MAX_MODULES as u8);
    }

    /// Adds bytes behind the last region. Darshan's tools don't see them;
    /// [`Log::trailing`](crate::Log::trailing) returns them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn trailing(&mut self, bytes: &[u8]) -> Result<()> {
        self.go_to(OpenRegion::Trailing)?;
        match &mut self.sink {
            Sink::Plain(sink) => sink.write_all(bytes).map_err(failed("write")),
            _ => Err(unwritable("an earlier write failed")),
        }
    }

    /// Completes the log. Afterwards a log of [`create`](LogWriter::create) is on stable storage
    /// and has its name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(mut self) -> Result<(W, Written)> {
        self.go_to(OpenRegion::Trailing)?;
        let Sink::Plain(mut sink) = std::mem::replace(&mut self.sink, Sink::Broken) else {
            return Err(unwritable("an earlier write failed"));
        };
        self.written.bytes = sink.stream_position().map_err(failed("seek"))?;
        sink.seek(SeekFrom::Start(0)).map_err(failed("seek"))?;
        sink.write_all(&self.header()).map_err(failed("write"))?;
        let file = sink
            .into_inner()
            .map_err(|e| failed("write")(e.into_error()))?;
        if let Some(target) = self.target.take() {
            target.publish(&file)?;
        }
        Ok((file, self.written))
    }

    /// Ends the current region and starts `next`, unless that is the current one.
    fn go_to(&mut self, next: OpenRegion) -> Result<()> {
        if next == self.region {
            return Ok(());
        }
        if next < self.region {
            return Err(unwritable(format!(
                "{next:?} after {:?}: modules come by number",
                self.region
            )));
        }
        // It stays broken if one of these calls fails.
        let mut sink = match std::mem::replace(&mut self.sink, Sink::Broken) {
            Sink::Plain(sink) => sink,
            Sink::Compressed(encoder) => encoder.finish().map_err(failed("write"))?,
            Sink::Broken => return Err(unwritable("an earlier write failed")),
        };
        let position = sink.stream_position().map_err(failed("seek"))?;
        let extent = Extent {
            offset: self.start,
            len: position - self.start,
        };
        match self.region {
            OpenRegion::Names => self.names = extent,
            OpenRegion::Module(number) => self.modules[usize::from(number)].0 = extent,
            OpenRegion::Job | OpenRegion::Trailing => {}
        }
        self.sink = Sink::Plain(sink);
        self.region = next;
        self.start = position;
        Ok(())
    }

    /// Adds bytes to the current region.
    fn compress(&mut self, bytes: &[u8]) -> Result<()> {
        let mut encoder = match std::mem::replace(&mut self.sink, Sink::Broken) {
            Sink::Plain(sink) => {
                ZlibEncoder::new(sink, flate2::Compression::new(COMPRESSION_LEVEL))
            }
            Sink::Compressed(encoder) => encoder,
            Sink::Broken => return Err(unwritable("an earlier write failed")),
        };
        encoder.write_all(bytes).map_err(failed("write"))?;
        self.sink = Sink::Compressed(encoder);
        Ok(())
    }

    fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(WRITTEN_VERSION);
        header.extend_from_slice(&MAGIC.to_le_bytes());
        // Compression 0: zlib.
        header.extend_from_slice(&0u64.to_le_bytes());
        header.extend_from_slice(&self.partial.to_le_bytes());
        for extent in std::iter::once(self.names).chain(self.modules.iter().map(|m| m.0)) {
            header.extend_from_slice(&extent.offset.to_le_bytes());
            header.extend_from_slice(&extent.len.to_le_bytes());
        }
        for (_, version) in &self.modules {
            header.extend_from_slice(&version.to_le_bytes());
        }
        debug_assert_eq!(header.len(), HEADER_BYTES);
        header
    }
}

/// The job record without the text behind it.
fn job_record(job: &Job) -> Vec<u8> {
    let numbers = [
        job.uid,
        job.start.sec,
        job.start.nsec,
        job.end.sec,
        job.end.nsec,
        job.nprocs,
        job.id,
    ];
    let mut bytes: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    // What `Metadata::insert` made fits; text of a damaged log may be cut.
    bytes.extend_from_slice(&nul_padded::<METADATA_BYTES>(job.metadata.text()));
    bytes
}
