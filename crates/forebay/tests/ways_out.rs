//! Paths that go through the buffer and lead out of it again, by `..` and by symbolic links, come to the same place as natively,
//! whatever the PFS still has where the buffer has something else.
//!
//! `FOREBAY_SEEDS="17 18"` runs other seeds of the random test, and `FOREBAY_STEPS=500` fewer steps.

mod common;

use common::{Case, PYTHON, case, need};

/// Makes `$OUTSIDE` anew. Only what is in the buffer is copied for each run.
const OUTSIDE: &str = r#"
    rm -rf "$OUTSIDE"; mkdir -p "$OUTSIDE"/a/b/c "$OUTSIDE"/d; cd "$OUTSIDE"
    echo outside > v; echo deep > a/b/v; echo 1 > e; ln -s a/b f; ln -s nowhere g; ln -s ../d a/d; cd "$BUFFER"
"#;

/// What is outside in the end.
const SHOW: &str = r#"
    cd "$OUTSIDE"; find . -printf '%p %y %l\n' | sort; find . -type f | sort | while read f; do echo "$f: $(cat "$f")"; done; cd "$BUFFER"
"#;

fn same(case: Case, script: &str) {
    case.same(&format!("{OUTSIDE}\n{script}\n{SHOW}"));
}

#[test]
fn a_directory_in_place_of_a_link_of_the_pfs_leads_where_the_buffer_says() {
    same(
        case!().start(
            r#"
            mkdir -p far/s1/s2 dir/sub; echo WRONG > far/v; echo WRONG > v; ln -s far/s1/s2 x; ln -s "$OUTSIDE/a/b/c" y; ln -s dir/sub z
            echo in > dir/v
            "#,
        ),
        r#"
        rm x y z; mkdir x y z
        for way in "$BUFFER/x/../../out" "$PWD/./y/..//../out" x/../../out y/../../out z/../../out; do
            cat $way/v; echo "by $way" | sed "s|$BUFFER|B|" >> "$OUTSIDE/v"; echo new > $way/new; cat "$OUTSIDE/new"; rm $way/new
            stat -c '%n %s' $way/v | sed "s|$BUFFER|B|"; ls $way
        done
        mkdir "$BUFFER/x/../../out/made"; mv dir was; ln -s was/sub dir
        cat dir/../v "$BUFFER/dir/../v" dir/../../../out/v "$BUFFER/dir/../../../out/v"
        cat far/v v
        "#,
    );
}

#[test]
fn a_directory_that_only_the_buffer_has_leads_out_again() {
    same(
        case!(),
        r#"
        mkdir -p new/er; echo in > v
        cat "$BUFFER/new/../../out/v" "$BUFFER/new/er/../../../out/a/b/v" new/er/../../../out/v "$BUFFER/new/../v"
        (cd new/er; cat ../../../out/v ../../v "$PWD/../../../out/v"; cd ../../../out; pwd | sed 's|.*/||'; cat "$BUFFER/new/../../out/e")
        (cd "$BUFFER/new/../../out/a"; pwd | sed 's|.*/||'; cat b/v; cd ..; cat "../run/new/../v" "../run/new/../../out/v")
        cat "$BUFFER/missing/../../out/v" "$BUFFER/v/../../out/v" "$BUFFER/new/../../out/missing" 2>&1 | sed 's|.*: ||'
        echo '#!/bin/sh
        echo ran' > ../out/tool; chmod 755 ../out/tool; new/../../out/tool; "$BUFFER/new/../../out/tool"
        "#,
    );
}

#[test]
fn a_link_outside_that_leads_elsewhere_is_no_way_to_the_buffer() {
    same(
        case!().start("echo WRONG > v"),
        r#"
        mkdir "$OUTSIDE/run"; echo right > "$OUTSIDE/run/v"
        # By its text the path leads to the buffer, but `f` is a link to `a/b`.
        cat "$OUTSIDE/f/../../run/v"; echo new > "$OUTSIDE/f/../../run/v"; (cd "$OUTSIDE"; cat f/../../run/v)
        cat "$OUTSIDE/a/../../run/v" "$OUTSIDE/g/../../run/v" "$OUTSIDE/v/../../run/v" 2>&1 | sed 's|.*: ||'
        cat "$OUTSIDE/run/v" v
        "#,
    );
}

#[test]
fn two_paths_outside_are_on_one_file_system_by_whatever_way() {
    need!("python3");
    same(
        case!().start("ln -s \"$OUTSIDE\" there; mkdir old; ln -s ../../out/a old/a"),
        &format!(
            r#"
            mkdir new; ln ../out/e ../out/e2; ln there/e new/../there/e3; ln "$BUFFER/new/../../out/e" there/e4
            stat -c %h ../out/e; mv ../out/e2 ../out/a/moved; sed -i s/1/2/ ../out/e3; cat "$OUTSIDE/e3"
            mv "$BUFFER/new/../there/a/b" old/a/renamed; cat there/a/renamed/v; mv old/a/renamed there/a/b
            {PYTHON} - <<'END'
import errno, os
def attempt(call, *arguments, **named):
    try:
        call(*arguments, **named)
        print("done", *arguments)
    except OSError as error:
        print(errno.errorcode[error.errno], *arguments)
attempt(os.rename, "../out/d", "there/d2")
attempt(os.rename, "there/d2/", "old/a/../d")
attempt(os.link, "there/e", "../out/e")
attempt(os.link, "there/missing", "../out/x")
attempt(os.link, "there/e", "new/missing/x")
attempt(os.rename, "there/missing", "../out/x")
attempt(os.rename, "there/e", "../out/missing/x")
attempt(os.rename, "there/e", "new/missing/x")
attempt(os.rename, "there/e/", "there/x")
attempt(os.rename, "there/f/", "there/x")
attempt(os.rename, "there/f", "there/x")
attempt(os.rename, "there/..", "there/x")
attempt(os.rename, "../out/..", "../out/x")
attempt(os.rename, "there/e", "there/a/..")
attempt(os.link, "there/x", "there/link")
attempt(os.link, "there/x/", "there/y")
for name in "old", "new", "../out":
    fd = os.open(name, os.O_RDONLY)
    attempt(os.link, "../out/e" if name != "../out" else "e", "../../x" + name[:1], src_dir_fd=fd, dst_dir_fd=os.open("../out/a/b", os.O_RDONLY))
    attempt(os.rename, "../out/e" if name != "../out" else "e", "e", src_dir_fd=fd, dst_dir_fd=os.open("there", os.O_RDONLY))
# From one side to the other are two file systems. Natively it is one, so nothing is tried there.
open("in", "w").close()
for call in os.link, os.rename:
    for pair in ("in", "../out/in"), ("in", "there/in"), ("there/e", "e"), ("new/../../out/e", "new/../e"), ("there/e", "in"):
        if "FOREBAY_BUFFER" in os.environ:
            try:
                call(*pair)
                print("done across", call, pair)
            except OSError as error:
                assert error.errno == errno.EXDEV, (call, pair, error)
END
            "#,
        ),
    );
}

#[test]
fn random_ways_through_the_buffer_lead_where_they_lead_natively() {
    need!("python3");
    random(case!(), "1 2 3 4 5 6 7 8 9 10 11 12");
}

fn random(case: Case, seeds: &str) {
    let seeds = std::env::var("FOREBAY_SEEDS").unwrap_or_else(|_| seeds.to_owned());
    let steps = std::env::var("FOREBAY_STEPS").unwrap_or_else(|_| "600".to_owned());
    let case = case.limit_s(600).start(
        r#"
        mkdir -p a/b/c d/e f; echo 1 > a/e; echo 2 > a/b/e; echo 3 > g; echo 4 > d/e/a
        ln -s ../out b; ln -s "$OUTSIDE/a" c; ln -s a/b/c e; ln -s ../../out/a/b a/c; ln -s ../.. d/a; ln -s loop f/loop; ln -s "$BUFFER/a" f/a
        ln -s nowhere f/b; ln -s ../g/x f/c; ln -s "$OUTSIDE/../run/a" f/d; ln -s a/b/../../../out/d f/e; ln -s b/a f/f
        "#,
    );
    same(
        case,
        &format!("{PYTHON} \"$PROGRAMS/python/ways_out.py\" {steps} {seeds} || exit"),
    );
}
