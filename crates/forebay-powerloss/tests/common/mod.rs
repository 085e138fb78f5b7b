//! What the tests of the machine share.

/// Leaves the test where the machine can't run.
macro_rules! need_the_machine {
    () => {
        if let Err(reason) = forebay_powerloss::rig::check() {
            forebay_testkit::skip(&reason);
            return;
        }
    };
}
