//! What concerns simulators.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    pub what: SimVerb,
}

#[derive(Debug, Subcommand)]
pub enum SimVerb {
    /// Simulate drops, delays, crashes and restarts, and check that the policy keeps the promises of SEMANTICS.md.
    #[command(
        after_help = "Examples:\n  forebay sim faults --seeds 2000\n  forebay sim faults --first 1234 --seeds 1 --trace"
    )]
    Faults {
        /// Number of seeds.
        #[arg(long, value_name = "N", default_value_t = 200)]
        seeds: u64,
        /// The first seed.
        #[arg(long, value_name = "SEED", default_value_t = 1)]
        first: u64,
        /// Number of bridges. Default: the seed decides.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4))]
        bridges: Option<u32>,
        /// Number of clients. Default: the seed decides.
        #[arg(long, value_name = "N")]
        clients: Option<usize>,
        /// Operations of each client. Default: the seed decides.
        #[arg(long, value_name = "N")]
        steps: Option<u32>,
        /// Kinds of faults to leave out, separated by commas.
        #[arg(long, value_name = "KINDS")]
        calm: Option<String>,
        /// Print everything that happens, not only what concerns a broken promise.
        #[arg(long)]
        trace: bool,
        /// A planted bug that the simulator has to find.
        #[cfg(feature = "planted-bugs")]
        #[arg(long, value_name = "NAME")]
        mutation: Option<String>,
    },
    /// Let programs in a buffer and a neighbour on the PFS change one tree, step after step, and check that nothing of either is lost.
    #[command(
        after_help = "Examples:\n  forebay sim neighbours --seeds 20000\n  forebay sim neighbours --seed 17 --seeds 1\n  forebay sim neighbours --script 'start d/ d/a; rename d/a x; they write d/a; drain keep'"
    )]
    Neighbours {
        /// Number of seeds: one script each.
        #[arg(long, value_name = "N", default_value_t = 20_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, value_name = "SEED", default_value_t = 1)]
        seed: u64,
        /// Run this script instead, whose steps have semicolons between them.
        #[arg(long, value_name = "TEXT", conflicts_with_all = ["seeds", "seed"])]
        script: Option<String>,
        /// A planted bug that the simulator has to find.
        #[cfg(feature = "planted-bugs")]
        #[arg(long, value_name = "NAME")]
        mutation: Option<String>,
    },
    /// Run collective I/O on modelled machines with several kinds of locks: figures 4 to 7 of the SC'08 paper as tables, or the
    /// collective calls of a program.
    #[command(
        after_help = "Examples:\n  forebay sim collective --figure 4 --svg figure4.svg\n  forebay sim collective --print-parameters > mine.txt\n  forebay sim collective --parameters mine.txt\n  \
                      forebay run --collective --trace calls.json --buffer /pfs/me -- mpirun -n 8 ./sim\n  \
                      forebay sim collective --trace calls.json --processes 64,512 --svg calls.svg\n\ndocs/COLLECTIVE.md says what the figures show and what they do not."
    )]
    Collective {
        /// Only these figures. Default: all of the parameters.
        #[arg(long = "figure", value_name = "NAME")]
        figures: Vec<String>,
        /// Other machines and figures than those that are compiled in.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        parameters: Option<PathBuf>,
        /// Replay the collective calls that `forebay run --collective --trace FILE` has captured, instead of figures: by all
        /// methods, under all lock managers, with as many processes as they had and with more. Each process has as many bytes
        /// as one that was captured; the output says by which pattern.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "figures")]
        trace: Option<PathBuf>,
        /// With --trace: these numbers of processes, after the captured one. Default: 4, 16 and 64 times as many, up to 1024.
        #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "trace", value_parser = clap::value_parser!(u32).range(1..))]
        processes: Vec<u32>,
        /// With --trace: only calls like that in this line. Default: the eight kinds of calls with the most bytes.
        #[arg(long, value_name = "LINE", requires = "trace")]
        line: Option<usize>,
        /// With --trace: the machine, by its name in the parameters. Default: that of their first figure.
        #[arg(long, value_name = "NAME", requires = "trace")]
        system: Option<String>,
        /// Draw the figures into this file as well.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        svg: Option<PathBuf>,
        /// Print the parameters that are compiled in, with their sources, and end.
        #[arg(long, exclusive = true)]
        print_parameters: bool,
    },
}
