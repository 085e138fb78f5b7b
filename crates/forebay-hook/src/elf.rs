//! Reads the headers of a loaded program or library: where it ends, and which version of a function it wants.
//!
//! The module writes nothing, and reads only what the dynamic loader itself has read.

use core::ffi::{CStr, c_char};

/// `DT_GNU_HASH`, `DT_VERSYM`, `DT_VERNEED`, `DT_VERNEEDNUM`.
const GNU_HASH: i64 = 0x6fff_fef5;
const VERSIONS_OF_SYMBOLS: i64 = 0x6fff_fff0;
const VERSIONS_NEEDED: i64 = 0x6fff_fffe;
const VERSIONS_NEEDED_COUNT: i64 = 0x6fff_ffff;
/// `DT_STRTAB`, `DT_SYMTAB`.
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
/// The bit of a symbol's version that means "hidden".
const HIDDEN: u16 = 0x8000;
/// Versions below this number mean "local" and "any".
const FIRST_VERSION: u16 = 2;

/// A loaded program or library ("object").
#[derive(Clone, Copy)]
pub struct Image {
    start: usize,
    /// Add this to an address in its tables to get an address in memory.
    bias: usize,
}

/// An entry of the dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// A library from which versions are needed (`Elf64_Verneed`).
#[repr(C)]
struct Needed {
    _version: u16,
    count: u16,
    _file: u32,
    first: u32,
    next: u32,
}

/// A version needed from that library (`Elf64_Vernaux`).
#[repr(C)]
struct NeededVersion {
    _hash: u32,
    _flags: u16,
    number: u16,
    name: u32,
    next: u32,
}

impl Image {
    /// The object that is loaded at `start`; `None` if no ELF header is there.
    ///
    /// # Safety
    /// `start` is the base address of a loaded object, which stays loaded.
    pub unsafe fn at(start: usize) -> Option<Image> {
        // SAFETY: the first segment of an object begins with its headers.
        let header = unsafe { &*(start as *const libc::Elf64_Ehdr) };
        let bias = if header.e_type == libc::ET_DYN {
            start
        } else {
            0
        };
        (header.e_ident[..4] == *b"\x7fELF").then_some(Image { start, bias })
    }

    fn segments(&self) -> impl Iterator<Item = &libc::Elf64_Phdr> {
        // SAFETY: `at` has checked the header; the program headers follow in the same segment.
        let header = unsafe { &*(self.start as *const libc::Elf64_Ehdr) };
        let first = (self.start + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        // SAFETY: as above.
        (0..usize::from(header.e_phnum)).map(move |at| unsafe { &*first.add(at) })
    }

    /// The end of its last segment.
    pub fn end(&self) -> usize {
        self.segments()
            .filter(|segment| segment.p_type == libc::PT_LOAD)
            .map(|segment| self.bias + (segment.p_vaddr + segment.p_memsz) as usize)
            .max()
            .unwrap_or(self.start)
    }

    /// A value of the dynamic section.
    fn dynamic(&self, tag: i64) -> Option<usize> {
        let section = self
            .segments()
            .find(|segment| segment.p_type == libc::PT_DYNAMIC)?;
        let mut entry = (self.bias + section.p_vaddr as usize) as *const Dynamic;
        loop {
            // SAFETY: the section ends with an entry of tag 0.
            let Dynamic { tag: found, value } = unsafe { entry.read() };
            match found {
                0 => return None,
                _ if found == tag => return Some(value),
                // SAFETY: this entry was not the last.
                _ => entry = unsafe { entry.add(1) },
            }
        }
    }

    /// The table that a value of the dynamic section points to. The loader has replaced some of these values by
    /// addresses in memory, but not all.
    fn table<T>(&self, tag: i64) -> Option<*const T> {
        let value = self.dynamic(tag)?;
        let address = if value >= self.start {
            value
        } else {
            self.bias + value
        };
        Some(address as *const T)
    }

    /// The version of `name` that this object wants from another one. `None` if it takes any, or does not use the name.
    pub fn version_wanted(&self, name: &CStr) -> Option<&CStr> {
        let strings: *const c_char = self.table(STRINGS)?;
        let symbols: *const libc::Elf64_Sym = self.table(SYMBOLS)?;
        let versions: *const u16 = self.table(VERSIONS_OF_SYMBOLS)?;
        let hash: *const u32 = self.table(GNU_HASH)?;
        // SAFETY: the second word of the hash table is the number of symbols that the table leaves out. All symbols
        // that this object takes from others are among those.
        let count = unsafe { hash.add(1).read() } as usize;
        let string = |offset: u32| {
            // SAFETY: offsets into the table of strings.
            unsafe { CStr::from_ptr(strings.add(offset as usize)) }
        };
        let place = (1..count).find(|&at| {
            // SAFETY: there are at least `count` symbols.
            let symbol = unsafe { &*symbols.add(at) };
            symbol.st_shndx == 0 && string(symbol.st_name) == name
        })?;
        // SAFETY: one version per symbol.
        let number = unsafe { versions.add(place).read() } & !HIDDEN;
        if number < FIRST_VERSION {
            return None;
        }
        self.needed_version(number).map(string)
    }

    /// Offset of the name of a needed version.
    fn needed_version(&self, number: u16) -> Option<u32> {
        let mut library: *const Needed = self.table(VERSIONS_NEEDED)?;
        for _ in 0..self.dynamic(VERSIONS_NEEDED_COUNT)? {
            // SAFETY: the table holds `DT_VERNEEDNUM` libraries, each with the distance to the next and the number of
            // its versions.
            let needed = unsafe { &*library };
            let mut version = step::<_, NeededVersion>(library, needed.first);
            for _ in 0..needed.count {
                // SAFETY: as above.
                let this = unsafe { &*version };
                if this.number == number {
                    return Some(this.name);
                }
                version = step(version, this.next);
            }
            library = step(library, needed.next);
        }
        None
    }
}

/// The place `bytes` after `from`.
fn step<T, U>(from: *const T, bytes: u32) -> *const U {
    from.cast::<u8>().wrapping_add(bytes as usize).cast()
}
