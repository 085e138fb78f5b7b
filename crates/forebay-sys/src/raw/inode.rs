//! Reads the project of an inode, which only an `ioctl` tells.

use crate::Sys;
use rustix::ioctl::{Getter, ioctl};
use std::os::fd::BorrowedFd;

/// `FS_IOC_FSGETXATTR`.
const GET_FSXATTR: u32 = 0x801c_581f;

/// `struct fsxattr` of <linux/fs.h>.
#[repr(C)]
struct FsXattr {
    xflags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

/// The project that the inode belongs to; 0 for none.
///
/// # Errors
/// Those of `ioctl`; ENOTTY if the file system has no projects.
pub fn project(fd: BorrowedFd<'_>) -> Sys<u32> {
    // SAFETY: the call writes a structure of the size that its number encodes, which is the size of `FsXattr`.
    let found: FsXattr = unsafe { ioctl(fd, Getter::<GET_FSXATTR, FsXattr>::new()) }?;
    Ok(found.project)
}

const _: () = assert!(size_of::<FsXattr>() == (GET_FSXATTR >> 16 & 0x3fff) as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Errno, has_inode_flags};
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_fresh_file_has_no_project_and_no_flags_where_there_are_such() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = File::create(dir.path().join("file")).unwrap();
        match project(file.as_fd()) {
            Ok(project) => assert_eq!(project, 0),
            Err(e) => assert!([Errno::NOTTY, Errno::OPNOTSUPP].contains(&e), "{e}"),
        }
        assert_eq!(has_inode_flags(file.as_fd()), Ok(false));
    }

    #[test]
    fn what_is_no_inode_of_a_file_system_has_no_project_to_tell() {
        let (reader, _writer) = crate::pipe().unwrap();
        assert_eq!(project(reader.as_fd()), Err(Errno::NOTTY));
        assert_eq!(has_inode_flags(reader.as_fd()), Ok(false));
    }
}
