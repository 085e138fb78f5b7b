//! Opens a log and gives access to its parts. It never trusts what a log says about its own size.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::entry::{Decoder, Module, Records};
use crate::region::{RegionReader, Source};
use crate::{Error, Extent, Header, Job, ModuleId, ModuleInfo, Mount, Names, Region, Result, job};

/// How much a log may make the reader allocate or compute, whatever it says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Plain bytes of the name region, which is kept in memory. Default: 256 MiB.
    pub name_bytes: u64,
    /// Plain bytes of one module's region, which is streamed. Default: 16 GiB.
    pub module_bytes: u64,
    /// Bytes of a single record (the trace of one file by one rank, say). Default: 256 MiB.
    pub record_bytes: u64,
    /// Bytes behind the last region that [`Log::trailing`] returns. Default: 256 MiB.
    pub trailing_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            name_bytes: 256 << 20,
            module_bytes: 16 << 30,
            record_bytes: 256 << 20,
            trailing_bytes: 256 << 20,
        }
    }
}

/// Plain bytes of the job region: Darshan's own has 4,096.
const JOB_BYTES: u64 = 128 * 1024;

/// How to open a log.
///
/// ```no_run
/// use darshan_log::{Limits, OpenOptions};
/// let limits = Limits { record_bytes: 1 << 30, ..Limits::default() };
/// let log = OpenOptions::new().lenient(true).limits(limits).open("job.darshan")?;
/// for error in &log.damage {
///     eprintln!("{error}");
/// }
/// # Ok::<(), darshan_log::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    lenient: bool,
    limits: Limits,
}

impl OpenOptions {
    /// Strict, with default limits.
    pub fn new() -> Self {
        OpenOptions::default()
    }

    /// With `true`, damage to the job record, to the names or to a region's extent goes to
    /// [`Log::damage`] and is no error. A damaged header is an error in any case.
    pub fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// Sets limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Opens the log at `path`.
    ///
    /// # Errors
    /// What is wrong with the file or with its contents.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Log> {
        let path = path.as_ref();
        let failed = |operation| {
            move |source| Error::Io {
                operation,
                path: Some(path.to_owned()),
                source,
            }
        };
        let file = File::open(path).map_err(failed("open"))?;
        let len = file.metadata().map_err(failed("stat"))?.len();
        self.read(Source::File(Arc::new(file)), len)
    }

    /// Opens a log that is in memory.
    ///
    /// # Errors
    /// What is wrong with the contents.
    pub fn from_bytes(&self, bytes: impl Into<Arc<[u8]>>) -> Result<Log> {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        self.read(Source::Bytes(bytes), len)
    }

    fn read(&self, source: Source, file_len: u64) -> Result<Log> {
        let header = Header::read(&source, file_len)?;
        let mut log = Log {
            header,
            job: Job::default(),
            exe: String::new(),
            mounts: Vec::new(),
            names: Names::default(),
            damage: Vec::new(),
            source,
            file_len,
            limits: self.limits,
        };
        let parts = [log.read_job(), log.read_names(), log.check_extents()];
        for error in parts.into_iter().filter_map(Result::err) {
            if !self.lenient {
                return Err(error);
            }
            log.damage.push(error);
        }
        Ok(log)
    }
}

/// An open log: the job and the names are in memory, records are read as they are asked for.
#[derive(Debug)]
pub struct Log {
    /// The header.
    pub header: Header,
    /// The job record.
    pub job: Job,
    /// Executable and arguments, as far as they fit in the log.
    pub exe: String,
    /// File systems that were mounted.
    pub mounts: Vec<Mount>,
    /// Names by record id.
    pub names: Names,
    /// What was wrong when the log was opened [leniently](OpenOptions::lenient).
    pub damage: Vec<Error>,
    source: Source,
    file_len: u64,
    limits: Limits,
}

impl Log {
    /// Opens the log at `path`, strictly and with default limits.
    ///
    /// # Errors
    /// What is wrong with the file or with its contents.
    pub fn open(path: impl AsRef<Path>) -> Result<Log> {
        OpenOptions::new().open(path)
    }

    /// Opens a log that is in memory, strictly and with default limits.
    ///
    /// # Errors
    /// What is wrong with the contents.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Log> {
        OpenOptions::new().from_bytes(bytes)
    }

    /// The modules that the log has data of, by number.
    pub fn modules(&self) -> &[ModuleInfo] {
        &self.header.modules
    }

    /// The module, if the log has data of it.
    pub fn module(&self, id: ModuleId) -> Option<&ModuleInfo> {
        self.header.module(id)
    }

    /// Seconds from start to end, see [`Job::run_time`].
    pub fn run_time(&self) -> f64 {
        self.job.run_time(self.header.version)
    }

    /// Length of the file in bytes.
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The records of a module, one after the other; none if the log has no such module.
    /// Records of older versions are converted to the current one as darshan-util does.
    ///
    /// ```no_run
    /// use darshan_log::{Log, Posix, counters::posix::Counter};
    /// let log = Log::open("job.darshan")?;
    /// for record in log.records::<Posix>() {
    ///     let record = record?;
    ///     println!("{:?}: {} bytes", log.names.get(record.id), record.get(Counter::BytesRead));
    /// }
    /// # Ok::<(), darshan_log::Error>(())
    /// ```
    pub fn records<M: Module>(&self) -> Records<M> {
        Records::new(self.module(M::ID).map(|module| Decoder {
            reader: self.reader(
                Region::Module(M::ID),
                module.extent,
                self.limits.module_bytes,
            ),
            version: module.version,
            record_limit: self.limits.record_bytes,
            first_heatmap: None,
        }))
    }

    /// The readable records of a module, and the error that ended them, if there was one.
    pub fn readable_records<M: Module>(&self) -> (Vec<M::Record>, Option<Error>) {
        let mut records = Vec::new();
        for record in self.records::<M>() {
            match record {
                Ok(record) => records.push(record),
                Err(error) => return (records, Some(error)),
            }
        }
        (records, None)
    }

    /// Gives the decompressed bytes of a module's region to `sink`, piece by piece, in the log's
    /// byte order. This is for modules that the crate does not decode.
    ///
    /// # Errors
    /// The region is damaged or exceeds a limit, or `sink` returned an error.
    pub fn raw_module(
        &self,
        id: ModuleId,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(module) = self.module(id) else {
            return Ok(());
        };
        let mut reader = self.reader(Region::Module(id), module.extent, self.limits.module_bytes);
        loop {
            let bytes = reader.available()?;
            if bytes.is_empty() {
                return Ok(());
            }
            let len = bytes.len();
            sink(bytes)?;
            reader.consume(len);
        }
    }

    /// The bytes behind the last region, which Darshan's tools ignore.
    ///
    /// # Errors
    /// [`Error::Limit`] if there are more than [`Limits::trailing_bytes`], and errors of reading.
    pub fn trailing(&self) -> Result<Vec<u8>> {
        let start = self.header.end();
        let len = self.file_len.saturating_sub(start);
        if len > self.limits.trailing_bytes {
            return Err(Error::Limit {
                region: Region::Trailing,
                offset: start,
                what: "their number",
                limit: self.limits.trailing_bytes,
            });
        }
        let mut bytes = vec![0; len as usize];
        let got = self.source.read_at(&mut bytes, start)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    fn reader(&self, region: Region, extent: Extent, limit: u64) -> RegionReader {
        let Header {
            compression,
            endian,
            ..
        } = self.header;
        RegionReader::new(
            self.source.clone(),
            region,
            extent,
            compression,
            endian,
            limit,
        )
    }

    fn read_job(&mut self) -> Result<()> {
        let mut reader = self.reader(Region::Job, self.header.job, JOB_BYTES);
        (self.job, self.exe, self.mounts) = job::read(&mut reader, self.header.version)?;
        Ok(())
    }

    fn read_names(&mut self) -> Result<()> {
        let mut reader = self.reader(Region::Names, self.header.names, self.limits.name_bytes);
        let mut names = Names::default();
        let result = names.read(&mut reader, self.header.version);
        self.names = names;
        result
    }

    fn check_extents(&self) -> Result<()> {
        let cut = self
            .modules()
            .iter()
            .find(|module| module.extent.end() > self.file_len);
        cut.map_or(Ok(()), |module| {
            Err(Error::Truncated {
                region: Region::Module(module.id),
                offset: self.file_len,
            })
        })
    }
}
