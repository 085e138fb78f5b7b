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
    /// Transits of records that an earlier pass has left end.
    Resume,
    /// Files that it has left on their way out go, or get their names back.
    GoOn,
    /// What somebody has chosen about changes of others is done.
    Choose,
    /// What earlier drains have left goes: temporary names, and what is aside.
    Sweep,
    /// Renamed things take their final names, as far as these are free or get free by that. What is in the way of something else goes to
    /// a waiting name.
    Evacuate,
    /// What waits, and no record speaks of, goes.
    Orphans,
    /// What is hidden goes. A directory that is not empty is put aside.
    Clear,
    /// Other renamed things take their final names, and directories come into being.
    Settle,
    /// What `Clear` has passed over because something renamed still lay in it.
    ClearAgain,
    /// What is aside is removed, but for what others have put there or changed there, which is given back.
    SweepAgain,
    /// Files are copied, and get their names.
    Contents,
    /// Temporary names that may be left are looked for.
    Tidy,
    /// Before directories get their modes: by those even their owner may not get to what is in them.
    Sync,
    /// Directories get their attributes.
    Dress,
    /// What is left is listed.
    List,
    /// The copies of directories go. So do in the next three those of files, of files that only the bridge had open, and of places of
    /// what was renamed.
    ReleaseDirs,
    ReleaseContents,
    ReleasePassing,
    ReleasePlaces,
    /// The notes about files with several names go, if there are no records.
    ForgetFiles,
    /// If no record is left, all copies are gone.
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
