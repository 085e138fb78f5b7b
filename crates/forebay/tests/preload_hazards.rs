//! Programs that treat the preload library badly, on purpose or in good faith. Each runs natively and under
//! `forebay run`. The programs check themselves, and print what is wrong.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `tests/preload_hazards/NAME.c` to `$BIN/NAME`, and returns the command that runs it.
fn hazard(case: common::Case, name: &str) -> (common::Case, String) {
    let case = case.compile(&format!("../preload_hazards/{name}.c"), &["-pthread"]);
    (case, format!("\"$BIN/{name}\" \"$BUFFER\""))
}

fn holds(case: common::Case, name: &str) {
    let (case, script) = hazard(case.without_walk(), name);
    case.same(&script);
}

#[test]
fn less_common_functions_of_libc_give_what_they_give_natively() {
    let (case, script) = hazard(common::case!().without_walk(), "functions");
    // A separate process lists the tree, so that the program's own state does not matter.
    let library = format!(
        "gcc -shared -fPIC -o \"$OUTSIDE/library.so\" \"{}\"",
        source("library.c").display()
    );
    case.contents_change_in(["lib.so"]).same(&format!(
        "{library}\n{script} \"$OUTSIDE/library.so\"\nls -1R . | sed 's/....../X/'"
    ));
}

fn source(name: &str) -> PathBuf {
    common::programs_dir().join("../preload_hazards").join(name)
}

#[test]
fn a_program_may_close_every_descriptor_and_take_every_number() {
    holds(common::case!(), "descriptors");
}

#[test]
fn threads_work_on_files_while_others_fork_and_spawn() {
    holds(common::case!(), "threads");
}

#[test]
fn signal_handlers_use_files_in_the_middle_of_a_call_and_may_never_return() {
    holds(common::case!(), "signals");
}

#[test]
fn files_are_made_durable_in_handlers_children_and_threads_that_are_cancelled() {
    holds(common::case!(), "durability");
}

#[test]
fn memory_shared_with_the_bridge_is_nobody_elses_and_goes_with_its_socket() {
    holds(common::case!(), "lanes");
}

#[test]
fn calls_by_the_function_syscall_see_the_buffer() {
    let (case, script) = hazard(common::case!().without_walk(), "raw_calls");
    case.same(&script);
}

#[test]
fn what_is_made_past_the_library_is_not_taken_for_its_directory() {
    holds(common::case!(), "past");
}

#[test]
fn few_descriptors_and_descriptors_at_the_limit_work() {
    holds(common::case!(), "limits");
}

#[test]
fn a_changed_user_is_judged_as_the_new_one() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root(),
        "only the superuser changes users"
    );
    holds(common::case!(), "identity");
}

#[test]
fn a_user_who_cannot_reach_the_storage_sees_one_device() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root(),
        "only the superuser changes users"
    );
    let (case, script) = hazard(common::case!(), "one_device");
    case.same(&script);
}

#[test]
fn an_environment_of_the_programs_own_making_keeps_the_buffer() {
    holds(common::case!(), "environment");
}

#[test]
fn the_built_library_exports_and_imports_what_is_listed() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/check-preload.sh");
    let output = Command::new(script)
        .arg(common::preload())
        .output()
        .expect("run the check");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
