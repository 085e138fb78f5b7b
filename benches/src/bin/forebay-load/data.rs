//! The data path: calls on a descriptor that the program already has.

use crate::mapping::Mapping;
use crate::place::{Place, Series, named};
use crate::timing::{per_operation, windows};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: usize = 4096;
const MIB: usize = 1 << 20;
/// Size of the file in MiB: larger than the caches of a core, so that both sides pay for memory.
const CACHED_MIB: usize = 64;

fn open_new(path: &Path) -> io::Result<File> {
    named(
        path,
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path),
    )
}

fn write_mib(mut file: &File, mib: usize, buffer: &[u8]) -> io::Result<()> {
    (0..mib).try_for_each(|_| file.write_all(buffer))
}

/// Visits every block of a file once, in an order without locality, and then again.
struct BlockWalk {
    at: u64,
}

impl BlockWalk {
    const BLOCKS: u64 = (CACHED_MIB * MIB / BLOCK) as u64;
    // The stride is odd, so it visits every block of a power of two. It is far from a small stride.
    const STRIDE: u64 = (6_364_136_223_846_793_005 % Self::BLOCKS) | 1;

    fn next_offset(&mut self) -> u64 {
        self.at = (self.at + Self::STRIDE) % Self::BLOCKS;
        self.at * BLOCK as u64
    }
}

/// Reads and writes 4 KiB at a time, in a file that the page cache holds.
pub fn blocks(place: &Place, dir: &Path) -> io::Result<Series> {
    let path = dir.join("blocks");
    let file = open_new(&path)?;
    write_mib(&file, CACHED_MIB, &vec![0x5a; MIB])?;
    let mut block = [0xa5; BLOCK];
    let mut walk = BlockWalk { at: 0 };
    // Both use the same file, so its pages lie at the same places in memory.
    let read = windows(place, || file.read_exact_at(&mut block, walk.next_offset()))?;
    let write = windows(place, || file.write_all_at(&block, walk.next_offset()))?;
    Ok(vec![("pread-4k", read), ("pwrite-4k", write)])
}

/// Writes and reads 1 MiB at a time, from the start to the end of a file.
pub fn sequential(place: &Place, dir: &Path) -> io::Result<Series> {
    let mib = place.sequential_mib;
    let mut buffer = vec![0x5a; MIB];
    let (mut new, mut again, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in 0..place.repetitions + 2 {
        let path = dir.join(format!("sequential-{repetition}"));
        let mut file = open_new(&path)?;
        new.push(per_operation(mib, || write_mib(&file, mib, &buffer))?);
        file.rewind()?;
        again.push(per_operation(mib, || write_mib(&file, mib, &buffer))?);
        file.rewind()?;
        read.push(per_operation(mib, || {
            (0..mib).try_for_each(|_| file.read_exact(&mut buffer))
        })?);
        drop(file);
        // Dirty pages of a removed file are never written to disk, so they don't slow the next repetition.
        named(&path, fs::remove_file(&path))?;
    }
    Ok(vec![
        ("write-new", new),
        ("write-again", again),
        ("read", read),
    ])
}

/// Writes and reads through a shared mapping.
pub fn mmap(place: &Place, dir: &Path) -> io::Result<Series> {
    let path = dir.join("mapped");
    let file = open_new(&path)?;
    write_mib(&file, CACHED_MIB, &vec![0x5a; MIB])?;
    let length = CACHED_MIB * MIB;
    let (mut write, mut read) = (Vec::new(), Vec::new());
    let mut block = [0xa5; BLOCK];
    for _ in 0..place.repetitions + 2 {
        write.push(per_operation(CACHED_MIB, || {
            let mapping = Mapping::new(&file, length)?;
            (0..length)
                .step_by(BLOCK)
                .for_each(|at| mapping.store(at, &block));
            Ok(())
        })?);
        read.push(per_operation(CACHED_MIB, || {
            let mapping = Mapping::new(&file, length)?;
            for at in (0..length).step_by(BLOCK) {
                mapping.load(at, &mut block);
                std::hint::black_box(&block);
            }
            Ok(())
        })?);
    }
    Ok(vec![("mmap-write", write), ("mmap-read", read)])
}

/// Makes `dir` with `files` files of `bytes` bytes.
pub fn fill(dir: &Path, files: usize, bytes: u64) -> io::Result<()> {
    named(dir, fs::create_dir(dir))?;
    let contents = vec![0x5a; (bytes as usize).min(MIB)];
    for number in 0..files {
        let path = dir.join(format!("file.{number:06}"));
        let mut file = open_new(&path)?;
        let mut left = bytes;
        while left > 0 {
            let part = (left as usize).min(contents.len());
            file.write_all(&contents[..part])?;
            left -= part as u64;
        }
    }
    Ok(())
}
