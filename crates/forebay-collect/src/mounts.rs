//! Which mounts a log lists, by Darshan's rules: no pseudo file systems, NFS last, at most 64.

use darshan_log::Mount;
use std::path::Path;

/// Most mounts that a log lists.
const MOST: usize = 64;

/// File systems that hold no data of programs.
const PSEUDO: &[&str] = &[
    "autofs",
    "bdev",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "none",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "rootfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
];

/// Chooses the mounts for a log from the text of `/proc/self/mounts` (proc(5)). A mount that Darshan would skip is
/// kept if files of the job are on it.
pub fn for_log<'p>(text: &str, job_paths: impl Iterator<Item = &'p str>) -> Vec<Mount> {
    let all = parse(text);
    let mut used = vec![false; all.len()];
    for path in job_paths {
        if let Some(at) = mount_of(&all, path) {
            used[at] = true;
        }
    }
    let is_kept = |(mount, used): &(Mount, bool)| {
        *used || (!PSEUDO.contains(&mount.fs_type.as_str()) && mount.path.starts_with('/'))
    };
    let mut kept: Vec<(Mount, bool)> = all.into_iter().zip(used).filter(is_kept).collect();
    // The limit cuts mounts without files of the job first. NFS comes last, as from Darshan.
    let mut unused = MOST.saturating_sub(kept.iter().filter(|(_, used)| *used).count());
    kept.retain(|(_, used)| {
        let fits = *used || unused > 0;
        unused -= usize::from(fits && !used);
        fits
    });
    kept.truncate(MOST);
    kept.sort_by_key(|(mount, _)| is_nfs(mount));
    kept.into_iter().map(|(mount, _)| mount).collect()
}

fn is_nfs(mount: &Mount) -> bool {
    mount.fs_type.starts_with("nfs")
}

/// Parses the mounts. Of two mounts at one place the later hides the earlier.
fn parse(text: &str) -> Vec<Mount> {
    let mut all: Vec<Mount> = Vec::new();
    for line in text.lines() {
        let mut fields = line.split(' ');
        let (Some(_device), Some(path), Some(fs_type)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let path = unescape(path);
        // The mounts of a log are lines, with a tab in each.
        if path.contains(['\n', '\t']) {
            continue;
        }
        all.retain(|mount| mount.path != path);
        all.push(Mount {
            fs_type: fs_type.to_owned(),
            path,
        });
    }
    all
}

/// Replaces `\040` and its like, which stand for blanks in `/proc/self/mounts`.
fn unescape(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

pub fn mount_of(all: &[Mount], path: &str) -> Option<usize> {
    let path = Path::new(path);
    (0..all.len())
        .filter(|&at| path.starts_with(&all[at].path))
        .max_by_key(|&at| all[at].path.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
rootfs / rootfs rw 0 0
/dev/sda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
mds@tcp:/fs /scratch lustre rw 0 0
/dev/sdb1 /mnt/with\\040blank xfs rw 0 0
cut";

    fn listed(job_paths: &[&str]) -> Vec<String> {
        let mounts = for_log(TEXT, job_paths.iter().copied());
        mounts
            .into_iter()
            .map(|m| format!("{} {}", m.fs_type, m.path))
            .collect()
    }

    #[test]
    fn pseudo_file_systems_are_left_out_and_nfs_comes_last() {
        let expected = [
            "ext4 /",
            "lustre /scratch",
            "xfs /mnt/with blank",
            "nfs4 /home",
        ];
        assert_eq!(listed(&["/etc/x"]), expected);
    }

    #[test]
    fn a_skipped_mount_with_files_of_the_job_is_kept() {
        assert!(listed(&["/dev/shm/x"]).contains(&"tmpfs /dev/shm".to_owned()));
        assert!(!listed(&["/dev/shmem"]).contains(&"tmpfs /dev/shm".to_owned()));
    }

    #[test]
    fn the_mounts_of_the_job_are_among_the_64() {
        let mut text: String = (0..200).map(|n| format!("d /m{n} xfs rw 0 0\n")).collect();
        text += "d /mine nfs rw 0 0\n";
        let mounts = for_log(&text, ["/mine/f"].into_iter());
        assert_eq!(mounts.len(), 64);
        assert_eq!(mounts[63].path, "/mine");
    }
}
