//! File domains: which aggregator has which bytes of the aggregate access region.
//!
//! The four methods are those of Liao and Choudhary (SC'08). Every domain is the part of one span that lies in every
//! `cycle`-th block, which covers contiguous domains (a cycle of one) and cyclic ones alike.

use super::Extent;

/// How a file lies on the I/O servers. Granule number `offset / granule_bytes` is on server `number % servers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The unit of locks in bytes, which is the stripe as well.
    pub granule_bytes: u64,
    /// I/O servers of the file.
    pub servers: u32,
}

impl Layout {
    /// The largest granule in bytes.
    pub const MAX_GRANULE_BYTES: u64 = 1 << 30;

    /// A file with this granule on so many servers.
    ///
    /// # Panics
    /// If the granule is 0 or larger than [`Self::MAX_GRANULE_BYTES`], or there is no server.
    pub fn new(granule_bytes: u64, servers: u32) -> Self {
        assert!(
            (1..=Self::MAX_GRANULE_BYTES).contains(&granule_bytes),
            "no granule: {granule_bytes} bytes"
        );
        assert!(servers > 0, "a file lies on at least one server");
        Layout {
            granule_bytes,
            servers,
        }
    }

    /// The granule that holds an offset.
    pub fn granule_of(self, offset: u64) -> u64 {
        offset / self.granule_bytes
    }

    /// The server that holds an offset.
    pub fn server_of(self, offset: u64) -> u32 {
        (self.granule_of(offset) % u64::from(self.servers)) as u32
    }
}

/// When the groups of a group-cyclic call do their I/O. The domains are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Groups {
    /// A group begins when the one before has finished, as the paper describes: a server has one client at a time.
    Sequential,
    /// All groups at once.
    Concurrent,
}

/// How the aggregate access region is divided among the aggregators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Equal contiguous parts. Neighbours may share a granule.
    Even,
    /// Equal contiguous parts with their inner ends moved to the nearest granule boundary. No granule is shared.
    Aligned,
    /// Granule `k` of the file belongs to aggregator `k % aggregators`, in every call.
    StaticCyclic,
    /// Groups of as many aggregators as there are servers; each group has a contiguous aligned part, and is cyclic in
    /// it such that an aggregator meets one server only. With no more aggregators than servers it is static-cyclic.
    GroupCyclic(Groups),
}

impl Method {
    /// All methods, in the order of the paper.
    pub const ALL: [Method; 5] = [
        Method::Even,
        Method::Aligned,
        Method::StaticCyclic,
        Method::GroupCyclic(Groups::Concurrent),
        Method::GroupCyclic(Groups::Sequential),
    ];

    /// Its name in reports.
    pub fn in_words(self) -> &'static str {
        match self {
            Method::Even => "even",
            Method::Aligned => "aligned",
            Method::StaticCyclic => "static-cyclic",
            Method::GroupCyclic(Groups::Concurrent) => "group-cyclic",
            Method::GroupCyclic(Groups::Sequential) => "group-cyclic, in turn",
        }
    }
}

/// The bytes of one aggregator: those of `span` in blocks whose number leaves `residue` when divided by `cycle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileDomain {
    span: Extent,
    block: u64,
    cycle: u64,
    residue: u64,
}

impl FileDomain {
    fn contiguous(span: Extent) -> Self {
        FileDomain {
            span,
            block: 1,
            cycle: 1,
            residue: 0,
        }
    }

    /// The part of the file that holds the domain. The domain may have gaps in it, and begin and end inside it.
    pub fn span(&self) -> Extent {
        self.span
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes_below(self.span.end)
    }

    /// Does it hold the byte at an offset?
    pub fn contains(&self, offset: u64) -> bool {
        (self.span.start..self.span.end).contains(&offset)
            && offset / self.block % self.cycle == self.residue
    }

    /// How many of its bytes lie before an offset.
    pub fn bytes_below(&self, offset: u64) -> u64 {
        let offset = offset.clamp(self.span.start, self.span.end);
        self.cyclic_below(offset) - self.cyclic_below(self.span.start)
    }

    /// The offset of its byte number `position`, counted from 0.
    ///
    /// # Panics
    /// If it has not so many bytes.
    pub fn offset_of(&self, position: u64) -> u64 {
        assert!(position < self.bytes(), "byte {position} of {self:?}");
        let n = position + self.cyclic_below(self.span.start);
        n / self.block * self.block * self.cycle + self.residue * self.block + n % self.block
    }

    /// Its bytes from number `first` on, `count` of them or what is left; `None` if nothing is.
    pub fn window(&self, first: u64, count: u64) -> Option<FileDomain> {
        let last = self.bytes().min(first.saturating_add(count));
        if first >= last {
            return None;
        }
        let span = Extent::new(self.offset_of(first), self.offset_of(last - 1) + 1);
        Some(FileDomain { span, ..*self })
    }

    /// Its contiguous pieces, by offset.
    pub fn pieces(&self) -> impl Iterator<Item = Extent> + use<> {
        self.pieces_from(self.span.start)
    }

    /// Its contiguous pieces from an offset on, the first without what lies before it.
    pub fn pieces_from(&self, offset: u64) -> impl Iterator<Item = Extent> + use<> {
        let domain = *self;
        let mut at = self.span.start.max(offset.min(self.span.end));
        std::iter::from_fn(move || {
            let piece = domain.piece_from(at)?;
            at = piece.end;
            Some(piece)
        })
    }

    fn piece_from(&self, offset: u64) -> Option<Extent> {
        let end = self.span.end;
        let piece = match self.cycle {
            1 => (offset, end),
            cycle => {
                let block = offset / self.block;
                let ahead = (self.residue + cycle - block % cycle) % cycle;
                let start = (block + ahead) * self.block;
                (start.max(offset), (start + self.block).min(end))
            }
        };
        (piece.0 < end).then(|| Extent::new(piece.0, piece.1))
    }

    /// Bytes below an offset if the span were the whole file.
    fn cyclic_below(&self, offset: u64) -> u64 {
        if self.cycle == 1 {
            return offset;
        }
        let period = self.block * self.cycle;
        let rest = (offset % period).saturating_sub(self.residue * self.block);
        offset / period * self.block + rest.min(self.block)
    }
}

/// The file domains of all aggregators in one collective call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileDomains {
    method: Method,
    region: Extent,
    aggregators: u32,
    layout: Layout,
}

impl FileDomains {
    /// Divides a region among so many aggregators.
    ///
    /// # Panics
    /// If there is no aggregator.
    pub fn new(method: Method, region: Extent, aggregators: u32, layout: Layout) -> Self {
        assert!(aggregators > 0, "a collective call has an aggregator");
        FileDomains {
            method,
            region,
            aggregators,
            layout,
        }
    }

    /// The aggregate access region.
    pub fn region(&self) -> Extent {
        self.region
    }

    /// The number of aggregators, those without bytes included.
    pub fn aggregators(&self) -> u32 {
        self.aggregators
    }

    /// How the file lies on its servers.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Groups that the aggregators form: one, unless group-cyclic meets more aggregators than servers. If the number of
    /// aggregators is no multiple of the number of servers, the last ones are in no group and have no bytes:
    /// [`super::fitting_count`] avoids that.
    pub fn groups(&self) -> u32 {
        match self.method {
            Method::GroupCyclic(_) => (self.aggregators / self.layout.servers).max(1),
            _ => 1,
        }
    }

    /// The group of an aggregator. Group 0 begins with the aggregator of the first server of the region (figure 3 of the
    /// paper: 8 aggregators, 4 servers, the region begins on server 3: groups 7 0 1 2 and 3 4 5 6).
    pub fn group_of(&self, aggregator: u32) -> Option<u32> {
        let (groups, servers) = (self.groups(), self.layout.servers);
        if groups == 1 {
            let idle = self.is_grouped() && aggregator >= servers;
            return (!idle).then_some(0);
        }
        let (row, server) = (aggregator / servers, aggregator % servers);
        let turned = u32::from(self.is_turned(server));
        (row < groups).then_some((row + turned) % groups)
    }

    /// Do groups take turns, and how do they?
    pub fn are_sequential(&self) -> bool {
        self.groups() > 1 && self.method == Method::GroupCyclic(Groups::Sequential)
    }

    /// The bytes of an aggregator; possibly none.
    ///
    /// # Panics
    /// If there is no such aggregator.
    pub fn domain(&self, aggregator: u32) -> FileDomain {
        assert!(aggregator < self.aggregators, "aggregator {aggregator}");
        let cyclic = |span, cycle: u32| FileDomain {
            span,
            block: self.layout.granule_bytes,
            cycle: cycle.into(),
            residue: (aggregator % cycle).into(),
        };
        match self.method {
            Method::Even | Method::Aligned => {
                FileDomain::contiguous(self.part(aggregator, self.aggregators))
            }
            Method::GroupCyclic(_) if self.is_grouped() => match self.group_of(aggregator) {
                Some(group) => cyclic(self.part(group, self.groups()), self.layout.servers),
                None => FileDomain::contiguous(Extent::new(self.region.end, self.region.end)),
            },
            Method::StaticCyclic | Method::GroupCyclic(_) => cyclic(self.region, self.aggregators),
        }
    }

    /// The aggregator that has the byte at an offset; `None` outside the region.
    pub fn owner(&self, offset: u64) -> Option<u32> {
        if !(self.region.start..self.region.end).contains(&offset) {
            return None;
        }
        Some(match self.method {
            Method::Even | Method::Aligned => self.part_at(offset, self.aggregators),
            Method::GroupCyclic(_) if self.is_grouped() => {
                let (groups, server) = (self.groups(), self.layout.server_of(offset));
                let turned = u32::from(self.is_turned(server));
                let row = (self.part_at(offset, groups) + groups - turned) % groups;
                row * self.layout.servers + server
            }
            Method::StaticCyclic | Method::GroupCyclic(_) => {
                (self.layout.granule_of(offset) % u64::from(self.aggregators)) as u32
            }
        })
    }

    /// Is an aggregator tied to a server? With fewer aggregators than servers they are not.
    fn is_grouped(&self) -> bool {
        matches!(self.method, Method::GroupCyclic(_)) && self.aggregators >= self.layout.servers
    }

    /// Do the aggregators of this server work one group later than their number says? Those of the first server of the
    /// region and of the servers after it do, unless that is server 0.
    fn is_turned(&self, server: u32) -> bool {
        let first = self.layout.server_of(self.region.start);
        first > 0 && server >= first
    }

    /// Part number `index` of the region in `parts` parts.
    fn part(&self, index: u32, parts: u32) -> Extent {
        Extent::new(self.boundary(index, parts), self.boundary(index + 1, parts))
    }

    /// The number of the part that holds an offset of the region.
    fn part_at(&self, offset: u64, parts: u32) -> u32 {
        let (mut low, mut high) = (0, parts); // boundary(low) <= offset < boundary(high)
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.boundary(middle, parts) <= offset {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// Where part `index` begins: the rule of ROMIO, which rounds inner ends to the nearest granule boundary, upwards
    /// from the middle on.
    fn boundary(&self, index: u32, parts: u32) -> u64 {
        let Extent { start, end } = self.region;
        let size = (end - start).div_ceil(parts.into());
        let exact = u128::from(start) + u128::from(index) * u128::from(size);
        if index == 0 || index == parts || exact >= u128::from(end) {
            return if index == 0 { start } else { end };
        }
        let exact = exact as u64;
        if self.method == Method::Even {
            return exact;
        }
        let granule = self.layout.granule_bytes;
        let over = exact % granule;
        let down = over < granule - over;
        let nearest = if down {
            exact - over
        } else {
            exact - over + granule
        };
        nearest.clamp(start, end)
    }
}
