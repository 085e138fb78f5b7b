//! Prints what a Darshan log says: `cargo run --example dump -- job.darshan`. A damaged log is
//! printed as far as it can be read; its damage goes to standard error.

use darshan_log::*;

fn main() -> std::process::ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: dump LOG.darshan");
        return std::process::ExitCode::from(2);
    };
    let log = match OpenOptions::new().lenient(true).open(path) {
        Ok(log) => log,
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    print_job(&log);
    let mut damage: Vec<String> = log.damage.iter().map(ToString::to_string).collect();
    for module in log.modules() {
        let partial = if module.partial {
            ", records are missing"
        } else {
            ""
        };
        println!(
            "\n{} (version {}, {} bytes{partial})",
            module.id, module.version, module.extent.len
        );
        damage.extend(print_module(&log, module.id).map(|error| error.to_string()));
    }
    for error in &damage {
        eprintln!("{error}");
    }
    std::process::ExitCode::from(u8::from(!damage.is_empty()))
}

fn print_job(log: &Log) {
    let header = &log.header;
    println!(
        "format {} ({:?} endian, {:?})",
        header.version.as_str(),
        header.endian,
        header.compression
    );
    println!("{}", log.exe);
    println!(
        "job {} of user {}, {} processes, {:.3} s",
        log.job.id,
        log.job.uid,
        log.job.nprocs,
        log.run_time()
    );
    for (key, value) in log.job.metadata.iter() {
        println!("{key}={value}");
    }
    println!("{} mounts, {} names", log.mounts.len(), log.names.len());
}

fn print_module(log: &Log, id: ModuleId) -> Option<Error> {
    match id {
        ModuleId::Posix => print_counters::<Posix>(log),
        ModuleId::MpiIo => print_counters::<MpiIo>(log),
        ModuleId::Stdio => print_counters::<Stdio>(log),
        ModuleId::H5f => print_counters::<H5f>(log),
        ModuleId::H5d => print_counters::<H5d>(log),
        ModuleId::PnetcdfFile => print_counters::<PnetcdfFile>(log),
        ModuleId::PnetcdfVar => print_counters::<PnetcdfVar>(log),
        ModuleId::Bgq => print_counters::<Bgq>(log),
        ModuleId::Dfs => print_counters::<Dfs>(log),
        ModuleId::Daos => print_counters::<Daos>(log),
        ModuleId::Lustre => print_records::<Lustre>(log, |r| (r.id, r.rank)),
        ModuleId::Heatmap => print_records::<Heatmap>(log, |r| (r.id, r.rank)),
        ModuleId::DxtPosix => print_records::<DxtPosix>(log, |r| (r.id, r.rank)),
        ModuleId::DxtMpiio => print_records::<DxtMpiio>(log, |r| (r.id, r.rank)),
        _ => {
            println!("  not decoded");
            None
        }
    }
}

fn name(log: &Log, id: u64) -> String {
    log.names.get(id).map_or_else(
        || format!("id {id}"),
        |name| name.escape_debug().to_string(),
    )
}

/// Prints the counters that are not 0, by name, and the module's rate.
fn print_counters<M: CounterModule>(log: &Log) -> Option<Error> {
    let (records, error) = log.readable_records::<M>();
    for record in &records {
        println!("  rank {}: {}", record.rank, name(log, record.id));
        let view = record.view();
        for (counter, value) in view
            .layout
            .counters
            .iter()
            .zip(view.counters)
            .filter(|(_, v)| **v != 0)
        {
            println!("    {counter} {value}");
        }
        for (counter, value) in view
            .layout
            .fcounters
            .iter()
            .zip(view.fcounters)
            .filter(|(_, v)| **v != 0.0)
        {
            println!("    {counter} {value:.6}");
        }
    }
    if let Ok(derived) = derive(records.into_iter().map(Ok), log.job.nprocs)
        && derived.agg_time_by_slowest > 0.0
    {
        let (rate, time) = (derived.agg_perf_by_slowest, derived.agg_time_by_slowest);
        println!(
            "  {rate:.2} MiB/s ({} bytes in {time:.6} s of the slowest ranks)",
            derived.total_bytes
        );
    }
    error
}

fn print_records<M: Module>(log: &Log, of: impl Fn(&M::Record) -> (u64, i64)) -> Option<Error>
where
    M::Record: std::fmt::Debug,
{
    let (records, error) = log.readable_records::<M>();
    for record in &records {
        let (id, rank) = of(record);
        println!("  rank {rank}: {}\n    {record:?}", name(log, id));
    }
    error
}
