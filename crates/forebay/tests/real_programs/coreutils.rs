//! GNU coreutils and findutils.

use crate::common::{case, need};
use crate::{PROJECT, UNLINKED};

#[test]
fn cp_a_keeps_modes_times_owners_and_links() {
    case!().start(PROJECT).same(
        r#"
        cp -a project copy
        cp -a private/key copy/data/
        cp -a copy copy-of-copy
        cp -a copy/src "$OUTSIDE/src"
        cp -a "$OUTSIDE/src" back
        diff -r --no-dereference project/data copy-of-copy/data
        (cd "$OUTSIDE" && observe .)
        "#,
    );
}

#[test]
fn cp_copies_into_over_and_beside_what_is_there() {
    case!().start(PROJECT).same(
        r#"
        cp project/src/text new; cat new
        cp project/data/numbers new; wc new
        cp -n project/src/text new; wc -l new
        cp -f private/key new; cat new
        cp -p project/src/tool tool; ./tool a b
        cp -r project/src -T flat 2>&1 | sort
        cp -l project/data/numbers hard; stat -c '%h' hard project/data/numbers
        cp -s "$PWD/project/data/numbers" symbolic; readlink symbolic
        cp --sparse=always project/data/block sparse; cmp project/data/block sparse
        cp --reflink=auto project/data/block cloned; cmp project/data/block cloned
        cp -b project/src/text new; ls new*
        cp -L project/src/soft followed; stat -c %F followed
        cp -P project/src/soft kept; stat -c %F kept
        cp --parents project/src/deep/er/leaf empty-dir 2>&1
        mkdir empty-dir; cp --parents project/src/deep/er/leaf empty-dir
        cp new new 2>&1
        cp project nowhere 2>&1
        cp no-such new 2>&1
        cp --attributes-only -p project/src/tool attributes
        install -m 640 -D project/src/text made/on/the/way
        cp /etc/passwd from-outside; cmp /etc/passwd from-outside
        cp project/data/numbers "$OUTSIDE/numbers"; cmp "$OUTSIDE/numbers" project/data/numbers
        "#,
    );
}

#[test]
fn mv_moves_files_and_directories_of_both_kinds() {
    case!().start(PROJECT).same(
        r#"
        echo new > new
        mkdir -p fresh/inner; echo inner > fresh/inner/file
        mv new project/src/new; cat project/src/new
        mv project/src/text moved; cat moved; cat project/src/text 2>&1
        mv fresh project/empty/; cat project/empty/fresh/inner/file
        mv project/data elsewhere; ls elsewhere; ls project
        mv project renamed; observe renamed
        mv renamed/src/tool renamed/src/deep/er/leaf; cat renamed/src/deep/er/leaf
        mv -n moved renamed/src/tool; mv -n renamed/src/tool moved; ls
        mkdir target; mv -t target moved private
        mv target/private/key target/key
        mv -T renamed/empty target/private 2>&1
        mv target target/inside-itself 2>&1
        mv no-such anything 2>&1
        mv -b elsewhere/block elsewhere/numbers; ls elsewhere
        mkdir project; echo again > project/again
        "#,
    );
}

#[test]
fn mv_crosses_the_border_of_the_buffer_both_ways() {
    case!().start(PROJECT).same(
        r#"
        echo new > new
        mv new "$OUTSIDE/"; mv "$OUTSIDE/new" back; cat back
        mv project/src "$OUTSIDE/src"; ls "$OUTSIDE/src"; ls project
        mv "$OUTSIDE/src" project/src-again; observe project
        mv project/data/numbers "$OUTSIDE/n"; mv "$OUTSIDE/n" project/data/numbers
        stat -c '%y %s' project/data/numbers
        "#,
    );
}

#[test]
fn rm_r_removes_what_was_there_and_what_is_new() {
    case!().start(&[PROJECT, UNLINKED].concat()).same(
        r#"
        mkdir -p project/src/deep/new/er; echo x > project/src/deep/new/er/x
        rm -r project/src/deep; ls project/src
        rm project/src/text; cat project/src/text-again; stat -c %h project/src/text-again
        rm project/src/dangling project/src/loop-a project/src/pipe
        rm project/data 2>&1
        rmdir project 2>&1
        rmdir project/empty 2>&1
        rm -f no-such; rm no-such 2>&1
        rm -rf private; ls -d private 2>&1
        mkdir private; ls -A private
        rm -r project/empty project/data
        rm -rv project | sort
        ls -A
        "#,
    );
}

#[test]
fn rm_r_of_the_whole_tree_leaves_an_empty_pfs() {
    case!().start(PROJECT).same("rm -rf ./* ; ls -A; find .");
}

#[test]
fn rm_r_removes_a_large_directory_while_it_lists_it() {
    case!()
        .start("mkdir big; (cd big; seq -f 'old%g' 1 1500 | xargs touch)")
        .same(
            r#"
            (cd big; seq -f 'new%g' 1 1500 | xargs touch)
            ls big | wc -l
            find big -name '*7' -delete; ls big | wc -l
            rm -r big; ls
            "#,
        );
}

#[test]
fn ls_la_shows_one_merged_directory() {
    case!().start(&[PROJECT, UNLINKED].concat()).same(
        r#"
        echo new > project/src/new; mkdir project/src/newdir; ln -s new project/src/newlink
        rm project/src/text; touch -d '2010-01-02 03:04:05.678' project/src/new
        # Link counts and sizes of directories are the file system's own affair.
        ls -lan --time-style=full-iso project/src | grep -v '^d\|^total' | grep -v newlink
        ls -A project; ls -a project; ls -R .; ls -d project/*; ls -F project/src
        ls -U project/src | sort; ls -S project/data; ls -t project/data
        ls no-such project/data 2>&1
        ls -i project/src/text-again project/src/text-again | sort -u | wc -l
        ls -lL project/src/soft 2>&1 | cut -c1-10
        ls -l project/src/ | grep -c .
        "#,
    );
}

#[test]
fn find_filters_executes_and_deletes() {
    case!().start(PROJECT).same(
        r#"
        echo new > project/src/deep/new; mkdir -p a/b/c/d/e; touch a/b/c/d/e/f a/b/x
        find . | sort
        find . -type f | sort; find . -type d | sort; find . -type l | sort; find . -type p
        find . -empty | sort; find . -size +100k | sort; find . -perm -4000; find . -perm /u=x -type f | sort
        find . -links +1 | sort; find . -samefile project/src/text | sort; find -L . -name key 2>&1 | sort
        find . -newer project/data/numbers -type f | sort; find . -mmin -5 -type f | sort
        find . -maxdepth 2 -mindepth 2 | sort; find . -depth -name 'e*' | sort
        find . -path '*deep*' -prune -o -type f -print | sort
        find project -name 'n*' -exec wc -c {} + | sort; find project/src -type f -execdir ls {} \; | sort
        find a -type f -delete; find a -depth -type d -empty -delete; ls
        find . -xtype l 2>/dev/null | sort; find . -inum "$(stat -c %i project/src/text)" | sort
        find "$PWD/project" -name text; cd project/src && find .. -name numbers
        "#,
    );
}

#[test]
fn du_counts_every_file_once() {
    case!().start(PROJECT).same(
        r#"
        cp project/data/block project/data/second
        du -b project/data/block project/data/second project/src/text
        du -ab --exclude='*' project | cut -f2
        # Of two names of one file it counts the one that it meets first.
        du -a --apparent-size -B1 . | cut -f2 | sed 's/text-again/text/' | sort
        du -ab . | grep 'text' | cut -f1
        du --inodes -s .
        cp project/data/block project/new; du -k project/new project/data/block | cut -f1 | sort -u | wc -l
        df . >/dev/null && df --output=target . | wc -l
        "#,
    );
}

#[test]
fn touch_sets_every_kind_of_time() {
    case!().start(PROJECT).same(
        r#"
        touch fresh; test -e fresh && echo made
        touch -c never; ls never 2>&1
        touch -d '2005-05-05 05:05:05.123456789' fresh project/src/text project/data newer
        touch -m -d '2006-06-06' fresh; touch -a -d '2004-04-04' fresh
        stat -c '%n %x %y' fresh
        touch -r project/data/numbers copied-time; stat -c %y copied-time
        touch -h -d '2007-07-07' project/src/soft project/src/dangling
        touch -d '2008-08-08' project/src/soft; stat -c '%n %y' project/src/soft project/src/text
        touch -t 197001010000.01 ancient; touch -d '2037-01-01' future
        mkdir d; touch -d '2009-09-09' d; stat -c '%n %y' d
        touch project/src/deep/er/leaf; find project -newermt 2020-01-01 -type f
        touch no-such/file 2>&1; touch fresh/file 2>&1; ls
        "#,
    );
}

#[test]
fn ln_makes_hard_links_and_symlinks() {
    case!().start(&[PROJECT, UNLINKED].concat()).same(
        r#"
        ln project/data/numbers n1; ln n1 n2; stat -c '%n %h' n1 n2 project/data/numbers
        echo more >> n2; tail -1 project/data/numbers
        echo new > new; ln new new2; rm new; cat new2; stat -c %h new2
        rm project/data/numbers; stat -c %h n1
        ln project/src/text-again project/src/deep/third; stat -c %h project/src/text
        ln -s project/src s; cat s/text; ls s/
        ln -s "$PWD/project/data" absolute; ls absolute
        ln -s ../outside-name nowhere; cat nowhere 2>&1
        ln -sf n1 nowhere; readlink nowhere; tail -1 nowhere
        ln -sfn project/empty s; ls s; ln -sr project/src/deep/er/leaf relative; readlink relative
        ln -f n1 new2; stat -c %h n1
        ln new2 n2 2>&1; ln project hardlink-to-directory 2>&1; ln no-such x 2>&1
        ln -s loop loop; cat loop 2>&1; readlink -f project/src/soft
        ln -s here new-soft; ln -P new-soft soft-hard; stat -c '%F %h' soft-hard
        ln -L project/src/soft followed-hard; stat -c '%F %h' followed-hard
        cat project/src/loop-a 2>&1; readlink project/src/loop-a; realpath s/.. | sed "s|$BUFFER|B|"
        readlink -e s/nothing | sed "s|$BUFFER|B|"; readlink -m no/such/thing | sed "s|$BUFFER|B|"
        link n1 made-by-link; unlink n2; ls
        echo through > absolute/written; cat project/data/written
        "#,
    );
}

#[test]
fn stat_and_test_agree_on_files_of_both_kinds() {
    case!().start(PROJECT).same(
        r#"
        echo new > new; mkdir newdir; ln -s new newlink; mkfifo newpipe
        stat -c '%n %F %a %u %g %s %N' new newlink newpipe project/src/* private/key
        stat -c '%n %F %a %u %g' newdir project project/src private
        stat -c '%n %y' project/src/text project/data/numbers project/data
        stat -L -c '%n %F' newlink project/src/soft; stat no-such 2>&1; stat project/src/dangling -L 2>&1
        for f in new newdir newlink newpipe project/src/text project/src/dangling project/src/tool private/key no-such; do
            for t in -e -f -d -h -p -r -w -x -s -u -k; do test $t $f && printf '%s %s\n' "$t" "$f"; done
        done
        test project/src/text -ef project/src/text-again && echo same file
        test new -nt project/src/text && echo newer; test project/data/numbers -ot new && echo older
        stat -f -c %T . | grep -c .
        [ "$(stat -c %d new newdir newpipe project project/data/numbers | sort -u | wc -l)" = 1 ] && echo one device
        "#,
    );
}

#[test]
fn sort_uses_temporary_files_in_the_buffer() {
    case!().start(PROJECT).same(
        r#"
        mkdir tmp
        seq 200000 -1 1 > down
        sort -n -S 64k -T tmp down -o up; head -2 up; tail -2 up; ls tmp
        sort -n -S 64k -T tmp down -o down; cmp up down && echo sorted in place
        sort -S 64k -T tmp --parallel=2 project/data/numbers | md5sum
        sort -c up 2>&1 | cut -c1-20; sort -T no-such -S 64k up 2>&1 >/dev/null | head -1
        "#,
    );
}

#[test]
fn truncate_and_dd_change_files_in_the_middle() {
    case!().start(PROJECT).same(
        r#"
        truncate -s 5 project/src/text; cat project/src/text; stat -c '%s %h' project/src/text-again
        truncate -s 1M hole; truncate -s +10 hole; truncate -s -5 hole; stat -c %s hole
        truncate -s 100 project/data/numbers; truncate -s 200 project/data/numbers; od -c project/data/numbers | tail -4
        truncate -r project/src/text hole; stat -c %s hole
        truncate -c -s 3 no-such; ls no-such 2>&1; truncate -s 3 project 2>&1
        printf abc | dd of=project/data/block bs=1 seek=1000 conv=notrunc status=none; stat -c %s project/data/block
        dd if=project/data/block bs=1 skip=999 count=5 status=none; echo
        printf end | dd of=fresh bs=1 seek=5000 status=none; stat -c %s fresh
        dd if=/dev/zero of=direct bs=4096 count=4 oflag=dsync status=none; stat -c %s direct
        dd if=project/data/block of=copied bs=64k conv=fsync status=none; cmp project/data/block copied
        printf app | dd of=project/src/tool oflag=append conv=notrunc status=none; tail -c 5 project/src/tool
        fallocate -l 100000 allocated && stat -c %s allocated
        fallocate -p -o 4096 -l 4096 project/data/block && md5sum project/data/block
        split -b 100000 project/data/block part-; ls part-*; cat part-* | cmp - project/data/block
        csplit -s project/src/tool 2; ls xx*; shred -u -n 1 part-aa; ls part-aa 2>&1
        tee one two < project/src/deep/er/leaf; tee -a one < project/src/deep/er/leaf; cat one
        "#,
    );
}

#[test]
fn a_fifo_connects_two_processes() {
    case!().start(PROJECT).same(
        r#"
        mkfifo -m 640 new; stat -c '%F %a' new
        seq 1 50000 > new & md5sum < new; wait
        cat project/src/pipe > got & cat project/data/numbers > project/src/pipe; wait; cmp got project/data/numbers
        mv new moved; echo through > moved & cat moved; wait
        test -p moved && rm moved; ls moved 2>&1
        mkfifo new new 2>&1; ls new
        "#,
    );
}

#[test]
fn chmod_and_mkdir_follow_modes_and_umask() {
    case!().start(PROJECT).same(
        r#"
        (umask 077; touch a; mkdir b); (umask 002; touch c; mkdir d); umask 000; touch e; mkdir f
        mkdir -m 2755 sgid; mkdir -p -m 700 one/two/three; stat -c '%n %a' a b c d e f sgid one one/two one/two/three
        chmod 444 project/src/text; chmod u+x,g-w,o= project/data/numbers; chmod -R go-rwx project/src/deep
        chmod 0 a; chmod 1777 b; chmod 6755 e; chmod --reference=project/src/tool c
        chmod 750 project; chmod u=rwx,go=rx project/src/soft; chmod 600 project/src/dangling 2>&1
        find . -printf '%m %P\n' | sort -k2
        mkdir project 2>&1; mkdir a/b 2>&1; mkdir no/such 2>&1; rmdir -p one/two/three; ls -d one 2>&1
        mktemp -p . XXXXXX | wc -c; mktemp -d -p project XXXXXXXX | wc -c; rm -r ./??????; rm -r project/????????
        "#,
    );
}

#[test]
fn chown_changes_owners_on_both_sides() {
    forebay_testkit::skip_unless!(forebay_testkit::is_root(), "chown needs root");
    case!().start(PROJECT).same(
        r#"
        echo new > new; mkdir -p dir/sub; touch dir/sub/f; ln -s new link
        chown 1001:1002 new; chown -R 1003:1004 dir; chown 1005 project/src/text; chgrp 1006 project/data
        chown -h 1007:1008 link project/src/dangling; chown -R 1009 project/src/deep
        find . -printf '%U %G %m %P\n' | sort -k4
        chmod 4755 new; chown 1010 new; stat -c '%a %u' new
        "#,
    );
}

#[test]
fn text_tools_read_and_rewrite_in_place() {
    need!("sed", "awk", "patch");
    case!().start(&[PROJECT, UNLINKED].concat()).same(
        r#"
        sed -i 's/second/2nd/' project/src/text; cat project/src/text; stat -c '%a %h' project/src/text
        sed -i.bak 's/^1/one/' project/data/numbers; head -3 project/data/numbers project/data/numbers.bak
        awk '{ print > ("out" NR % 3) }' project/src/text-again; cat out0 out1 out2
        grep -rn 'deep' . | sort; grep -c . project/data/*; grep -l x -r project | sort
        diff project/src/text project/src/text-again > changes; patch -s project/src/text-again < changes 2>&1; cat project/src/text-again
        head -5 project/data/numbers; tail -n +19998 project/data/numbers; tac project/src/text; nl project/src/text
        paste project/src/text project/src/text; comm project/src/text project/src/text-again
        join project/src/text project/src/text; uniq -c project/src/text; cut -c1-3 project/src/text
        md5sum project/data/* > sums; md5sum -c sums; sha256sum project/data/block; cksum project/src/text; wc -lwc project/data/* project/src/text*
        cmp project/data/block project/data/numbers 2>&1; od -c private/key; base64 private/key; xargs -a project/src/text echo
        env -C project/src pwd | sed "s|$BUFFER|B|"; nohup cat project/src/tool; sync project/src/tool; sync -f .
        "#,
    );
}

#[test]
fn vim_writes_files_that_others_have_made() {
    need!("vim");
    case!().start(PROJECT).same(
        r#"
        edit() { vim -es -u NONE -i NONE -n -c "$1" -c 'wq!' "$2" </dev/null; echo "exit $?"; }
        edit 'normal Goadded' project/src/text
        for copy in yes no auto; do
            edit "set backup backupcopy=$copy | normal Goadded by $copy" project/data/numbers
        done
        edit 'normal ggdd' project/src/text
        tail -3 project/src/text project/data/numbers; ls -A project/src project/data
        "#,
    );
}
