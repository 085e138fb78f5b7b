//! Planted bugs, which the fault simulator has to find.
//!
//! They do something only in builds with the feature `planted-bugs`; elsewhere
//! [`Mutation::is`] is a constant and the compiler drops the branches.

/// A deliberate mistake in the transaction layer, in the request machine, in the drain, in sync points, in the rules of
/// recovery, or in what their driver has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum Mutation {
    HomeSkipsVersionCheck,
    ReplyBeforeCommit,
    RenameAsTwoBatches,
    RecoveryForgetsPromises,
    RecoveryIgnoresDoomMarks,
    PrimaryForgetsOutcome,
    DuplicatesAreCarriedOutAgain,
    ReadersIgnoreUndecided,
    EndedDirectoriesAreForgotten,
    RequestsAreForgotten,
    SweepIgnoresIntents,
    MarksAreNotWaitedFor,
    PagesLoseAName,
    SparesStayDoomed,
    LinksAreNotAnnounced,
    RemovalsAreNotWaitedFor,
    ReleasesWithoutAProbe,
    ReleasesOneOfSeveralNames,
    ResumeForgetsRenames,
    SpeakersKeepOldPaths,
    PublishesWhatHasChanged,
    ReplacesStrangers,
    ReplacesWhatOthersChanged,
    TakesDirectoriesOfOthers,
    ClearsWithoutRemoving,
    TruncatesBeforeItIsCertain,
    AbsencesAreForgotten,
    SweepsForOthers,
    SpeakersOfOthersAreNotHeard,
    LooksOutliveTheirRecords,
    NamesElsewhereAreForgotten,
    SpeakersAreNotChecked,
    StraysAreRemoved,
    SyncsAreAnsweredEarly,
    NamesAreWrittenBeforeContents,
    KnownFilesAreUnlinked,
    PfsNamesAreNotSynced,
    DrainsEndBeforeTheyAreDurable,
    CopiesAreDurableOnThePfsAlone,
    PfsChangesBeforeNamesAreDurable,
    LabelsAheadAreKept,
    LinksAheadAreNotMade,
    KilledDrainsAreForgotten,
    KilledCopiesAreForgotten,
    SweepsBeforeNamesAreDurable,
    OthersAreToldBeforeItIsDurable,
    CopiesElsewhereAreNotSynced,
    RebuiltTablesForgetWhatIsOver,
    RemovedDirsForgetContents,
    OriginsAreNotSettled,
    OriginsThatReturnAreTaken,
    ChoicesAreNotRefused,
    FailuresLeaveNoDoubt,
    FailuresKeepTheirTurn,
    FailuresKeepWhatTheyMade,
    RefusedBatchesAreRemembered,
    RemovalsAreNotFinished,
    NamelessObjectsAreKept,
    ChangesMeanwhileAreIgnored,
    HeldFilesAreCopied,
    MovesIgnoreEachOther,
    NamesOfOneFileAllGo,
    FilesGoUnnoted,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 63] = [
        Mutation::HomeSkipsVersionCheck,
        Mutation::ReplyBeforeCommit,
        Mutation::RenameAsTwoBatches,
        Mutation::RecoveryForgetsPromises,
        Mutation::RecoveryIgnoresDoomMarks,
        Mutation::PrimaryForgetsOutcome,
        Mutation::DuplicatesAreCarriedOutAgain,
        Mutation::ReadersIgnoreUndecided,
        Mutation::EndedDirectoriesAreForgotten,
        Mutation::RequestsAreForgotten,
        Mutation::SweepIgnoresIntents,
        Mutation::MarksAreNotWaitedFor,
        Mutation::PagesLoseAName,
        Mutation::SparesStayDoomed,
        Mutation::LinksAreNotAnnounced,
        Mutation::RemovalsAreNotWaitedFor,
        Mutation::ReleasesWithoutAProbe,
        Mutation::ReleasesOneOfSeveralNames,
        Mutation::ResumeForgetsRenames,
        Mutation::SpeakersKeepOldPaths,
        Mutation::PublishesWhatHasChanged,
        Mutation::ReplacesStrangers,
        Mutation::ReplacesWhatOthersChanged,
        Mutation::TakesDirectoriesOfOthers,
        Mutation::ClearsWithoutRemoving,
        Mutation::TruncatesBeforeItIsCertain,
        Mutation::AbsencesAreForgotten,
        Mutation::SweepsForOthers,
        Mutation::SpeakersOfOthersAreNotHeard,
        Mutation::LooksOutliveTheirRecords,
        Mutation::NamesElsewhereAreForgotten,
        Mutation::SpeakersAreNotChecked,
        Mutation::StraysAreRemoved,
        Mutation::SyncsAreAnsweredEarly,
        Mutation::NamesAreWrittenBeforeContents,
        Mutation::KnownFilesAreUnlinked,
        Mutation::PfsNamesAreNotSynced,
        Mutation::DrainsEndBeforeTheyAreDurable,
        Mutation::CopiesAreDurableOnThePfsAlone,
        Mutation::PfsChangesBeforeNamesAreDurable,
        Mutation::LabelsAheadAreKept,
        Mutation::LinksAheadAreNotMade,
        Mutation::KilledDrainsAreForgotten,
        Mutation::KilledCopiesAreForgotten,
        Mutation::SweepsBeforeNamesAreDurable,
        Mutation::OthersAreToldBeforeItIsDurable,
        Mutation::CopiesElsewhereAreNotSynced,
        Mutation::RebuiltTablesForgetWhatIsOver,
        Mutation::RemovedDirsForgetContents,
        Mutation::OriginsAreNotSettled,
        Mutation::OriginsThatReturnAreTaken,
        Mutation::ChoicesAreNotRefused,
        Mutation::FailuresLeaveNoDoubt,
        Mutation::FailuresKeepTheirTurn,
        Mutation::FailuresKeepWhatTheyMade,
        Mutation::RefusedBatchesAreRemembered,
        Mutation::RemovalsAreNotFinished,
        Mutation::NamelessObjectsAreKept,
        Mutation::ChangesMeanwhileAreIgnored,
        Mutation::HeldFilesAreCopied,
        Mutation::MovesIgnoreEachOther,
        Mutation::NamesOfOneFileAllGo,
        Mutation::FilesGoUnnoted,
    ];

    /// Does it take several bridges to go wrong?
    pub fn takes_several(self) -> bool {
        matches!(
            self,
            Mutation::AbsencesAreForgotten
                | Mutation::SweepsForOthers
                | Mutation::SpeakersOfOthersAreNotHeard
                | Mutation::LooksOutliveTheirRecords
                | Mutation::NamesElsewhereAreForgotten
                | Mutation::SpeakersAreNotChecked
                | Mutation::OthersAreToldBeforeItIsDurable
                | Mutation::CopiesElsewhereAreNotSynced
                | Mutation::RebuiltTablesForgetWhatIsOver
        )
    }

    /// Does it take somebody who works on the PFS to go wrong?
    pub fn takes_a_neighbour(self) -> bool {
        matches!(
            self,
            Mutation::NamesOfOneFileAllGo
                | Mutation::RemovedDirsForgetContents
                | Mutation::TakesDirectoriesOfOthers
                | Mutation::OriginsAreNotSettled
                | Mutation::OriginsThatReturnAreTaken
                | Mutation::ChoicesAreNotRefused
        )
    }

    /// Does it take a power loss to go wrong?
    pub fn takes_a_power_loss(self) -> bool {
        matches!(
            self,
            Mutation::StraysAreRemoved
                | Mutation::SyncsAreAnsweredEarly
                | Mutation::NamesAreWrittenBeforeContents
                | Mutation::KnownFilesAreUnlinked
                | Mutation::PfsNamesAreNotSynced
                | Mutation::DrainsEndBeforeTheyAreDurable
                | Mutation::CopiesAreDurableOnThePfsAlone
                | Mutation::PfsChangesBeforeNamesAreDurable
                | Mutation::LabelsAheadAreKept
                | Mutation::LinksAheadAreNotMade
                | Mutation::KilledDrainsAreForgotten
                | Mutation::KilledCopiesAreForgotten
                | Mutation::SweepsBeforeNamesAreDurable
                | Mutation::OthersAreToldBeforeItIsDurable
                | Mutation::CopiesElsewhereAreNotSynced
        )
    }

    /// Is this one planted? Asks only where bugs can be planted at all.
    pub fn is_in(self, planted: impl FnOnce() -> Option<Mutation>) -> bool {
        cfg!(feature = "planted-bugs") && planted() == Some(self)
    }

    /// Is `planted` this one?
    pub fn is(self, planted: Option<Mutation>) -> bool {
        cfg!(feature = "planted-bugs") && planted == Some(self)
    }
}
