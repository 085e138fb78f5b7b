//! Runs the seeds of the fuzzer without the fuzzer, so that a case found once stays right.

#[path = "../../../fuzz/check.rs"]
mod check;

#[test]
fn every_seed_of_the_fuzzer_decodes_or_is_refused() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/wire");
    let (mut requests, mut replies) = (0, 0);
    for seed in std::fs::read_dir(seeds).unwrap() {
        let bytes = std::fs::read(seed.unwrap().path()).unwrap();
        let [request, reply] = check::any_message(&bytes);
        requests += u32::from(request);
        replies += u32::from(reply);
        // Truncated and changed seeds reach the checks behind the first ones.
        for cut in 0..bytes.len().min(512) {
            check::any_message(&bytes[..cut]);
            let mut changed = bytes.clone();
            changed[cut] ^= 0x81;
            check::any_message(&changed);
        }
    }
    assert!(
        requests > 60 && replies > 60,
        "{requests} requests and {replies} replies decode"
    );
}
