//! Files: the page cache, and the device behind it.

use memory::Buffer;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// What is written or read at a time; never a divisor of what is smaller.
const PIECE_BYTES: usize = 1 << 20;
/// What devices want memory and places to be aligned to, at most.
const ALIGNMENT: usize = 4096;
/// Writes at once among which the best is looked for.
const DEPTHS: [u64; 4] = [1, 2, 4, 8];
/// Larger than the caches, so that what is written comes from memory.
const SOURCE_BYTES: usize = 64 << 20;

/// How a file is written, or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Into the page cache, at the end of a new file.
    Fresh,
    /// Into the page cache, where the file has space already.
    Fallocated,
    /// Into pages that are in the page cache.
    Overwrite,
    /// Out of the page cache.
    Read,
    /// To the device without the page cache; the device's own cache may hold it.
    Direct,
    /// To the device for good, where the file has space already.
    DirectSync,
    /// To the device for good, over blocks that were written before.
    DirectSyncOverwrite,
}

/// Bytes a second in one file of about `bytes` in `directory`, which is
/// removed again. `None` where the file system cannot do it.
pub fn measure(directory: &Path, how: Write, bytes: u64) -> io::Result<Option<f64>> {
    measure_deep(directory, how, bytes, 1)
}

/// The best of what [`measure`] gives with one write at a time and with several.
pub fn measure_at_best_depth(directory: &Path, how: Write, bytes: u64) -> io::Result<Option<f64>> {
    let mut best: Option<f64> = None;
    for depth in DEPTHS {
        let rate = measure_deep(directory, how, bytes, depth)?;
        best = best.into_iter().chain(rate).reduce(f64::max);
    }
    Ok(best)
}

fn measure_deep(directory: &Path, how: Write, bytes: u64, depth: u64) -> io::Result<Option<f64>> {
    let count = bytes.div_ceil(PIECE_BYTES as u64).max(1);
    let path = directory.join(format!("limit-{}", std::process::id()));
    let result = in_file(&path, how, count, depth);
    // It may never have been made.
    let _ = std::fs::remove_file(&path);
    match result {
        Ok(seconds) => Ok(Some((count * PIECE_BYTES as u64) as f64 / seconds)),
        // Some file systems know neither O_DIRECT nor fallocate.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn in_file(path: &Path, how: Write, count: u64, depth: u64) -> io::Result<f64> {
    let flags = match how {
        Write::Direct => OFlags::DIRECT,
        Write::DirectSync | Write::DirectSyncOverwrite => OFlags::DIRECT | OFlags::DSYNC,
        _ => OFlags::empty(),
    };
    let flags = flags | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
    if how != Write::Fresh {
        let bytes = count * PIECE_BYTES as u64;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    }
    let source = Source::new();
    if matches!(
        how,
        Write::Overwrite | Write::Read | Write::DirectSyncOverwrite
    ) {
        source.write(&file, 0..count)?;
    }
    // What is still on its way to the device would be paid for here.
    file.sync_all()?;
    let began = Instant::now();
    match how {
        Write::Read => read(&file, count)?,
        _ => source.write_at_once(&file, count, depth)?,
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Memory that files are written from, aligned for devices.
struct Source {
    memory: Buffer,
    start: usize,
}

impl Source {
    fn new() -> Self {
        let mut memory = Buffer::zeroed(SOURCE_BYTES + ALIGNMENT);
        memory.fill(7);
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start }
    }

    /// Writes `count` pieces, so many at a time, each of them in a thread.
    fn write_at_once(&self, file: &File, count: u64, depth: u64) -> io::Result<()> {
        if depth == 1 {
            return self.write(file, 0..count);
        }
        std::thread::scope(|scope| {
            let share = count.div_ceil(depth);
            let parts = (0..depth).map(|part| part * share..count.min((part + 1) * share));
            let threads: Vec<_> = parts
                .map(|part| scope.spawn(|| self.write(file, part)))
                .collect();
            let mut ends = threads.into_iter().map(|thread| thread.join());
            ends.try_for_each(|end| end.expect("writing does not panic"))
        })
    }

    fn write(&self, file: &File, part: Range<u64>) -> io::Result<()> {
        let memory = &self.memory[self.start..self.start + SOURCE_BYTES];
        let pieces = memory.chunks_exact(PIECE_BYTES).cycle();
        for (index, piece) in part.zip(pieces) {
            file.write_all_at(piece, index * PIECE_BYTES as u64)?;
        }
        Ok(())
    }
}

fn read(file: &File, count: u64) -> io::Result<()> {
    let mut piece = vec![1; PIECE_BYTES];
    for index in 0..count {
        file.read_exact_at(&mut piece, index * PIECE_BYTES as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        for how in [
            Write::Fresh,
            Write::Fallocated,
            Write::Overwrite,
            Write::Read,
            Write::Direct,
            Write::DirectSync,
            Write::DirectSyncOverwrite,
        ] {
            let rate = measure(directory.path(), how, 2 << 20).unwrap();
            assert!(rate.is_none_or(|rate| rate > 0.0), "{how:?}");
        }
        let deep = measure_at_best_depth(directory.path(), Write::DirectSync, 3 << 20).unwrap();
        assert!(deep.is_none_or(|rate| rate > 0.0));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
