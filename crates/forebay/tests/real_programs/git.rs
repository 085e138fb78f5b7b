//! git: lock files, renames, hard links, mmap of packs, and many small files.

use crate::common::{case, need};

/// Commit ids must not depend on the time of day, nor packs on the number of cores.
pub const GIT: &str = r#"
    export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.invalid GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.invalid
    export GIT_AUTHOR_DATE='2015-01-01T00:00:00Z' GIT_COMMITTER_DATE='2015-01-01T00:00:00Z'
    git config --global init.defaultBranch main
    git config --global pack.threads 1
    git config --global gc.auto 0
    git config --global advice.detachedHead false
    git config --global protocol.file.allow always
    git config --global safe.directory '*'
"#;

/// The index holds inode numbers and change times.
pub const INDEX: [&str; 1] = ["/index"];

#[test]
fn git_commits_checks_and_packs_a_repository() {
    need!("git");
    case!()
        .contents_change_in(INDEX)
        .afterwards(
            "git config --global safe.directory '*'; cd repo; git status --porcelain; git fsck --full --strict; git log --all --format='%H %s'",
        )
        .same(&format!(
            r#"{GIT}
            git init -q repo; cd repo
            for i in $(seq 1 60); do mkdir -p d$((i % 7)); seq 1 $((i * 20)) > d$((i % 7))/f$i; done
            git add -A; git commit -qm first; git rev-parse HEAD
            git mv d1 renamed; git rm -q d2/f2; echo change >> d3/f3; chmod +x d3/f3
            git status --porcelain; git commit -qam second; git rev-parse HEAD
            git fsck --full --strict; git count-objects -v | grep -v size
            git checkout -qb side HEAD~1; echo side > side; git add side; git commit -qm side
            git checkout -q main; git merge -q -m merge side; git log --format='%H %s'
            git gc -q; git fsck; git count-objects -v | grep -v size; ls .git/objects/pack | sed 's/.*[.]//' | sort
            git stash list; echo dirty > side; git stash -q; cat side; git stash pop -q; cat side; git checkout -q side 2>&1
            git tag -a -m tagged v1; git describe; git diff HEAD~1 --stat; git blame -s d3/f3 | tail -1
            git reset -q --hard HEAD~1; git clean -fdq; git reflog expire --expire=now --all; git gc -q --prune=now; git fsck
            git repack -adfq; git prune-packed; git verify-pack .git/objects/pack/*.idx && echo verified
            "#
        ));
}

#[test]
fn git_clones_between_buffer_and_outside() {
    need!("git");
    case!()
        .contents_change_in(INDEX)
        .start(&format!(
            "{GIT}\ngit init -q old; cd old; seq 1 1000 > a; mkdir b; echo b > b/c; git add .; git commit -qm old",
        ))
        .same(&format!(
            r#"{GIT}
            git -C old status --porcelain
            git clone -q old local; git -C local log --format=%H; ls -A local
            git clone -q --no-local old packed; git -C packed fsck
            git clone -q --bare old bare.git; git clone -q bare.git linked; git -C linked log --format=%H; git -C bare.git rev-parse HEAD
            # A link does not lead out of the buffer.
            git clone -q --no-hardlinks old "$OUTSIDE/clone"; cd "$OUTSIDE/clone"; echo more >> a; git commit -qam more
            git push -q "$BUFFER/bare.git" main; cd "$BUFFER"; git -C bare.git log --format='%H %s'
            git -C local pull -q "$BUFFER/bare.git" main; cat local/a | tail -1
            git -C local worktree add -q ../tree -b tree; ls tree; git -C tree status --porcelain; git -C local worktree list | wc -l
            cd old; echo again > b/c; git commit -qam again; git gc -q; git fsck; git archive HEAD | tar t
            "#
        ));
}

#[test]
fn git_rebases_and_bisects() {
    need!("git");
    case!().contents_change_in(INDEX).same(&format!(
        r#"{GIT}
        git init -q repo; cd repo
        for i in 1 2 3 4 5 6 7 8; do echo $i > f$i; echo $i >> all; git add .; git commit -qm "c$i"; done
        git checkout -qb topic HEAD~4; for i in a b c; do echo $i > t$i; git add .; git commit -qm "t$i"; done
        git rebase -q main; git log --format='%H %s'; git cherry-pick HEAD~1 --allow-empty 2>&1 | head -1
        git cherry-pick --abort 2>/dev/null; git bisect start -q HEAD HEAD~9 >/dev/null; git bisect run sh -c 'test ! -e f6' 2>&1 | grep -c 'first bad'
        git bisect reset -q; git status --porcelain
        "#
    ));
}
