//! The rounds of a pass, in their order.

/// What a pass does one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    Resume,
    Sweep,
    Evacuate,
    Orphans,
    Clear,
    Settle,
    SweepAgain,
    Contents,
    Tidy,
    Dress,
    Sync,
    List,
    ReleaseDirs,
    ReleaseContents,
    ReleasePassing,
    ReleasePlaces,
    Judge,
    End,
}

impl Round {
    /// The one that comes next.
    pub(super) fn after(self) -> Round {
        match self {
            Round::Resume => Round::Sweep,
            Round::Sweep => Round::Evacuate,
            Round::Evacuate => Round::Orphans,
            Round::Orphans => Round::Clear,
            Round::Clear => Round::Settle,
            Round::Settle => Round::SweepAgain,
            Round::SweepAgain => Round::Contents,
            Round::Contents => Round::Tidy,
            Round::Tidy => Round::Dress,
            Round::Dress => Round::Sync,
            Round::Sync => Round::List,
            Round::List => Round::ReleaseDirs,
            Round::ReleaseDirs => Round::ReleaseContents,
            Round::ReleaseContents => Round::ReleasePassing,
            Round::ReleasePassing => Round::ReleasePlaces,
            Round::ReleasePlaces => Round::Judge,
            Round::Judge | Round::End => Round::End,
        }
    }

    /// Is it left out when the pass is stopped?
    pub(super) fn is_optional(self) -> bool {
        matches!(
            self,
            Round::Evacuate | Round::Orphans | Round::Clear | Round::Settle | Round::Contents
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
