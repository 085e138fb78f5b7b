//! How much of a limit one user may take on a bridge that serves several.

/// May a user who has `own` of the `all` that are taken take one more, of `limit`? The user that runs the bridge may take all
/// (`is_owner`). Others may take half of what is left, at least one, so that a newcomer always gets something.
pub fn may_take(own: usize, all: usize, limit: usize, is_owner: bool) -> bool {
    debug_assert!(own <= all, "{own} of {all}");
    let left = limit.saturating_sub(all - own);
    let share = match is_owner {
        true => left,
        false => left.div_ceil(2),
    };
    all < limit && own < share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_after_those_that_take_all_they_can_finds_something() {
        let limit = 1024;
        let mut all = 0;
        for others in 0..10 {
            let mut own = 0;
            while may_take(own, all, limit, false) {
                (own, all) = (own + 1, all + 1);
            }
            assert!(own >= 1, "nothing left after {others} others");
        }
        assert!(all < limit);
    }

    #[test]
    fn the_user_of_the_bridge_may_take_all_and_nobody_more_than_there_is() {
        assert!(may_take(15, 15, 16, true));
        assert!(!may_take(16, 16, 16, true));
        assert!(!may_take(0, 16, 16, false));
        assert!(may_take(7, 7, 16, false));
        assert!(!may_take(8, 8, 16, false));
        assert!(may_take(0, 15, 16, false));
    }
}
