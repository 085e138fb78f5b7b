//! What became of the collective calls on a file, for a reader: numbers, predicted lock conflicts of all methods, what was
//! chosen and why, and hints to copy.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use forebay_core::collective::{
    Arrangement, Extent, FileDomain, FileDomains, Groups, LayoutSource, LockTraffic, Method,
    Wishes, fitting_count, json_string, lock_traffic,
};
use forebay_types::OneLine;

/// Domains that a text lists; there may be thousands.
const MAX_DOMAINS: usize = 8;

/// What one process has done with the file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    /// Rounds of exchanges in which it had anything to do.
    pub rounds: u64,
    /// Reads and writes of the file.
    pub file_calls: u64,
    /// Nanoseconds in them.
    pub file_nanos: u64,
    /// Nanoseconds in which the rank waited for the file.
    pub waited_nanos: u64,
    /// Nanoseconds in all calls that this layer carried out.
    pub call_nanos: u64,
    /// The most bytes that its buffers took.
    pub buffer_bytes: u64,
    /// Its pieces in these calls, without those behind the end of a file that is read.
    pub pieces: u64,
    /// Bytes of them.
    pub piece_bytes: u64,
}

impl Meter {
    /// Has one read or write of the file done while the rank waits, and counts it.
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let before = self.file_nanos;
        let done = self.count(call);
        self.waited_nanos += self.file_nanos - before;
        done
    }

    /// Has one read or write of the file done, and counts it.
    pub fn count<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = call();
        self.file_nanos += begin.elapsed().as_nanos() as u64;
        self.file_calls += 1;
        done
    }

    /// Counts what a part of the work has counted.
    pub fn add(&mut self, part: Meter) {
        self.rounds += part.rounds;
        self.file_calls += part.file_calls;
        self.file_nanos += part.file_nanos;
        self.waited_nanos += part.waited_nanos;
        self.call_nanos += part.call_nanos;
        self.buffer_bytes = self.buffer_bytes.max(part.buffer_bytes);
        self.pieces += part.pieces;
        self.piece_bytes += part.piece_bytes;
    }

    /// Words of a message.
    pub const WORDS: usize = 8;

    /// Words for a message.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        [
            self.rounds,
            self.file_calls,
            self.file_nanos,
            self.waited_nanos,
            self.call_nanos,
            self.buffer_bytes,
            self.pieces,
            self.piece_bytes,
        ]
    }

    /// The meter in the words of a message.
    fn from_words(words: &[u64]) -> Self {
        Meter {
            rounds: words[0],
            file_calls: words[1],
            file_nanos: words[2],
            waited_nanos: words[3],
            call_nanos: words[4],
            buffer_bytes: words[5],
            pieces: words[6],
            piece_bytes: words[7],
        }
    }
}

/// What became of the calls of a file. All of it is the same on all ranks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Calls that aggregators carried out.
    pub exchanged: u64,
    /// Calls in which every rank read or wrote its own pieces.
    pub direct: u64,
    /// Calls left to the MPI library because that is as good.
    pub as_good: u64,
    /// Calls left to it in atomic mode.
    pub atomic: u64,
    /// Calls left to it because of what they are: types, views, arguments.
    pub unfit: u64,
    /// The part of the file of the largest exchange.
    pub largest: Option<Extent>,
}

impl Tally {
    /// Calls that this layer carried out.
    pub fn taken(&self) -> u64 {
        self.exchanged + self.direct
    }

    /// Calls that it left to the MPI library.
    pub fn left(&self) -> u64 {
        self.as_good + self.atomic + self.unfit
    }
}

/// All that is told of a file.
pub struct Explanation<'a> {
    /// Its path.
    pub path: &'a Path,
    /// How its calls are carried out; `None` if by the MPI library.
    pub arrangement: Option<&'a Arrangement>,
    /// What became of them.
    pub tally: Tally,
    /// Why the first of those that are unfit is, as far as rank 0 knows.
    pub why_unfit: Option<&'static str>,
    /// The meters of all ranks, as words one behind the other.
    pub meters: &'a [u64],
}

/// A method with its aggregators and what it does to the locks of the largest exchange.
struct Prediction {
    method: Method,
    aggregators: u32,
    traffic: Option<LockTraffic>,
}

/// Where the time of the slowest rank went.
struct Time {
    /// Seconds in calls.
    seconds: f64,
    /// The share of them in which the file was read or written, or waited for.
    file: f64,
    /// The share in which anything else was done.
    exchange: f64,
    /// The share in which both were.
    both: f64,
}

impl Explanation<'_> {
    fn meters(&self) -> impl Iterator<Item = Meter> + '_ {
        self.meters.chunks(Meter::WORDS).map(Meter::from_words)
    }

    fn sum(&self, of: fn(Meter) -> u64) -> u64 {
        self.meters().map(of).sum()
    }

    fn most(&self, of: fn(Meter) -> u64) -> u64 {
        self.meters().map(of).max().unwrap_or(0)
    }

    fn time(&self) -> Time {
        let slowest = self.meters().max_by_key(|meter| meter.call_nanos);
        let slowest = slowest.unwrap_or_default();
        let share = |nanos: u64| nanos as f64 / slowest.call_nanos.max(1) as f64;
        Time {
            seconds: slowest.call_nanos as f64 / 1e9,
            file: share(slowest.file_nanos.max(slowest.waited_nanos)),
            exchange: share(slowest.call_nanos.saturating_sub(slowest.waited_nanos)),
            both: share(slowest.file_nanos.saturating_sub(slowest.waited_nanos)),
        }
    }

    fn domains(&self) -> Option<FileDomains> {
        let arranged = self.arrangement?;
        let number = arranged.aggregators.len() as u32;
        Some(FileDomains::new(
            arranged.method,
            self.tally.largest?,
            number,
            arranged.layout,
        ))
    }

    fn predictions(&self) -> Vec<Prediction> {
        let (Some(arranged), Some(region)) = (self.arrangement, self.tally.largest) else {
            return Vec::new();
        };
        let available = arranged.aggregators.len() as u32;
        let predict = |method| {
            let aggregators = fitting_count(method, available, arranged.layout.servers);
            let domains = FileDomains::new(method, region, aggregators, arranged.layout);
            Prediction {
                method,
                aggregators,
                traffic: lock_traffic(&domains, arranged.protocol),
            }
        };
        let four = [
            Method::Even,
            Method::Aligned,
            Method::StaticCyclic,
            Method::GroupCyclic(Groups::Concurrent),
        ];
        four.into_iter().map(predict).collect()
    }

    /// Settings with which every run does the same.
    fn hints(&self) -> Option<String> {
        let arranged = self.arrangement?;
        Some(Wishes::repeating(arranged).in_hints())
    }

    /// For a terminal.
    pub fn to_text(&self) -> String {
        let path = self.path.to_string_lossy();
        let mut text = format!("forebay collective {}\n", OneLine(&path));
        let mut row = |name: &str, value: String| {
            // A string takes whatever is written to it.
            let _ = writeln!(text, "  {name:<10} {value}");
        };
        let tally = self.tally;
        let why = self.why_unfit.map(|why| format!(" ({why})"));
        row(
            "calls",
            format!(
                "{} carried out: {} by aggregators, {} by each rank for itself; {} left to the MPI library: {} as good there, {} in \
                 atomic mode, {} of a kind that is left{}",
                tally.taken(),
                tally.exchanged,
                tally.direct,
                tally.left(),
                tally.as_good,
                tally.atomic,
                tally.unfit,
                why.unwrap_or_default()
            ),
        );
        let Some(arranged) = self.arrangement else {
            let since = match tally.taken() {
                0 => "",
                _ => " in the end",
            };
            row(
                "chosen",
                format!("the MPI library: the file is left to it as a whole{since}"),
            );
            return text;
        };
        let (granule, servers) = (arranged.layout.granule_bytes, arranged.layout.servers);
        let [granule_is, servers_are] = arranged.layout_sources.map(LayoutSource::in_words);
        row(
            "locks",
            format!(
                "{}, {}; granule {granule} bytes, {granule_is}; servers {servers}, {servers_are}",
                arranged.protocol.name(),
                arranged.source.in_words(),
            ),
        );
        let for_none = match tally.exchanged {
            0 => "for calls by aggregators, of which there was none: ",
            _ => "",
        };
        row(
            "chosen",
            format!(
                "{for_none}{}, {} aggregators of {} ranks, buffers of {} bytes: {}",
                arranged.method.in_words(),
                arranged.aggregators.len(),
                self.meters().count(),
                arranged.buffer_bytes,
                arranged.reason
            ),
        );
        row(
            "moved",
            format!(
                "{} pieces, {} bytes, with {} reads and writes of the file in {} rounds; buffers of at most {} bytes",
                self.sum(|m| m.pieces),
                self.sum(|m| m.piece_bytes),
                self.sum(|m| m.file_calls),
                self.most(|m| m.rounds),
                self.most(|m| m.buffer_bytes)
            ),
        );
        let time = self.time();
        let both = match arranged.overlaps {
            true => format!(", both at once {:.0} %", 100.0 * time.both),
            false => String::new(),
        };
        row(
            "time",
            format!(
                "{:.6} s in calls on the slowest rank: file {:.0} %, exchange {:.0} %{both}",
                time.seconds,
                100.0 * time.file,
                100.0 * time.exchange
            ),
        );
        let domains = self.domains();
        let shown = domains.iter().flat_map(each_domain).take(MAX_DOMAINS);
        for (number, (domain, rank)) in shown.zip(&arranged.aggregators).enumerate() {
            let name = if number == 0 { "domains" } else { "" };
            let span = domain.span();
            let value = format!("{} bytes in {}..{}", domain.bytes(), span.start, span.end);
            row(name, format!("rank {rank}: {value}"));
        }
        let more = arranged.aggregators.len().saturating_sub(MAX_DOMAINS);
        if more > 0 && domains.is_some() {
            row("", format!("and {more} more"));
        }
        for (number, prediction) in self.predictions().iter().enumerate() {
            let name = if number == 0 { "conflicts" } else { "" };
            let method = prediction.method.in_words();
            let said = match prediction.traffic {
                Some(LockTraffic {
                    requests,
                    conflicts,
                }) => format!("at most {conflicts} of {requests} lock requests"),
                None => "not known".to_owned(),
            };
            row(
                name,
                format!(
                    "{method:<13} {said}, {} aggregators (predicted for a write)",
                    prediction.aggregators
                ),
            );
        }
        if let Some(hints) = self.hints() {
            row("hints", format!("FOREBAY_COLLECTIVE_HINTS=\"{hints}\""));
            // A path of several lines can't be in a policy.
            if OneLine(&path).to_string() == path {
                row("policy", format!("{path} {hints}"));
            }
        }
        text
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        let tally = self.tally;
        let time = self.time();
        let mut json = format!(
            "{{\"path\":{},\"ranks\":{},\"calls\":{{\"exchanged\":{},\"direct\":{},\"left_as_good\":{},\"left_atomic\":{},\"left_unfit\":{}}},\"left_unfit_because\":{},\
             \"pieces\":{},\"bytes\":{},\"file_calls\":{},\"rounds\":{},\"buffer_bytes\":{},\"seconds\":{},\"file_share\":{},\"overlap_share\":{}",
            json_string(&self.path.to_string_lossy()),
            self.meters().count(),
            tally.exchanged,
            tally.direct,
            tally.as_good,
            tally.atomic,
            tally.unfit,
            self.why_unfit.map_or("null".to_owned(), json_string),
            self.sum(|m| m.pieces),
            self.sum(|m| m.piece_bytes),
            self.sum(|m| m.file_calls),
            self.most(|m| m.rounds),
            self.most(|m| m.buffer_bytes),
            time.seconds,
            time.file,
            time.both
        );
        // A string takes whatever is written to it.
        if let Some(arranged) = self.arrangement {
            let _ = write!(
                json,
                ",\"method\":{},\"reason\":{},\"aggregators\":{:?},\"locks\":{},\"locks_known\":{},\"granule_bytes\":{},\"granule_known\":{},\
                 \"servers\":{},\"servers_known\":{},\"cb_buffer_size\":{}",
                json_string(arranged.method.in_words()),
                json_string(arranged.reason),
                arranged.aggregators,
                json_string(arranged.protocol.name()),
                json_string(arranged.source.in_words()),
                arranged.layout.granule_bytes,
                json_string(arranged.layout_sources[0].in_words()),
                arranged.layout.servers,
                json_string(arranged.layout_sources[1].in_words()),
                arranged.buffer_bytes
            );
        }
        let domains = self.domains();
        let domains = domains.iter().flat_map(each_domain).map(|domain| {
            let span = domain.span();
            format!(
                "{{\"bytes\":{},\"start\":{},\"end\":{}}}",
                domain.bytes(),
                span.start,
                span.end
            )
        });
        let _ = write!(
            json,
            ",\"domains\":[{}]",
            domains.collect::<Vec<_>>().join(",")
        );
        let predictions = self.predictions();
        let predictions = predictions.iter().map(|prediction| {
            let (requests, conflicts) = match prediction.traffic {
                Some(traffic) => (traffic.requests.to_string(), traffic.conflicts.to_string()),
                None => ("null".to_owned(), "null".to_owned()),
            };
            let method = json_string(prediction.method.in_words());
            let aggregators = prediction.aggregators;
            format!(
                "{{\"method\":{method},\"aggregators\":{aggregators},\"requests\":{requests},\"conflicts\":{conflicts}}}"
            )
        });
        let _ = write!(
            json,
            ",\"predicted\":[{}]",
            predictions.collect::<Vec<_>>().join(",")
        );
        if let Some(hints) = self.hints() {
            let _ = write!(json, ",\"hints\":{}", json_string(&hints));
        }
        json + "}\n"
    }
}

fn each_domain(domains: &FileDomains) -> impl Iterator<Item = FileDomain> + '_ {
    (0..domains.aggregators()).map(|number| domains.domain(number))
}
