//! Which user may ask a bridge for what. How much of it: [`crate::share`].

/// What a bridge is asked for, as far as it depends on the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Anything at all: requests about paths, sync points, memory to ask by.
    Service,
    /// The table of names.
    Names,
    /// Control messages.
    Control,
}

/// May user `uid` ask a bridge that user `owner` runs for this? Whoever asks for anything also asks for [`Asked::Service`].
pub fn may_ask(asked: Asked, uid: u32, owner: u32) -> bool {
    match asked {
        // Without privilege it can neither give files to another user nor check what that user may do.
        Asked::Service => owner == 0 || uid == owner,
        // Names: another user must not see names below directories that it may not search.
        Asked::Names | Asked::Control => uid == owner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u32 = 0;
    const OWNER: u32 = 1000;
    const OTHER: u32 = 1001;

    #[test]
    fn only_a_bridge_of_root_serves_others() {
        for uid in [ROOT, OWNER, OTHER] {
            assert!(may_ask(Asked::Service, uid, ROOT));
            assert_eq!(may_ask(Asked::Service, uid, OWNER), uid == OWNER);
        }
    }

    #[test]
    fn names_and_control_are_for_the_owner_alone() {
        for asked in [Asked::Names, Asked::Control] {
            for owner in [ROOT, OWNER] {
                for uid in [ROOT, OWNER, OTHER] {
                    assert_eq!(may_ask(asked, uid, owner), uid == owner);
                }
            }
        }
    }
}
