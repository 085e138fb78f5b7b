//! Races of 64 processes for one path at the same instant. Every outcome is one that POSIX allows.

mod common;

use common::{case, need};

/// Runs the program `races` with these arguments in the buffer, over a PFS that already has files.
macro_rules! race {
    ($($arguments:literal),+) => {{
        need!("gcc");
        let mut script = String::new();
        $(script += concat!("\"$BIN/races\" ", $arguments, " || exit\n");)+
        case!()
            .start("mkdir old; touch old/file")
            .compile("c/races.c", &["-pthread"])
            .same(&format!("{script}cd old\n{script}"));
    }};
}

#[test]
fn one_of_64_processes_creates_the_file() {
    race!("exclusive 64 1000");
}

#[test]
fn a_shared_create_gives_64_processes_one_file() {
    race!("together 64 300");
}

#[test]
fn mkdir_symlink_and_link_have_exactly_one_winner_among_64_processes() {
    race!("mkdir 64 300", "symlink 64 300", "link 64 300");
}

#[test]
fn renames_of_64_processes_onto_one_name_leave_one_whole_file() {
    race!("rename 64 60");
}

#[test]
fn unlink_and_rename_of_one_name_have_exactly_one_winner_among_64_processes() {
    race!("unlink 64 300", "move 64 300");
}

/// What `stat` shows held at some moment of the call, also where it is found without asking the bridge.
#[test]
fn what_stat_shows_is_true_while_names_come_go_and_move() {
    need!("gcc");
    case!()
        .start("mkdir old; touch old/file")
        .compile("c/looks.c", &[])
        .same("\"$BIN/looks\" \"$PWD\" 3 3000 || exit\n\"$BIN/looks\" \"$PWD/old\" 3 3000 || exit");
}
