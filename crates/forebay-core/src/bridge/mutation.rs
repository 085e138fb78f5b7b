//! Planted bugs, which the fault simulator has to find.
//!
//! They do something only in builds with the feature `planted-bugs`; elsewhere
//! [`Mutation::is`] is a constant and the compiler drops the branches.

/// A deliberate mistake in the transaction layer or in the rules of recovery.
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
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 11] = [
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
    ];

    /// Is `planted` this one?
    pub fn is(self, planted: Option<Mutation>) -> bool {
        cfg!(feature = "planted-bugs") && planted == Some(self)
    }
}
