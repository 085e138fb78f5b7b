//! Access control lists, where a bridge of root serves several users: each may do what the list gives, and no more.

use super::{as_root, common, run_of_victim, user};
use crate::stage::{Stage, finish};
use std::fs;

/// Makes a tree in the folder `argv[2]`, or asks in it what users may do, as `argv[1]` says. Owners, groups, modes and lists are random, and the
/// same for the same seed `argv[3]`. Half of the directories are made for `argv[4] = old`, the other half for `new`.
const SCRIPT: &str = r#"
import os, random, struct, sys, zlib

act, root, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
USERS = [(1001, [2001]), (1002, [2002]), (1003, [2001, 2003]), (1004, [])]

def dice(name):
    return random.Random(zlib.crc32(name.encode()) + seed)

def change(path, name):
    r = dice(name)
    os.chown(path, r.choice([1001, 1002, 1003]), r.choice([2001, 2002, 2003]))
    os.chmod(path, r.choice([0o755, 0o750, 0o700, 0o770, 0o777, 0o705, 0o644, 0o660, 0o604]))
    if r.random() < 0.7:
        rights = lambda: r.choice([0, 4, 5, 6, 7, 7])
        entries = [(1, rights(), -1)]
        entries += [(2, rights(), user) for user in sorted(r.sample([1001, 1002, 1004], r.randrange(3)))]
        entries += [(4, rights(), -1)]
        entries += [(8, rights(), group) for group in sorted(r.sample([2001, 2002, 2003], r.randrange(3)))]
        entries += [(16, rights(), -1), (32, rights(), -1)]
        text = b''.join(struct.pack('<HHi', *entry) for entry in entries)
        os.setxattr(path, 'system.posix_acl_access', struct.pack('<I', 2) + text)

DIRS = [f'd{n}/sub' if n % 3 == 2 else f'd{n}' for n in range(12)]
FILES = ['f0', 'f1', 'f2']

def make(part):
    for n, name in enumerate(DIRS):
        if (n % 2 == 0) != (part == 'old'):
            continue
        os.makedirs(f'{root}/{name}')
        for file in FILES:
            with open(f'{root}/{name}/{file}', 'w') as f:
                f.write(name)
            change(f'{root}/{name}/{file}', f'{name}/{file}')
        change(f'{root}/{name}', name)
        if '/' in name:
            change(f'{root}/{os.path.dirname(name)}', os.path.dirname(name))

def answer(what, f):
    try:
        f()
        print(what, 'may')
    except OSError as e:
        print(what, e.strerror)

def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(path)

def ask():
    for name in DIRS:
        place = f'{root}/{name}'
        answer(f'lists {name}', lambda: os.listdir(place))
        answer(f'creates in {name}', lambda: create(f'{place}/new'))
        answer(f'makes a directory in {name}', lambda: (os.mkdir(f'{place}/dir'), os.rmdir(f'{place}/dir')))
        for file in FILES:
            path = f'{place}/{file}'
            answer(f'looks at {name}/{file}', lambda: os.stat(path))
            for how, flags in [('reads', os.O_RDONLY), ('writes', os.O_WRONLY), ('changes', os.O_RDWR)]:
                answer(f'{how} {name}/{file}', lambda: os.close(os.open(path, flags)))
        answer(f'renames in {name}', lambda: (os.rename(f'{place}/f0', f'{place}/g0'), os.rename(f'{place}/g0', f'{place}/f0')))

def ask_as_each():
    for uid, groups in USERS:
        print(uid, flush=True)
        pid = os.fork()
        if pid == 0:
            os.setgroups(groups[1:])
            os.setgid((groups + [3000])[0])
            os.setuid(uid)
            ask()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)

if act == 'make':
    make(sys.argv[4])
elif os.getuid() == 0:
    ask_as_each()
else:
    ask()
"#;

/// Fails where the answers differ, and if they are all alike.
fn compare(seed: u32, native: &str, buffer: &str) {
    let differ = native.lines().zip(buffer.lines()).filter(|(a, b)| a != b);
    let differ: Vec<_> = differ.collect();
    assert!(
        differ.is_empty() && native.lines().count() == buffer.lines().count(),
        "seed {seed}: natively, and in the buffer: {differ:#?}"
    );
    let may = |line: &&str| line.ends_with(" may");
    let (may, may_not): (Vec<_>, Vec<_>) = native.lines().partition(may);
    assert!(
        may.len() > 20 && may_not.len() > 20,
        "{} may, {} may not",
        may.len(),
        may_not.len()
    );
}

fn natively(stage: &Stage, script: &str) -> String {
    let mut command = stage.command("bash");
    command.args(["-c", &format!("set -e; {script}")]);
    finish(command).ends_with(0).out
}

#[test]
fn what_a_list_gives_and_refuses_is_given_and_refused_in_the_buffer() {
    as_root!();
    let stage = Stage::new();
    fs::write(stage.path("lists.py"), SCRIPT).unwrap();
    let py = format!("{} lists.py", common::PYTHON);
    for seed in [1, 2, 3] {
        let before = format!(
            "chmod 755 .; mkdir -p native/{seed} pfs/{seed}; \
             {py} make native/{seed} {seed} old; {py} make pfs/{seed} {seed} old"
        );
        natively(&stage, &before);
        // The second time what is written to is in the buffer.
        let script = |place: &str| {
            let tree = format!("{place}/{seed} {seed}");
            format!("set -e; {py} make {tree} new; {py} ask {tree}; {py} ask {tree}")
        };
        let work = stage.script_command(&["--no-drain", "-q"], &script("pfs"));
        let found = finish(work).ends_with(0).out;
        compare(seed, &natively(&stage, &script("native")), &found);
    }
}

#[test]
fn a_bridge_of_ones_own_knows_what_lists_give_on_files_of_others() {
    const USER: u32 = 1004;
    as_root!();
    let stage = Stage::new();
    fs::write(stage.path("lists.py"), SCRIPT).unwrap();
    let py = format!("{} lists.py", common::PYTHON);
    for seed in [4, 5, 6] {
        let mut run = run_of_victim(&stage, USER);
        let make = |tree: &str| format!("{py} make {tree} {seed} old; {py} make {tree} {seed} new");
        let tree = |place: &str| format!("own/{place}/{seed}");
        let both =
            [tree("native"), tree("pfs")].map(|tree| format!("mkdir -p {tree}; {}", make(&tree)));
        natively(&stage, &format!("chmod 755 .; {}", both.join("; ")));
        let ask = |place: &str| format!("{py} ask {0} {seed}; {py} ask {0} {seed}", tree(place));
        let mut bare = user(&stage, USER, "sh");
        bare.args(["-c", &ask("native")]);
        run.args(["--no-drain", "-q", "--", "sh", "-c", &ask("pfs")]);
        let (bare, run) = (finish(bare).ends_with(0), finish(run).ends_with(0));
        compare(seed, &bare.out, &run.out);
    }
}
