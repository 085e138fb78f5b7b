//! The rounds of a pass, in their order.

/// What a pass does one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    Resume,
    Choose,
    Sweep,
    Evacuate,
    Orphans,
    Clear,
    Settle,
    /// What something was still in that has its final name now.
    ClearAgain,
    SweepAgain,
    Contents,
    Tidy,
    /// Before directories get their modes: by those even their owner may not get to what is in them.
    Sync,
    Dress,
    List,
    ReleaseDirs,
    ReleaseContents,
    ReleasePassing,
    ReleasePlaces,
    Judge,
    End,
}

/// All of them, in their order.
const ORDER: [Round; 20] = [
    Round::Resume,
    Round::Choose,
    Round::Sweep,
    Round::Evacuate,
    Round::Orphans,
    Round::Clear,
    Round::Settle,
    Round::ClearAgain,
    Round::SweepAgain,
    Round::Contents,
    Round::Tidy,
    Round::Sync,
    Round::Dress,
    Round::List,
    Round::ReleaseDirs,
    Round::ReleaseContents,
    Round::ReleasePassing,
    Round::ReleasePlaces,
    Round::Judge,
    Round::End,
];

const _: () = assert!(
    ORDER.len() == Round::End as usize + 1,
    "each round has its place"
);

impl Round {
    /// The one that comes next.
    pub(super) fn after(self) -> Round {
        let place = ORDER.iter().position(|round| *round == self);
        let next = place.and_then(|place| ORDER.get(place + 1));
        next.copied().unwrap_or(Round::End)
    }

    /// Is it left out when the pass is stopped?
    pub(super) fn is_optional(self) -> bool {
        matches!(
            self,
            Round::Evacuate
                | Round::Orphans
                | Round::Clear
                | Round::Settle
                | Round::ClearAgain
                | Round::Contents
        ) || self.releases()
    }

    /// Does it let copies go?
    pub(super) fn releases(self) -> bool {
        matches!(
            self,
            Round::ReleaseDirs
                | Round::ReleaseContents
                | Round::ReleasePassing
                | Round::ReleasePlaces
                | Round::Judge
        )
    }
}
