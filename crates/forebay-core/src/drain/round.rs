//! The rounds of a pass, in their order.

/// Makes the enum, and `ORDER` with the same rounds in the same order.
macro_rules! rounds {
    ($($(#[$doc:meta])* $round:ident,)*) => {
        /// What a pass does one after the other.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Round {
            $($(#[$doc])* $round,)*
        }

        const ORDER: &[Round] = &[$(Round::$round,)*];
    };
}

rounds! {
    Resume,
    Choose,
    Sweep,
    Evacuate,
    Orphans,
    Clear,
    Settle,
    /// What `Clear` has passed over because something renamed still lay in it.
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
    /// The notes about files with several names.
    ForgetFiles,
    Judge,
    End,
}

impl Round {
    /// The one that comes next.
    pub(super) fn after(self) -> Round {
        let next = ORDER.get(self as usize + 1);
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

    /// Is it made of moves? Independent ones are under way at the same time.
    pub(super) fn moves(self) -> bool {
        matches!(
            self,
            Round::Evacuate | Round::Clear | Round::Settle | Round::ClearAgain
        )
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
