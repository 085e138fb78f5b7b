//! Compares the buffer with a reference, the local file system. Several processes make random operations, one at a
//! time, and report each step (`programs/c/steps.c`), natively and in the buffer. Both reports must agree, and so must
//! the trees after the drain.
//!
//! `FOREBAY_SEEDS="17 18"` runs other seeds, and `FOREBAY_STEPS=500` fewer steps. In a difference, the `seed` lines and
//! the numbers at the beginnings of lines tell the seed, the step and the process.

mod common;

use common::{Case, case, need};

/// A tree three levels deep, so that links which lead up and out still end in the buffer. One per seed.
fn start(seeds: &str) -> String {
    format!(
        r#"
        for seed in {seeds}; do
            mkdir -p $seed/x/y; cd $seed/x/y
            mkdir -p old/sub/c a/b old/a d; echo old > oldfile; seq 1 500 > old/oldfile; echo deep > old/sub/a; : > a/c
            ln -s ../a l; ln -s nowhere old/l; ln -s old/sub b
            chmod 777 . old a; chmod 700 old/a; chmod 666 oldfile; chmod 755 old/sub
            cd ../../..
        done
        "#
    )
}

fn agree(case: Case, seeds: &str, processes: u32) {
    let seeds = std::env::var("FOREBAY_SEEDS").unwrap_or_else(|_| seeds.to_owned());
    let steps = std::env::var("FOREBAY_STEPS").unwrap_or_else(|_| "1500".to_owned());
    case.start(&start(&seeds)).compile("c/steps.c", &[]).same(&format!(
        r#"for seed in {seeds}; do echo "seed $seed"; (cd $seed/x/y; "$BIN/steps" $seed {steps} {processes}) || exit; done"#
    ));
}

#[test]
fn one_process_sees_what_it_would_see_natively() {
    need!("gcc");
    agree(case!(), "1 2 3 4 5 6 7 8", 1);
}

#[test]
fn four_processes_see_what_they_would_see_natively() {
    need!("gcc");
    agree(case!(), "101 102 103 104 105 106 107 108", 4);
}

#[test]
fn nine_processes_see_what_they_would_see_natively() {
    need!("gcc");
    agree(case!(), "201 202 203 204", 9);
}
