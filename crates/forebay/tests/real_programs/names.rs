//! Names and paths of the greatest length that the kernel allows.

use crate::common::{PYTHON, case, need};

#[test]
fn a_b_and_a_slash_b_are_different_files() {
    case!().start("mkdir c; echo 'c/d' > c/d; echo c_d > c_d").same(
        r#"
        mkdir a; echo 'a/b' > a/b; echo a_b > a_b; echo 'a\b' > 'a\b'; echo 'a%2Fb' > a%2Fb; echo a.b > a.b
        cat a/b a_b 'a\b' a%2Fb a.b c/d c_d
        rm a/b; cat a_b; mv a_b a/b; cat a/b; ls -A a c; rm c_d; cat c/d; rm c/d; touch c_d; ls -A c
        # The order of keys with a byte below the slash between directory and name.
        mkdir x 'x!' x-y; touch x/1 'x!/2' x-y/3; ls x 'x!' x-y; rm -r x; ls 'x!' x-y; mv 'x!' x; ls x x-y
        "#,
    );
}

#[test]
fn names_of_255_bytes_work_and_of_256_do_not() {
    let long = "L".repeat(255);
    case!().start(&format!("mkdir {long}; echo old > {long}/{long}")).same(
        r#"
        n=$(printf 'n%.0s' $(seq 1 255)); l=$(printf 'L%.0s' $(seq 1 255))
        echo new > $n; cat $n; mkdir d; mv $n d/; cat d/$n; ln -s $n d/link; cat d/link; ln d/$n $l/$n; ls d $l | md5sum
        cat $l/$l; mv $l/$l $l/x; mv $l d2; cat d2/x
        echo x > ${n}n 2>/dev/null || echo too long; mkdir ${n}n 2>&1 | grep -o 'File name too long'
        cat ${n}n 2>&1 | grep -o 'File name too long'; mv d/$n ${n}n 2>&1 | grep -o 'File name too long'; rm ${n}n 2>&1 | grep -o 'File name too long'
        ln -s x ${n}n 2>&1 | grep -o 'File name too long'; ls ${n}n/x 2>&1 | grep -o 'File name too long'
        "#,
    );
}

#[test]
fn paths_of_4000_bytes_work_absolute_and_relative() {
    need!("python3");
    // Two folders with paths of 4,000 bytes: one that was on the PFS, and one that the run makes.
    let python = format!(
        r#"
        {PYTHON} - <<'END'
import errno, os
buffer = os.environ["BUFFER"]
print(len(os.getcwd()) == len(buffer))

def grow(base, letter, length):
    path = base
    while length - len(path) > 1:
        room = length - len(path) - 1
        path += "/" + letter * (room if room <= 200 else min(200, room - 2))
    return path

def attempt(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]

new = grow(buffer, "n", 4000)
os.makedirs(new)
for length in (4001, 4002, 4050, 4094, 4095, 4096, 4200):
    name = new + "/" + "f" * max(1, length - len(new) - 1)
    print(length, len(name), attempt(lambda: open(name, "w").write("deep")), attempt(lambda: os.stat(name).st_size),
          attempt(lambda: os.rename(name, name[:-1] + "g")), attempt(lambda: os.stat(name[:-1] + "g").st_size))
print(len(os.listdir(new)))
old = [d for d in os.listdir(".") if d.startswith("o")][0]
deepest = max((d for d, _, _ in os.walk(buffer + "/" + old)), key=len)
print(attempt(lambda: open(deepest + "/leaf").read()), attempt(lambda: open(deepest + "/more", "w").write("more")))
print(sorted(os.listdir(deepest)))
relative = grow(".", "r", 4000)
os.makedirs(relative)
print(attempt(lambda: open(relative + "/short", "w").write("relative")), attempt(lambda: open(relative + "/short").read()))
# By way of working directories and descriptors a path may be longer, up to 4,095 bytes below the buffer.
os.chdir(new)
print(os.getcwd() == new)
print(attempt(lambda: os.makedirs("below/that")), attempt(lambda: open("below/that/leaf", "w").write("leaf")))
fd = os.open("below/that", os.O_RDONLY)
print(attempt(lambda: os.listdir(fd)), attempt(lambda: os.stat("leaf", dir_fd=fd).st_size))
print(attempt(lambda: os.unlink("leaf", dir_fd=fd)), attempt(lambda: os.listdir("below/that")))
os.close(fd)
os.chdir(buffer)
os.rename(new.split("/")[len(buffer.split("/"))], "renamed")
print(len(max((d for d, _, _ in os.walk("renamed")), key=len)) > 3800)
END
        find . -name leaf | wc -c; find renamed -type f | awk '{{ print length }}' | sort -n; rm -rf r*; ls | cut -c1
        "#
    );
    case!()
        .start("o=$(printf 'o%.0s' $(seq 1 190)); p=$o; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do p=$p/$o; done; mkdir -p $p; echo old > $p/leaf")
        .same(&python);
}

#[test]
fn a_tree_of_1900_levels_is_made_drained_and_removed() {
    need!("python3");
    let python = format!(
        r#"
        {PYTHON} - <<'END'
import os
for n in range(1900):
    os.mkdir(str(n % 10)); os.chdir(str(n % 10))
open("bottom", "w").write("deep")
print(len(os.getcwd()) - len(os.environ["BUFFER"]))
END
        find 0 -name bottom | wc -c; rm -r old; ls
        "#
    );
    case!()
        .start("p=old; for i in $(seq 1 1900); do p=$p/x; done; mkdir -p $p; echo old > $p/leaf")
        .same(&python);
}

#[test]
fn names_need_not_be_utf_8() {
    case!()
        .start(r#"mkdir $'d\xff\xfe'; echo old > $'d\xff\xfe'/$'\x80old'; ln -s $'d\xff\xfe' $'l\xc3'"#)
        .same(
            r#"
            for name in $'\x01' $'\xff' $'\xc3\x28' $'new\nline' $'tab\t' ' ' '  lead' 'trail ' '-dash' '*' '?' '[a]' '"' "'" '\' '$(x)' '~' $'\xe2\x82' ... '..a' 'ü' $'u\xcc\x88'; do
                printf '%s' "$name" > "./$name"; od -An -c < "./$name"; mkdir -p "sub/$name"; cp -- "./$name" "sub/$name/$name"
            done
            ls -A --quoting-style=c; find sub -type f -print0 | sort -z | od -An -c | md5sum
            cat $'l\xc3'/$'\x80old'; mv $'d\xff\xfe'/$'\x80old' $'d\xff\xfe'/$'\x81'; ls --quoting-style=c $'l\xc3'/ ; readlink $'l\xc3' | od -An -c
            mv $'d\xff\xfe' $'\xfe'; ls -A --quoting-style=c $'\xfe'; rm -r sub/$'\xff'; ls sub | wc -l
            "#,
        );
}

#[test]
fn a_directory_of_many_names_lists_each_once() {
    case!()
        .start("mkdir big; (cd big; seq -f 'o%05g' 1 5000 | xargs touch)")
        .same(
            r#"
            (cd big; seq -f 'n%05g' 1 5000 | xargs touch; seq -f 'o%05g' 1 2 5000 | xargs rm; seq -f 'n%05g' 1 3 5000 | xargs rm)
            ls big | wc -l; ls -U big | sort | md5sum; ls big | md5sum; find big -type f | wc -l
            "#,
        );
}
