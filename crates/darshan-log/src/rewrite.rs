//! Copies a log into the current format.

use std::io::{Seek, Write};

use crate::entry::Module;
use crate::{
    Bgq, Daos, Dfs, DxtMpiio, DxtPosix, Endian, H5d, H5f, Heatmap, Log, LogWriter, Lustre,
    ModuleId, MpiIo, PnetcdfFile, PnetcdfVar, Posix, Result, Stdio, Written,
};

/// Writes all of `log` with `writer`: names, records in the versions that the writer writes, partial
/// flags and trailing bytes. Returns the modules of which nothing was copied.
///
/// The writer should have been started with the log's own job, command line and mounts. Regions of
/// modules that this crate does not decode are copied as they are if the log is little endian.
///
/// The run time of a log older than 3.41 is one second longer than the difference of its times (see
/// [`Job::run_time`](crate::Job::run_time)); that of the copy is not.
///
/// # Errors
/// The first error in reading or writing.
///
/// ```no_run
/// use darshan_log::{Log, LogWriter, rewrite};
/// let old = Log::open("old.darshan")?;
/// let writer = LogWriter::create("new.darshan", &old.job, &old.exe, &old.mounts)?;
/// let (_, written, left_out) = rewrite(&old, writer)?;
/// println!("{} bytes, without {left_out:?}", written.bytes);
/// # Ok::<(), darshan_log::Error>(())
/// ```
pub fn rewrite<W: Write + Seek>(
    log: &Log,
    mut writer: LogWriter<W>,
) -> Result<(W, Written, Vec<ModuleId>)> {
    for (id, name) in log.names.iter() {
        writer.name(id, name)?;
    }
    let mut left_out = Vec::new();
    let mut modules = log.modules().to_vec();
    // Old formats number modules in another order.
    modules.sort_by_key(|module| module.id.number());
    for module in modules {
        match module.id {
            ModuleId::Posix => copy::<Posix, W>(log, &mut writer)?,
            ModuleId::MpiIo => copy::<MpiIo, W>(log, &mut writer)?,
            ModuleId::Stdio => copy::<Stdio, W>(log, &mut writer)?,
            ModuleId::H5f => copy::<H5f, W>(log, &mut writer)?,
            ModuleId::H5d => copy::<H5d, W>(log, &mut writer)?,
            ModuleId::PnetcdfFile => copy::<PnetcdfFile, W>(log, &mut writer)?,
            ModuleId::PnetcdfVar => copy::<PnetcdfVar, W>(log, &mut writer)?,
            ModuleId::Bgq => copy::<Bgq, W>(log, &mut writer)?,
            ModuleId::Dfs => copy::<Dfs, W>(log, &mut writer)?,
            ModuleId::Daos => copy::<Daos, W>(log, &mut writer)?,
            ModuleId::Lustre => copy::<Lustre, W>(log, &mut writer)?,
            ModuleId::Heatmap => copy::<Heatmap, W>(log, &mut writer)?,
            ModuleId::DxtPosix => copy::<DxtPosix, W>(log, &mut writer)?,
            ModuleId::DxtMpiio => copy::<DxtMpiio, W>(log, &mut writer)?,
            other if log.header.endian == Endian::Little => {
                log.raw_module(other, |bytes| {
                    writer.module_bytes(other, module.version, bytes)
                })?;
            }
            other => left_out.push(other),
        }
        if module.partial {
            writer.mark_partial(module.id);
        }
    }
    for id in &log.header.partial_only {
        writer.mark_partial(*id);
    }
    let trailing = log.trailing()?;
    if !trailing.is_empty() {
        writer.trailing(&trailing)?;
    }
    let (sink, written) = writer.finish()?;
    Ok((sink, written, left_out))
}

fn copy<M: Module, W: Write + Seek>(log: &Log, writer: &mut LogWriter<W>) -> Result<()> {
    for record in log.records::<M>() {
        writer.record::<M>(&record?)?;
    }
    Ok(())
}
