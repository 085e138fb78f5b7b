//! Which door is taken, and what `forebay doctor` says.

use forebay_core::doors::*;
use forebay_core::mounting::{MountTrial, MountTrouble, NamespaceSettings};

const EXT4: i64 = 0xef53;
const TMPFS: i64 = 0x0102_1994;

fn failed(trouble: MountTrouble) -> MountTrial {
    MountTrial::Failed(trouble)
}

fn good() -> NodeFacts {
    NodeFacts {
        uid: 0,
        kernel: "6.18".to_owned(),
        storage: Ok(Storage {
            path: "/s".to_owned(),
            fs_type: EXT4,
            size_bytes: 200 << 30,
            free_bytes: 100 << 30,
            free_inodes: Some(1_000_000),
        }),
        sockets: Ok(("/run".to_owned(), TMPFS)),
        library: Ok(()),
        tables: Ok("/dev/shm".to_owned()),
        mount: MountTrial::Native,
        fusermount: Some("/bin/fusermount3".to_owned()),
        user_namespace: Ok(()),
        namespace_settings: NamespaceSettings {
            max_user_namespaces: Some(1),
            ..NamespaceSettings::default()
        },
        descriptors: (1024, 524_288),
        file_bytes: None,
        buffer: None,
    }
}

fn find(facts: &NodeFacts, about: &str) -> Check {
    let all = diagnose(facts).checks;
    let found = all
        .into_iter()
        .find(|check| check.about.in_words() == about);
    found.expect("there is such a check")
}

#[test]
fn auto_takes_the_mount_where_the_kernel_moves_the_bytes_and_says_why_not_elsewhere() {
    let no_library = Err("no LD_PRELOAD".to_owned());
    let door = |mount: &MountTrial, library| choose(mount, library).map(|c| (c.door, c.reason));
    let (mount, _) = door(&MountTrial::Native, &Ok(())).unwrap();
    assert_eq!(mount, Door::Mount);
    let plain = MountTrial::Plain("Linux 6.1".to_owned());
    let (library, reason) = door(&plain, &Ok(())).unwrap();
    assert_eq!(library, Door::Library);
    assert!(reason.contains("Linux 6.1"), "{reason}");
    // Any mount is better than none.
    assert_eq!(door(&plain, &no_library).unwrap().0, Door::Mount);
    for (trouble, words) in [
        (MountTrouble::NoDevice, "is not there"),
        (MountTrouble::DeviceDenied, "may not open"),
        (
            MountTrouble::NoNamespace("EPERM".to_owned()),
            "user namespace",
        ),
        (MountTrouble::NotPermitted, "not permitted"),
        (MountTrouble::Other("a reason".to_owned()), "a reason"),
    ] {
        let (library, reason) = door(&failed(trouble.clone()), &Ok(())).unwrap();
        assert_eq!(library, Door::Library);
        assert!(reason.contains(words) && !reason.contains('\n'), "{reason}");
        let neither = door(&failed(trouble), &no_library).unwrap_err();
        assert!(neither.contains(words) && neither.contains("no LD_PRELOAD"));
    }
}

#[test]
fn where_all_is_well_nothing_is_to_be_mended() {
    let diagnosis = diagnose(&good());
    assert!(diagnosis.works());
    for check in diagnosis.checks {
        assert_eq!(
            (check.health, check.remedy),
            (Health::Works, None),
            "{}",
            check.about.in_words()
        );
    }
}

#[test]
fn one_door_is_enough_and_a_door_without_storage_or_sockets_is_none() {
    let no_mount = NodeFacts {
        mount: failed(MountTrouble::NoDevice),
        ..good()
    };
    assert!(diagnose(&no_mount).works());
    let why = || "no".to_owned();
    for broken in [
        NodeFacts {
            library: Err(why()),
            ..no_mount
        },
        NodeFacts {
            storage: Err(why()),
            ..good()
        },
        NodeFacts {
            sockets: Err(why()),
            ..good()
        },
        NodeFacts {
            buffer: Some(Err(why())),
            ..good()
        },
    ] {
        let diagnosis = diagnose(&broken);
        assert!(!diagnosis.works());
        let mut failures = diagnosis.checks.iter();
        assert!(failures.any(|check| check.health == Health::Fails));
    }
}

#[test]
fn whatever_does_not_work_comes_with_what_mends_it() {
    let all_wrong = NodeFacts {
        uid: 1000,
        storage: Err("full".to_owned()),
        sockets: Err("too long".to_owned()),
        library: Err("not there".to_owned()),
        tables: Err("no room".to_owned()),
        mount: failed(MountTrouble::DeviceDenied),
        fusermount: None,
        user_namespace: Err("EPERM".to_owned()),
        descriptors: (256, 256),
        file_bytes: Some(1 << 20),
        ..good()
    };
    let diagnosis = diagnose(&all_wrong);
    assert!(!diagnosis.works());
    for check in diagnosis.checks {
        assert!(check.health != Health::Works, "{:?}", check.about);
        assert!(check.remedy.is_some(), "{:?}", check.about);
    }
}

#[test]
fn the_setting_that_forbids_user_namespaces_is_named() {
    let refused = NodeFacts {
        user_namespace: Err("EPERM".to_owned()),
        ..good()
    };
    let none = NamespaceSettings::default();
    for (namespace_settings, name) in [
        (
            NamespaceSettings {
                userns_clone: Some(0),
                ..none
            },
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            NamespaceSettings {
                max_user_namespaces: Some(0),
                ..none
            },
            "user.max_user_namespaces=",
        ),
        (
            NamespaceSettings {
                apparmor_restricts: Some(1),
                ..none
            },
            "AppArmor",
        ),
        (none, "seccomp"),
    ] {
        let facts = NodeFacts {
            namespace_settings,
            ..refused.clone()
        };
        let remedy = find(&facts, "namespaces").remedy.unwrap();
        assert!(remedy.contains(name), "{remedy}");
    }
}

#[test]
fn storage_that_is_memory_or_nearly_full_is_named_and_usable() {
    for (fs_type, free_bytes, free_inodes, words) in [
        (TMPFS, 100 << 30, None, "memory"),
        (EXT4, 5 << 20, None, "nearly full"),
        (EXT4, 100 << 30, Some(3), "few files"),
    ] {
        let mut facts = good();
        if let Ok(storage) = &mut facts.storage {
            (storage.fs_type, storage.free_bytes) = (fs_type, free_bytes);
            storage.free_inodes = free_inodes;
        }
        let found = find(&facts, "storage");
        assert_eq!(found.health, Health::Limited);
        assert!(found.found.contains(words), "{}", found.found);
        assert!(diagnose(&facts).works());
    }
}

#[test]
fn who_else_has_the_directory_stops_a_run_and_an_own_bridge_does_not() {
    let holders = [
        (Holder::Nobody, Health::Works),
        (Holder::Ours(7), Health::Works),
        (Holder::Left("/s".to_owned()), Health::Limited),
        (Holder::Other("user 7".to_owned()), Health::Fails),
    ];
    for (holder, health) in holders {
        let facts = NodeFacts {
            buffer: Some(Ok(Buffer {
                path: "/pfs".to_owned(),
                fs_type: EXT4,
                not_writable: None,
                holder,
            })),
            ..good()
        };
        assert_eq!(find(&facts, "lock").health, health);
        assert_eq!(diagnose(&facts).works(), health != Health::Fails);
        assert!(find(&facts, "buffer").found.contains("syncfs"));
    }
}

#[test]
fn a_limit_with_which_no_bridge_starts_fails_and_one_that_hurts_later_is_named() {
    let with = |most, file_bytes| NodeFacts {
        descriptors: (most, most),
        file_bytes,
        ..good()
    };
    let health_of = |facts: &NodeFacts| {
        let health = |about| find(facts, about).health;
        (
            health("descriptors"),
            health("file size"),
            diagnose(facts).works(),
        )
    };
    use Health::{Fails, Limited, Works};
    assert_eq!(health_of(&with(255, None)), (Fails, Works, false));
    assert_eq!(
        health_of(&with(256, Some(1 << 30))),
        (Limited, Limited, true)
    );
    assert_eq!(health_of(&with(8192, Some(1 << 20))), (Works, Fails, false));
    assert_eq!(health_of(&with(8192, None)), (Works, Works, true));
}
