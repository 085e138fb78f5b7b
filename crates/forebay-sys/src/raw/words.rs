//! The bridge's side of memory that clients can only read: the page that says whether names are durable, and the table of
//! names. `forebay-wire` defines what lies in them.

use super::check;
use super::memory::Mapping;
use crate::attributes::proc_link;
use crate::{Errno, Sys};
use forebay_wire::{DurabilityPage, NAME_TABLE_BYTES, NameTable, WORDS_BYTES};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals,
    ftruncate, memfd_create, open,
};
use rustix::mm::MapFlags;
use rustix::thread::gettid;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The page, for every thread of the bridge.
#[derive(Debug, Clone)]
pub struct DurabilityWords(Arc<Mapping>);

impl DurabilityWords {
    /// A new page that nobody owns, and its descriptor for clients.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn new() -> Sys<(Self, OwnedFd)> {
        let (mapping, for_clients) = shared("forebay-words", WORDS_BYTES, MapFlags::POPULATE)?;
        Ok((DurabilityWords(Arc::new(mapping)), for_clients))
    }

    /// The page.
    pub fn page(&self) -> &DurabilityPage {
        // SAFETY: the memory is mapped as long as `self` lives, and is one aligned page. Any bytes are a valid value,
        // because the page consists of atomics.
        unsafe { self.0.at.cast().as_ref() }
    }

    /// Makes the calling thread the owner of the page: the kernel writes the death of this thread into it. For a
    /// thread that uses no robust mutex of the C library.
    ///
    /// # Errors
    /// No memory, or the kernel has no robust futexes. The page stays without an owner then, and says nothing.
    pub fn own(&self) -> Sys<DurabilityOwner> {
        DurabilityOwner::new(self)
    }
}

/// Memory that this process can write and others can only read, and its descriptor for them. It can neither shrink nor grow.
fn shared(name: &str, bytes: usize, how: MapFlags) -> Sys<(Mapping, OwnedFd)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create(name, flags)?;
    match how.contains(MapFlags::POPULATE) {
        true => fallocate(&memory, FallocateFlags::empty(), 0, bytes as u64)?,
        // A page is taken when it is first written.
        false => ftruncate(&memory, bytes as u64)?,
    }
    let flags = MapFlags::SHARED | how;
    let mapping = Mapping::new(memory.as_fd(), bytes, flags)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    // The mapping of this process stays writable. Kernels before 5.1 lack this seal, and then the mode of the
    // memory alone keeps others from writing.
    match fcntl_add_seals(&memory, seals | SealFlags::FUTURE_WRITE) {
        Err(Errno::INVAL) => fcntl_add_seals(&memory, seals)?,
        sealed => sealed?,
    }
    fchmod(&memory, Mode::RUSR)?;
    let path = proc_link(memory.as_fd());
    let for_clients = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((mapping, for_clients))
}

/// The table of names, for every thread of the bridge.
#[derive(Debug)]
pub struct SharedNames(Mapping);

impl SharedNames {
    /// A new table that says nothing, and its descriptor for clients.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn new() -> Sys<(Self, OwnedFd)> {
        let (mapping, for_clients) = shared("forebay-names", NAME_TABLE_BYTES, MapFlags::empty())?;
        Ok((SharedNames(mapping), for_clients))
    }

    /// The table.
    pub fn table(&self) -> &NameTable {
        // SAFETY: as of `DurabilityWords::page`.
        unsafe { self.0.at.cast().as_ref() }
    }
}

/// The calling thread owns the page as long as this value lives.
#[derive(Debug)]
pub struct DurabilityOwner {
    words: DurabilityWords,
    list: Mapping,
    /// The list that the C library has given to the kernel.
    before: (*mut libc::c_void, usize),
    /// The value belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

/// `struct robust_list_head` of <linux/futex.h>, and the one node of this list. A node is a pointer to the next one; the
/// last points to the head. The futex of a node lies `offset` bytes after it.
#[repr(C)]
struct RobustList {
    first: *const RobustList,
    offset: libc::c_long,
    pending: *const libc::c_void,
    node: *const RobustList,
}

/// What the kernel takes as the size of the head.
const HEAD_BYTES: usize = 3 * size_of::<usize>();

impl DurabilityOwner {
    fn new(words: &DurabilityWords) -> Sys<Self> {
        // Shared memory: under memory shortage the kernel may take private memory of a process that it kills, before
        // it has read this list.
        let memory = memfd_create("forebay-owner", MemfdFlags::CLOEXEC)?;
        fallocate(&memory, FallocateFlags::empty(), 0, WORDS_BYTES as u64)?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let list = Mapping::new(memory.as_fd(), WORDS_BYTES, flags)?;
        let before = list_of_this_thread()?;
        let at = list.at.cast::<RobustList>().as_ptr();
        // SAFETY: the mapping is larger than the list and aligned to a page, and nobody else knows it.
        unsafe {
            let node = &raw mut (*at).node;
            let futex = words.page().owner().as_ptr() as isize;
            at.write(RobustList {
                first: node.cast(),
                offset: (futex - node as isize) as libc::c_long,
                pending: std::ptr::null(),
                node: at,
            });
        }
        set_list_of_this_thread((at.cast(), HEAD_BYTES))?;
        let thread = gettid().as_raw_nonzero().get().unsigned_abs();
        words.page().owner().store(thread, Ordering::Release);
        Ok(DurabilityOwner {
            words: words.clone(),
            list,
            before,
            _not_send: PhantomData,
        })
    }
}

impl Drop for DurabilityOwner {
    fn drop(&mut self) {
        self.words.page().die();
        // The kernel must not look into the mapping, which is about to go. To set a list of the right size can't fail.
        let back = set_list_of_this_thread(self.before);
        debug_assert_eq!(back, Ok(()), "{:?}", self.list);
    }
}

fn list_of_this_thread() -> Sys<(*mut libc::c_void, usize)> {
    let (mut head, mut bytes) = (std::ptr::null_mut::<libc::c_void>(), 0usize);
    // SAFETY: the kernel writes a pointer and a size.
    let result =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut bytes) };
    check(result as libc::c_int)?;
    Ok((head, bytes))
}

fn set_list_of_this_thread((head, bytes): (*mut libc::c_void, usize)) -> Sys<()> {
    // SAFETY: the kernel reads the list only when the thread ends, and survives one that is gone by then.
    let result = unsafe { libc::syscall(libc::SYS_set_robust_list, head, bytes) };
    check(result as libc::c_int).map(drop)
}

const _: () = assert!(std::mem::offset_of!(RobustList, node) == HEAD_BYTES);
const _: () = assert!(size_of::<RobustList>() <= WORDS_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::Names;
    use rustix::fs::fcntl_get_seals;
    use rustix::io::pwrite;
    use rustix::mm::{ProtFlags, mmap};

    #[test]
    fn the_page_says_something_only_while_its_owner_lives() {
        let (words, _memory) = DurabilityWords::new().unwrap();
        assert_eq!(words.page().names(), Names::Unknown);
        let in_thread = words.clone();
        std::thread::spawn(move || {
            let owner = in_thread.own().unwrap();
            in_thread.page().commit();
            assert_eq!(in_thread.page().names(), Names::Pending);
            in_thread.page().set_durable(1);
            assert_eq!(in_thread.page().names(), Names::Durable);
            drop(owner);
        })
        .join()
        .unwrap();
        assert_eq!(words.page().names(), Names::Unknown);
    }

    #[test]
    fn the_kernel_writes_down_the_end_of_an_owner_that_has_not_said_so() {
        let (words, _memory) = DurabilityWords::new().unwrap();
        let in_thread = words.clone();
        std::thread::spawn(move || {
            std::mem::forget(in_thread.own().unwrap());
            assert_eq!(in_thread.page().names(), Names::Durable);
        })
        .join()
        .unwrap();
        assert_eq!(words.page().names(), Names::Unknown);
    }

    #[test]
    fn nobody_else_can_write_the_page_or_change_its_size() {
        let (words, memory) = DurabilityWords::new().unwrap();
        let seals = fcntl_get_seals(&memory).unwrap();
        assert!(seals.contains(SealFlags::FUTURE_WRITE | SealFlags::SEAL));
        let path = proc_link(memory.as_fd());
        // Only the superuser gets so far.
        let again = open(path, OFlags::RDWR, Mode::empty()).ok();
        for fd in [Some(memory), again].iter().flatten() {
            assert!(pwrite(fd, &[1], 0).is_err());
            assert!(ftruncate(fd, 0).is_err());
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: asks for a new mapping, which is refused.
            let mapped = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    WORDS_BYTES,
                    access,
                    MapFlags::SHARED,
                    fd,
                    0,
                )
            };
            assert!(mapped.is_err());
        }
        words.page().commit();
        assert_eq!(words.page().committed(), 1);
    }
}
