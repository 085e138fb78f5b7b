//! bash and dash: redirections, working directories, globs, jobs.

use crate::PROJECT;
use crate::common::{case, need};

#[test]
fn redirections_read_write_append_and_refuse() {
    case!().start(PROJECT).same(
        r#"
        echo one > f; echo two >> f; echo three >> project/src/text; cat < f < project/src/text
        cat project/src/text-again; { echo a; echo b >&2; } > both 2>&1; cat both
        echo err 2> only-err >&2; cat only-err; echo x &> amp; echo y &>> amp; cat amp
        set -C; echo again > f; echo forced >| f; echo fresh > f2; set +C; cat f f2
        : > f; wc -c < f; > f3; ls f3; echo x > no-such/f; cat < no-such; echo x > project
        echo 0123456789 > rw; printf AB 1<> rw; cat rw
        exec 7<> rw; read -r -n 3 -u 7 x; echo "$x"; echo mid >&7; exec 7>&-; cat rw
        exec 8> eight; echo a >&8; (echo b >&8); sh -c 'echo c >&8'; exec 8>&-; cat eight
        exec 9< project/data/numbers; read -r -u 9 a; read -r -u 9 b; exec 9<&-; echo "$a $b"
        exec {fd}>> f; echo via >&$fd; exec {fd}>&-; cat f
        while read -r line; do printf '<%s>' "$line"; done < project/src/text; echo
        { cat; } < f > f4; cat f4; cat f4 - f4 <<< here; > project/src/text; wc -c project/src/text-again
        "#,
    );
}

#[test]
fn heredocs_work_with_their_temporary_files_in_the_buffer() {
    case!().start(PROJECT).same(
        r#"
        mkdir tmp; export TMPDIR=$PWD/tmp
        cat <<END > doc
        $(pwd | sed "s|$BUFFER|B|")
END
        cat doc
        cat <<'END'
        $literal
END
        # Larger than a pipe holds: bash must go through a file.
        big=$(seq 1 40000); wc -l <<< "$big"; md5sum <<END
$big
END
        dash -c 'cat <<X
dash
X'
        ls -A tmp
        "#,
    );
}

#[test]
fn cd_and_pwd_follow_directories_links_and_renames() {
    case!().start(PROJECT).same(
        r#"
        here() { echo "$(pwd | sed "s|$BUFFER|B|") $(/bin/pwd | sed "s|$BUFFER|B|") ${OLDPWD+${OLDPWD/$BUFFER/B}}"; }
        here; cd project/src; here; cat text; cd deep/er; here; cat leaf; cat ../../text; cd ../..; here
        cd -; cd "$BUFFER"; mkdir -p new/a/b; cd new/a/b; here; echo x > y; cat ../b/y; ls ../..
        cd ../../..; ln -s new/a link; cd link; here; cd ..; here; cd -P link; here; cd ..; here
        pushd "$BUFFER/project" | sed "s|$BUFFER|B|g"; pushd data > /dev/null; here; popd > /dev/null; here; dirs | sed "s|$BUFFER|B|g"
        cd "$BUFFER/new/a/b"; mv "$BUFFER/new" "$BUFFER/moved"; /bin/pwd | sed "s|$BUFFER|B|"; cat y; echo z > z; ls "$BUFFER/moved/a/b"
        cd "$BUFFER/project/src"; mv "$BUFFER/project" "$BUFFER/p2"; /bin/pwd | sed "s|$BUFFER|B|"; cat text; echo w > w; ls "$BUFFER/p2/src"
        cd "$BUFFER"; mkdir gone; cd gone; rmdir ../gone; /bin/pwd 2>/dev/null || echo nowhere; echo x > y 2>/dev/null || echo refused; cd "$BUFFER"
        cd no-such; cd p2/src/text; cd /; here; cd "$OUTSIDE"; echo out > o; cat o; cd "$BUFFER"; CDPATH=p2 cd src | sed "s|$BUFFER|B|"; here
        (cd deep; here); here; cd /proc/self/cwd; cat text; cd ..//..///p2/./src/; here
        "#,
    );
}

#[test]
fn globs_see_the_merged_tree() {
    case!().start(PROJECT).same(
        r#"
        touch project/src/new1 project/src/.hidden; mkdir -p project/x/y; touch project/x/y/z; rm project/src/tool
        echo *; echo project/*; echo project/src/*; echo project/src/.h*; echo project/*/*; echo */src/[nt]*
        shopt -s globstar nullglob dotglob extglob
        echo **; echo **/; echo no*such; echo project/src/!(new*); echo */*/*/
        for f in project/src/*; do [ -f "$f" ] && echo "$f"; done; ls project/src/t* ; compgen -f project/src/ | sort
        dash -c 'echo project/*/*; for f in *; do echo $f; done'
        "#,
    );
}

#[test]
fn subshells_jobs_and_substitutions_share_files() {
    case!().start(PROJECT).same(
        r#"
        for i in 1 2 3 4 5 6 7 8; do (for j in $(seq 1 100); do echo "$i $j" >> log; done) & done; wait; wc -l < log; sort -n log | md5sum; rm log
        diff <(cat project/src/text) <(sed 's/second/2nd/' project/src/text); echo x | tee >(cat > teed) > /dev/null; wait; while [ ! -s teed ]; do :; done; cat teed
        x=$(< project/src/text); echo "$x"; y=$(cat project/data/numbers | tail -1); echo "$y"; mapfile -t lines < project/src/text; echo "${#lines[@]}"
        coproc cat; echo co >&"${COPROC[1]}"; exec {COPROC[1]}>&-; cat <&"${COPROC[0]}"; wait
        echo 'sourced=yes; echo "in $BASH_SOURCE"' > lib.sh; . ./lib.sh; source lib.sh; echo $sourced
        (trap 'echo bye > bye' EXIT; exit 3); echo $?; cat bye; (exec cat project/src/text)
        seq 1 1000 | xargs -P 4 -n 50 sh -c 'for i; do echo $i > n$i; done' sh; ls n* | wc -l; cat n* | sort -n | md5sum; rm n*
        { echo a; sh -c 'echo b'; (echo c); } > group; cat group; yes | head -100000 | md5sum > sum; cat sum
        (ulimit -f 8; head -c 100000 /dev/zero > limited) 2>/dev/null; stat -c %s limited
        "#,
    );
}

#[test]
fn scripts_in_the_buffer_run_by_path_and_by_search() {
    case!().start(PROJECT).same(
        r#"
        project/src/tool 1 2; cd project/src; ./tool x; cd ../..; PATH=$PWD/project/src:$PATH tool found
        mkdir bin; printf '#!/bin/bash\necho "$0 $BASH_SOURCE" | sed "s|$BUFFER|B|g"\n. "$(dirname "$0")/lib"\n' > bin/s; echo 'echo lib' > bin/lib
        bin/s 2>&1 | sed "s|$BUFFER|B|g"; chmod +x bin/s; bin/s; "$PWD/bin/s"; PATH=bin s; ln -s ../bin/s project/s; project/s
        bash bin/s; sh project/src/tool y; chmod -x bin/s; bin/s 2>&1 | sed 's/.*: //'; cp /bin/echo bin/echo; bin/echo copied; ./bin/echo again
        printf 'echo no shebang\n' > bin/n; chmod +x bin/n; bin/n; printf '#!%s/bin/echo interpreted\n' "$PWD" > bin/i; chmod +x bin/i; bin/i | sed "s|$BUFFER|B|g"
        printf '#!no/such\n' > bin/bad; chmod +x bin/bad; bin/bad 2>/dev/null; echo $?; bin/none 2>/dev/null; echo $?; bin 2>/dev/null; echo $?
        env -i bin/echo clean environment; exec bin/echo replaced
        "#,
    );
}

#[test]
fn dash_runs_the_same_script() {
    need!("dash");
    case!().start(PROJECT).same(
        r#"
        cat > script <<'END'
        cd project; for f in */*; do [ -f "$f" ] && wc -c "$f"; done
        exec 3> ../three; echo three >&3; exec 3>&-; cat ../three
        (cd src && cat text > copy); cat src/copy; echo x >> src/copy; rm data/block; ls data
        while read -r a; do echo "$a" >> ../acc; done < src/text; cat ../acc; umask 027; mkdir m; touch m/t
END
        dash script; dash -c 'set -C; echo a > three' 2>/dev/null; echo $?
        "#,
    );
}

#[test]
fn the_exit_code_of_the_command_comes_through() {
    case!().ends_with(42).same("echo data > file; exit 42");
}
