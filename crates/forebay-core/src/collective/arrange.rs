//! Settings of a file, as hints and the environment give them, and the arrangement that follows from them.

use super::{
    Groups, Layout, LockProtocol, MeasuredLocks, Method, Situation, Striping, aggregators, choose,
    fitting_count, protocol_of,
};
use crate::pfs_kind;

/// What a program or user asks for. `None` where nobody said anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    /// Which calls to take over (`forebay_collective`).
    pub take_over: TakeOver,
    /// ROMIO was told to do without collective buffering, or not to, for writes and for reads (`romio_cb_write`, `romio_cb_read`).
    pub romio_is_off: [Option<bool>; 2],
    /// The most aggregators (`cb_nodes`).
    pub aggregators: Option<u32>,
    /// The most aggregators on a node (`cb_config_list = *:N`).
    pub per_node: Option<u32>,
    /// Bytes of an aggregator's buffer (`cb_buffer_size`).
    pub buffer_bytes: Option<u64>,
    /// Bytes of a stripe (`striping_unit`).
    pub stripe_bytes: Option<u64>,
    /// Servers of the file (`striping_factor`).
    pub servers: Option<u32>,
    /// The file-domain method (`forebay_partition`, `forebay_groups`).
    pub method: Option<Method>,
    /// The locks of the file system (`forebay_locks`).
    pub locks: Option<LockProtocol>,
    /// Reads and writes beside the exchange (`forebay_overlap`).
    pub overlaps: Option<bool>,
}

/// Which calls are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeOver {
    /// Those for which it is worth it.
    #[default]
    Auto,
    /// None.
    Off,
    /// All that can be.
    Always,
}

impl TakeOver {
    const ALL: [TakeOver; 3] = [TakeOver::Auto, TakeOver::Off, TakeOver::Always];

    fn in_words(self) -> &'static str {
        match self {
            TakeOver::Auto => "auto",
            TakeOver::Off => "off",
            TakeOver::Always => "always",
        }
    }
}

/// The names of all settings that [`Wishes::set`] knows.
pub const SETTINGS: [&str; 12] = [
    "forebay_collective",
    "romio_cb_read",
    "romio_cb_write",
    "cb_nodes",
    "cb_config_list",
    "cb_buffer_size",
    "striping_unit",
    "striping_factor",
    "forebay_partition",
    "forebay_groups",
    "forebay_locks",
    "forebay_overlap",
];

impl Wishes {
    /// Takes over one setting. A name or value that makes no sense is left out, as MPI does with hints.
    pub fn set(&mut self, name: &str, value: &str) {
        let value = value.trim();
        let number = || value.parse::<u64>().ok().filter(|&n| n > 0);
        let count = || number().map(|n| n.min(u32::MAX.into()) as u32);
        match name {
            "forebay_collective" => {
                let named = TakeOver::ALL.into_iter().find(|it| it.in_words() == value);
                self.take_over = named.unwrap_or(self.take_over);
            }
            "romio_cb_write" | "romio_cb_read" => {
                let is_off = match value {
                    "disable" => Some(true),
                    "enable" | "automatic" => Some(false),
                    _ => None,
                };
                let which = &mut self.romio_is_off[usize::from(name == "romio_cb_read")];
                *which = is_off.or(*which);
            }
            "cb_nodes" => self.aggregators = count().or(self.aggregators),
            "cb_config_list" => {
                let all = value.strip_prefix("*:").map(str::trim);
                let number = all.and_then(|n| match n {
                    "*" => Some(u32::MAX),
                    n => n.parse().ok().filter(|&n| n > 0),
                });
                self.per_node = number.or(self.per_node);
            }
            "cb_buffer_size" => self.buffer_bytes = number().or(self.buffer_bytes),
            "striping_unit" => self.stripe_bytes = number().or(self.stripe_bytes),
            "striping_factor" => self.servers = count().or(self.servers),
            "forebay_partition" => {
                self.method = match value {
                    "even" => Some(Method::Even),
                    "aligned" => Some(Method::Aligned),
                    "static-cyclic" => Some(Method::StaticCyclic),
                    "group-cyclic" => Some(Method::GroupCyclic(Groups::Concurrent)),
                    _ => self.method,
                }
            }
            "forebay_overlap" => {
                self.overlaps = match value {
                    "enable" => Some(true),
                    "disable" => Some(false),
                    _ => self.overlaps,
                }
            }
            "forebay_locks" => self.locks = LockProtocol::named(value).or(self.locks),
            "forebay_groups" => {
                if let Some(Method::GroupCyclic(groups)) = &mut self.method {
                    match value {
                        "sequential" => *groups = Groups::Sequential,
                        "concurrent" => *groups = Groups::Concurrent,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

impl Wishes {
    /// Leaves out how the file should lie on the servers, where the file system tells how it does. To be called with the hints
    /// of the program alone: they count when a file is made, and this one may have been made before. Tells whether any was left out.
    pub fn yield_to(&mut self, told: Option<Striping>) -> bool {
        let before = *self;
        if let Some(told) = told {
            self.stripe_bytes = None;
            self.servers = self.servers.filter(|_| told.servers.is_none());
        }
        *self != before
    }

    /// Is nothing to be taken over? What was asked of this layer itself comes first.
    pub fn is_off(&self) -> bool {
        match self.take_over {
            TakeOver::Auto => self.romio_is_off.contains(&Some(true)),
            said => said == TakeOver::Off,
        }
    }

    /// What to ask for so that a file is arranged like this again.
    pub fn repeating(arranged: &Arrangement) -> Self {
        Wishes {
            take_over: match arranged.always {
                true => TakeOver::Always,
                false => TakeOver::Auto,
            },
            aggregators: Some(arranged.aggregators.len() as u32),
            per_node: Some(arranged.per_node),
            buffer_bytes: Some(arranged.buffer_bytes),
            stripe_bytes: Some(arranged.layout.granule_bytes),
            servers: Some(arranged.layout.servers),
            method: Some(arranged.method),
            locks: Some(arranged.protocol),
            overlaps: Some(arranged.overlaps),
            ..Wishes::default()
        }
    }

    /// As settings, `name=value;name=value`.
    pub fn in_hints(&self) -> String {
        let mut all: Vec<(&str, String)> = Vec::new();
        let take_over = if self.is_off() {
            TakeOver::Off
        } else {
            self.take_over
        };
        if take_over != TakeOver::Auto {
            all.push(("forebay_collective", take_over.in_words().to_owned()));
        }
        if let Some(method) = self.method {
            let (name, groups) = match method {
                Method::GroupCyclic(Groups::Sequential) => ("group-cyclic", Some("sequential")),
                Method::GroupCyclic(Groups::Concurrent) => ("group-cyclic", Some("concurrent")),
                method => (method.in_words(), None),
            };
            all.push(("forebay_partition", name.to_owned()));
            all.extend(groups.map(|groups| ("forebay_groups", groups.to_owned())));
        }
        let nodes = |n: u32| match n {
            u32::MAX => "*:*".to_owned(),
            n => format!("*:{n}"),
        };
        let overlaps = |is: bool| if is { "enable" } else { "disable" };
        let settings = [
            (
                "forebay_overlap",
                self.overlaps.map(|is| overlaps(is).to_owned()),
            ),
            ("forebay_locks", self.locks.map(|l| l.name().to_owned())),
            ("cb_nodes", self.aggregators.map(|n| n.to_string())),
            ("cb_config_list", self.per_node.map(nodes)),
            ("cb_buffer_size", self.buffer_bytes.map(|n| n.to_string())),
            ("striping_unit", self.stripe_bytes.map(|n| n.to_string())),
            ("striping_factor", self.servers.map(|n| n.to_string())),
        ];
        all.extend(
            settings
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let each = all.iter().map(|(name, value)| format!("{name}={value}"));
        each.collect::<Vec<_>>().join(";")
    }

    /// Takes over settings of the form `name=value;name=value`.
    pub fn set_all(&mut self, hints: &str) {
        for (name, value) in hints.split(';').filter_map(|hint| hint.split_once('=')) {
            self.set(name.trim(), value);
        }
    }

    /// Takes over what a policy says of a file: lines with a path and settings. A line is about the file with this path, and
    /// about all below it; `*` is about every file. Later lines go over earlier ones. `#` begins a comment.
    pub fn set_by_policy(&mut self, policy: &str, path: &str) {
        for line in policy.lines().map(str::trim) {
            // A path may have blanks, settings have none.
            let Some((of, hints)) = line.rsplit_once(char::is_whitespace) else {
                continue;
            };
            let of = of.trim_end().trim_end_matches('/');
            let below = || path.strip_prefix(of);
            let is_about = of == "*" || below().is_some_and(|b| b.is_empty() || b.starts_with('/'));
            if is_about && !line.starts_with('#') {
                self.set_all(hints);
            }
        }
    }
}

/// What stands for "nobody said anything" in [`Wishes::to_words`].
const UNSAID: u64 = u64::MAX;

impl Wishes {
    /// Words for a message to processes that have not been asked.
    pub fn to_words(&self) -> [u64; 8] {
        let method = |m| {
            Method::ALL
                .iter()
                .position(|&other| other == m)
                .map(|at| at as u64)
        };
        let small = |n: Option<u32>| n.map_or(UNSAID, u64::from);
        let bits = |said: Option<bool>| said.map_or(0, |said| 2 | u64::from(said));
        [
            u64::from(self.take_over == TakeOver::Off)
                | u64::from(self.take_over == TakeOver::Always) << 1
                | u64::from(self.overlaps == Some(true)) << 2
                | u64::from(self.overlaps == Some(false)) << 3
                | bits(self.romio_is_off[0]) << 4
                | bits(self.romio_is_off[1]) << 6,
            small(self.aggregators),
            small(self.per_node),
            self.buffer_bytes.unwrap_or(UNSAID),
            self.stripe_bytes.unwrap_or(UNSAID),
            small(self.servers),
            self.method.and_then(method).unwrap_or(UNSAID),
            self.locks.map_or(UNSAID, LockProtocol::number),
        ]
    }

    /// The wishes that [`Wishes::to_words`] made words of.
    pub fn from_words(words: &[u64]) -> Self {
        let word = |at: usize| words.get(at).copied().filter(|&w| w != UNSAID);
        let small = |at| word(at).map(|w| w as u32);
        let is_set = |bit: u32| word(0).is_some_and(|w| w >> bit & 1 != 0);
        Wishes {
            take_over: match (is_set(0), is_set(1)) {
                (true, _) => TakeOver::Off,
                (false, true) => TakeOver::Always,
                (false, false) => TakeOver::Auto,
            },
            romio_is_off: [4, 6].map(|bit| is_set(bit + 1).then_some(is_set(bit))),
            overlaps: is_set(2).then_some(true).or(is_set(3).then_some(false)),
            aggregators: small(1),
            per_node: small(2),
            buffer_bytes: word(3),
            stripe_bytes: word(4),
            servers: small(5),
            method: word(6).and_then(|at| Method::ALL.get(at as usize).copied()),
            locks: word(7).and_then(LockProtocol::numbered),
        }
    }
}

/// Where the locks of a file system are known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockSource {
    /// Somebody has said so.
    Asked,
    /// `forebay probe` has measured them.
    Measured,
    /// The type of the file system.
    Type,
}

impl LockSource {
    /// All of them.
    pub const ALL: [LockSource; 3] = [LockSource::Asked, LockSource::Measured, LockSource::Type];

    /// For a report.
    pub fn in_words(self) -> &'static str {
        match self {
            LockSource::Asked => "asked for",
            LockSource::Measured => "measured",
            LockSource::Type => "by the type of the file system",
        }
    }
}

/// Where the granule or the servers of a file are known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutSource {
    /// Somebody has said so.
    Asked,
    /// The file system tells it of this file.
    Told,
    /// `forebay probe` has measured it on this mount.
    Measured,
    /// Nobody knows.
    Assumed,
}

impl LayoutSource {
    /// For a report.
    pub fn in_words(self) -> &'static str {
        match self {
            LayoutSource::Asked => "asked for",
            LayoutSource::Told => "of the file",
            LayoutSource::Measured => "measured",
            LayoutSource::Assumed => "assumed",
        }
    }
}

/// What is known of the file system of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PfsFacts {
    /// `statfs.f_type`.
    pub fs_type: i64,
    /// What it tells of the file.
    pub striping: Option<Striping>,
    /// What `forebay probe` has measured.
    pub measured: Option<MeasuredLocks>,
}

impl PfsFacts {
    /// A file system of which no more than its `statfs.f_type` is known.
    pub fn of_type(fs_type: i64) -> Self {
        PfsFacts {
            fs_type,
            ..Self::default()
        }
    }
}

/// The first of these that is known, and where from.
fn first_known<T>(
    asked: Option<T>,
    told: Option<T>,
    measured: Option<T>,
    assumed: T,
) -> (T, LayoutSource) {
    let known = [
        (asked, LayoutSource::Asked),
        (told, LayoutSource::Told),
        (measured, LayoutSource::Measured),
    ];
    let mut known = known
        .into_iter()
        .filter_map(|(value, source)| Some((value?, source)));
    known.next().unwrap_or((assumed, LayoutSource::Assumed))
}

/// How the collective calls on a file are carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    /// The file-domain method.
    pub method: Method,
    /// The ranks that are aggregators, ascending.
    pub aggregators: Vec<u32>,
    /// So many of them one node may have.
    pub per_node: u32,
    /// How the file lies on the servers.
    pub layout: Layout,
    /// Where its granule and its servers are known from.
    pub layout_sources: [LayoutSource; 2],
    /// Bytes that an aggregator handles in a round.
    pub buffer_bytes: u64,
    /// Whether every call is to be taken over that can be.
    pub always: bool,
    /// The file system is one of this node, and has no locks between clients.
    pub is_free: bool,
    /// An aggregator reads and writes beside the exchange, with a second buffer. Only where that is asked for: without an idle processor
    /// the thread takes one from those that it exchanges with.
    pub overlaps: bool,
    /// The locks of the file system.
    pub protocol: LockProtocol,
    /// Where they are known from.
    pub source: LockSource,
    /// Why this method.
    pub reason: &'static str,
}

impl Arrangement {
    /// Buffers are 16 MiB unless somebody asks for another size, as in ROMIO.
    pub const BUFFER_BYTES: u64 = 16 << 20;
    /// The largest buffer: lengths of messages are signed 32-bit numbers.
    pub const MAX_BUFFER_BYTES: u64 = 1 << 30;
    /// The granule of a file system that does not tell: 1 MiB. On one of this node, which has no locks, it is a page, so that small
    /// regions have several aggregators, too.
    const GRANULE_BYTES: u64 = 1 << 20;
    /// A page: no file system locks less. A list of smaller granules could become too long.
    const LEAST_GRANULE_BYTES: u64 = 4096;

    /// Aggregators on a node whose file system has no locks to share, by default. More only take the processors of the program.
    const MAX_LOCAL_AGGREGATORS: u32 = 4;

    /// Arranges a file, `nodes[i]` being the node of rank `i`. Each node has so many processors, as far as is known.
    ///
    /// # Panics
    /// If there is no process.
    pub fn new(wishes: &Wishes, pfs: PfsFacts, nodes: &[u32], processors: u32) -> Self {
        let PfsFacts {
            fs_type,
            striping,
            measured,
        } = pfs;
        let (protocol, source) = match (wishes.locks, measured) {
            (Some(protocol), _) => (protocol, LockSource::Asked),
            (None, Some(measured)) => (measured.protocol_on(fs_type), LockSource::Measured),
            (None, None) => (protocol_of(fs_type), LockSource::Type),
        };
        let is_free = protocol == LockProtocol::None && !pfs_kind::may_wait(fs_type);
        let (granule, granule_source) = first_known(
            wishes.stripe_bytes,
            striping.map(|s| s.stripe_bytes),
            measured.and_then(|m| m.granule_bytes),
            match is_free {
                true => Self::LEAST_GRANULE_BYTES,
                false => Self::GRANULE_BYTES,
            },
        );
        let (servers, servers_source) = first_known(
            wishes.servers,
            striping.and_then(|s| s.servers),
            measured.and_then(|m| m.servers),
            1,
        );
        let layout = Layout::new(
            granule.clamp(Self::LEAST_GRANULE_BYTES, Layout::MAX_GRANULE_BYTES),
            servers,
        );
        let default = match is_free {
            true => processors.clamp(1, Self::MAX_LOCAL_AGGREGATORS),
            false => 1,
        };
        let per_node = wishes.per_node.unwrap_or(default);
        let most = wishes.aggregators.unwrap_or(u32::MAX);
        let available = aggregators(nodes, per_node, most).len() as u32;
        let (method, number, reason) = match wishes.method {
            Some(method) => (
                method,
                fitting_count(method, available, layout.servers),
                "it was asked for",
            ),
            None => {
                let choice = choose(&Situation {
                    protocol,
                    aggregators: available,
                    layout,
                    knows_servers: servers_source != LayoutSource::Assumed,
                });
                (choice.method, choice.aggregators, choice.reason)
            }
        };
        let buffer = wishes.buffer_bytes.unwrap_or(Self::BUFFER_BYTES);
        Arrangement {
            method,
            aggregators: aggregators(nodes, per_node, number),
            per_node,
            layout,
            layout_sources: [granule_source, servers_source],
            buffer_bytes: buffer.clamp(1, Self::MAX_BUFFER_BYTES),
            always: wishes.take_over == TakeOver::Always,
            is_free,
            overlaps: wishes.overlaps.unwrap_or(false),
            protocol,
            source,
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pfs_kind::FUSE;

    const EXT4: i64 = 0xef53;
    const LUSTRE: i64 = 0x0bd0_0bd0;

    const MEASURED: MeasuredLocks = MeasuredLocks {
        protocol: LockProtocol::ServerSide,
        granule_bytes: Some(1 << 18),
        servers: Some(2),
        write_nanos: 1,
        handover_nanos: 1,
    };

    #[test]
    fn hints_are_kept_and_nonsense_is_not() {
        let mut wishes = Wishes::default();
        for (name, value) in [
            ("forebay_collective", "always"),
            ("forebay_collective", "perhaps"),
            ("cb_nodes", "3"),
            ("cb_nodes", "many"),
            ("cb_config_list", "*:2"),
            ("cb_buffer_size", " 4096 "),
            ("forebay_partition", "group-cyclic"),
            ("forebay_groups", "sequential"),
            ("striping_unit", "-4"),
            ("forebay_overlap", "enable"),
            ("forebay_overlap", "maybe"),
            ("colour", "blue"),
        ] {
            wishes.set(name, value);
        }
        let expected = Wishes {
            take_over: TakeOver::Always,
            aggregators: Some(3),
            per_node: Some(2),
            buffer_bytes: Some(4096),
            method: Some(Method::GroupCyclic(Groups::Sequential)),
            overlaps: Some(true),
            ..Wishes::default()
        };
        assert_eq!(wishes, expected);
        assert_eq!(Wishes::from_words(&wishes.to_words()), wishes);
        wishes.set("forebay_overlap", "disable");
        assert_eq!(Wishes::from_words(&wishes.to_words()).overlaps, Some(false));
    }

    #[test]
    fn what_is_asked_of_the_layer_itself_comes_before_what_is_asked_of_romio_in_any_order() {
        for (value, is_off) in [("auto", true), ("off", true), ("always", false)] {
            let mut settings = [("forebay_collective", value), ("romio_cb_write", "disable")];
            for _ in 0..2 {
                let mut wishes = Wishes::default();
                settings
                    .iter()
                    .for_each(|(name, value)| wishes.set(name, value));
                assert_eq!(wishes.is_off(), is_off, "{settings:?}");
                assert_eq!(Wishes::from_words(&wishes.to_words()), wishes);
                settings.reverse();
            }
        }
        // The last word counts.
        let mut wishes = Wishes::default();
        for (value, is_off) in [("disable", true), ("perhaps", true), ("enable", false)] {
            wishes.set("romio_cb_read", value);
            assert_eq!(wishes.is_off(), is_off, "{value}");
            assert_eq!(Wishes::from_words(&wishes.to_words()), wishes);
        }
    }

    #[test]
    fn what_was_arranged_can_be_asked_for_again() {
        let cases = Method::ALL.into_iter().flat_map(|method| {
            [
                (method, None, [0, 1, 2, 3]),
                (method, Some(2), [0, 0, 1, 1]),
            ]
        });
        for (method, per_node, nodes) in cases {
            let wishes = Wishes {
                method: Some(method),
                per_node,
                servers: Some(2),
                overlaps: Some(method == Method::Even),
                ..Wishes::default()
            };
            let first = Arrangement::new(&wishes, PfsFacts::of_type(LUSTRE), &nodes, 1);
            let mut again = Wishes::default();
            again.set_all(&Wishes::repeating(&first).in_hints());
            let second = Arrangement::new(&again, PfsFacts::of_type(LUSTRE), &nodes, 1);
            let comparable = |a: &Arrangement| {
                (
                    a.method,
                    a.aggregators.clone(),
                    a.layout,
                    a.buffer_bytes,
                    a.protocol,
                    a.overlaps,
                )
            };
            assert_eq!(comparable(&first), comparable(&second));
        }
        let wishes = Wishes {
            take_over: TakeOver::Off,
            per_node: Some(u32::MAX),
            ..Wishes::default()
        };
        assert_eq!(
            wishes.in_hints(),
            "forebay_collective=off;cb_config_list=*:*"
        );
    }

    #[test]
    fn a_policy_is_about_paths_and_later_lines_go_over_earlier_ones() {
        let policy = "# for all\n* cb_nodes=8\n\n/pfs/my run/ cb_nodes=4;striping_unit=4096\n/pfs/my run/big.dat\tcb_nodes=2\nnonsense\n#* cb_nodes=1";
        let of = |path| {
            let mut wishes = Wishes::default();
            wishes.set_by_policy(policy, path);
            (wishes.aggregators, wishes.stripe_bytes)
        };
        assert_eq!(of("/elsewhere"), (Some(8), None));
        assert_eq!(of("/pfs/my run/x/y"), (Some(4), Some(4096)));
        assert_eq!(of("/pfs/my run/big.dat"), (Some(2), Some(4096)));
        assert_eq!(of("/pfs/my runs/x"), (Some(8), None));
    }

    #[test]
    fn a_node_has_one_aggregator_where_locks_are_shared() {
        let nodes = [0, 0, 0, 1, 1, 1];
        let on = |fs_type| {
            let pfs = PfsFacts::of_type(fs_type);
            Arrangement::new(&Wishes::default(), pfs, &nodes, 2).aggregators
        };
        assert_eq!(on(LUSTRE), [0, 3]);
        assert_eq!(on(EXT4), [0, 1, 3, 4]);
    }

    #[test]
    fn what_was_measured_goes_over_the_type_and_what_is_asked_for_over_both() {
        let nodes = [0, 1, 2, 3];
        let pfs = PfsFacts {
            measured: Some(MEASURED),
            ..PfsFacts::of_type(FUSE)
        };
        let on = |wishes: &Wishes| Arrangement::new(wishes, pfs, &nodes, 1);
        let arranged = on(&Wishes::default());
        assert_eq!(arranged.source, LockSource::Measured);
        assert_eq!(arranged.layout, Layout::new(1 << 18, 2));
        assert_eq!(arranged.method, Method::GroupCyclic(Groups::Sequential));
        let mut wishes = Wishes::default();
        wishes.set("forebay_locks", "token");
        wishes.set("forebay_locks", "nonsense");
        wishes.set("striping_unit", "4096");
        assert_eq!(Wishes::from_words(&wishes.to_words()), wishes);
        let arranged = on(&wishes);
        assert_eq!(arranged.source, LockSource::Asked);
        assert_eq!(arranged.layout, Layout::new(4096, 2));
        assert_eq!(arranged.method, Method::Aligned);
    }

    #[test]
    fn a_probe_of_files_of_one_stripe_says_nothing_of_files_with_more() {
        for protocol in [LockProtocol::ClientToken, LockProtocol::WholeFile] {
            let on = |fs_type| {
                let measured = Some(MeasuredLocks {
                    protocol,
                    servers: None,
                    ..MEASURED
                });
                let pfs = PfsFacts {
                    measured,
                    ..PfsFacts::of_type(fs_type)
                };
                Arrangement::new(&Wishes::default(), pfs, &[0, 1, 2, 3], 1).protocol
            };
            assert_eq!(on(LUSTRE), LockProtocol::ServerSide);
            assert_eq!(on(FUSE), protocol);
        }
    }

    #[test]
    fn what_the_file_system_tells_of_a_file_goes_over_what_was_measured_and_over_hints_of_the_program()
     {
        let told = Striping {
            stripe_bytes: 1 << 22,
            servers: Some(4),
        };
        let pfs = PfsFacts {
            striping: Some(told),
            measured: Some(MEASURED),
            ..PfsFacts::of_type(LUSTRE)
        };
        let arrange = |wishes: &Wishes, pfs| Arrangement::new(wishes, pfs, &[0, 1, 2, 3], 1);
        let mut hints = Wishes {
            stripe_bytes: Some(4096),
            servers: Some(9),
            aggregators: Some(4),
            ..Wishes::default()
        };
        hints.yield_to(Some(told));
        let arranged = arrange(&hints, pfs);
        assert_eq!(arranged.layout, Layout::new(1 << 22, 4));
        assert_eq!(arranged.layout_sources, [LayoutSource::Told; 2]);
        assert_eq!(arranged.aggregators.len(), 4);
        // A policy or the environment is asked for by somebody who knows.
        hints.set("striping_factor", "2");
        let arranged = arrange(&hints, pfs);
        assert_eq!(arranged.layout, Layout::new(1 << 22, 2));
        let sources = [LayoutSource::Told, LayoutSource::Asked];
        assert_eq!(arranged.layout_sources, sources);
        // GPFS tells its block, and no servers.
        let block = Striping {
            servers: None,
            ..told
        };
        let pfs = PfsFacts {
            striping: Some(block),
            ..pfs
        };
        let mut hints = Wishes {
            servers: Some(9),
            ..Wishes::default()
        };
        hints.yield_to(Some(block));
        assert_eq!(arrange(&hints, pfs).layout, Layout::new(1 << 22, 9));
        let of_mount = arrange(&Wishes::default(), pfs);
        assert_eq!(of_mount.layout, Layout::new(1 << 22, 2));
        let nothing = PfsFacts::of_type(LUSTRE);
        let assumed = arrange(&Wishes::default(), nothing);
        assert_eq!(assumed.layout_sources, [LayoutSource::Assumed; 2]);
    }

    /// Groups of one aggregator each would write one after the other.
    #[test]
    fn locks_on_servers_of_which_nobody_tells_the_number_make_no_groups() {
        let nodes = [0, 1, 2, 3];
        let on = |wishes: &Wishes, pfs| Arrangement::new(wishes, pfs, &nodes, 1);
        let measured = PfsFacts {
            measured: Some(MeasuredLocks {
                servers: None,
                ..MEASURED
            }),
            ..PfsFacts::of_type(FUSE)
        };
        let mut asked = Wishes::default();
        asked.set("forebay_locks", "server");
        let cases = [
            (Wishes::default(), PfsFacts::of_type(LUSTRE)),
            (Wishes::default(), measured),
            (asked, PfsFacts::of_type(FUSE)),
        ];
        for (mut wishes, pfs) in cases {
            let arranged = on(&wishes, pfs);
            assert_eq!(arranged.protocol, LockProtocol::ServerSide);
            assert_eq!(arranged.method, Method::Aligned);
            assert_eq!(arranged.aggregators, nodes);
            wishes.set("striping_factor", "1");
            assert_eq!(
                on(&wishes, pfs).method,
                Method::GroupCyclic(Groups::Sequential)
            );
        }
    }

    #[test]
    fn what_is_asked_for_is_done() {
        let wishes = Wishes {
            aggregators: Some(4),
            per_node: Some(8),
            stripe_bytes: Some(4096),
            servers: Some(2),
            method: Some(Method::StaticCyclic),
            ..Wishes::default()
        };
        let arranged = Arrangement::new(&wishes, PfsFacts::of_type(EXT4), &[0; 5], 1);
        assert_eq!(arranged.aggregators, [0, 1, 2, 3]);
        assert_eq!(arranged.method, Method::StaticCyclic);
        assert_eq!(arranged.layout, Layout::new(4096, 2));
    }
}
