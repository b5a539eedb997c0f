//! Creating, allocating and zeroing files so that a crash or a full disk leaves something that can be understood.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate};

/// No file system has smaller blocks that it allocates singly and larger pages than this.
const BLOCK: u64 = 4096;

/// Whether an error says that there is no room, which may pass.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Syncs a directory, so that names made in it survive power loss.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Creates `dir` with what is missing above it, durably.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    for above in dir
        .ancestors()
        .skip(1)
        .take(3)
        .filter(|p| !p.as_os_str().is_empty())
    {
        sync_dir(above)?;
    }
    Ok(())
}

/// Creates a file with all of its blocks. On any failure nothing is left under that name.
pub(crate) fn create_allocated(path: &Path, len: u64) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    // The length first: a name without it, before the next file's, would be a hole in the log.
    let made = allocate(&file, 0, len)
        .and_then(|()| file.sync_all())
        .and_then(|()| path.parent().map_or(Ok(()), sync_dir));
    if let Err(error) = made {
        drop(file);
        if let Err(e) = fs::remove_file(path) {
            tracing::warn!(path = %path.display(), error = %e, "cannot remove a file that could not be allocated");
        }
        return Err(error);
    }
    Ok(file)
}

/// Gives `[start, end)` of the file real blocks and extends it to `end` if it is shorter. Content stays.
pub(crate) fn allocate(file: &File, start: u64, end: u64) -> io::Result<()> {
    if end <= start {
        return Ok(());
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), start, end - start) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                return write_blocks(file, start, end);
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// What a file system without `fallocate` needs: zeros written beyond what the file has.
fn write_blocks(file: &File, start: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0u8; 1 << 20];
    let mut at = start.max(file.metadata()?.len());
    while at < end {
        let n = (end - at).min(zeros.len() as u64) as usize;
        file.write_all_at(&zeros[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

/// Makes `[start, end)` read as zeros, keeping the length, by the cheapest means the file system has.
///
/// `keep_blocks` says whether the range must stay allocated; else it's thought to be mostly a hole already, and `true` comes
/// back if there was something else than zeros in it.
pub(crate) fn zero(file: &File, start: u64, end: u64, keep_blocks: bool) -> io::Result<bool> {
    if end <= start {
        return Ok(false);
    }
    if keep_blocks {
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if fallocate(file, flags, start, end - start).is_ok() {
            return Ok(false);
        }
    }
    // Only ranges that hold data can hold anything but zeros.
    let mut at = start;
    let mut cleared = false;
    let mut buffer = vec![0u8; 1 << 12];
    while at < end {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) if data < end => data,
            Ok(_) | Err(rustix::io::Errno::NXIO) => break,
            Err(_) => at,
        };
        let n = (end - at).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..n], at)?;
        // A disk that is full takes writes where there are blocks already, and nowhere else: holes stay holes.
        let mut done = 0;
        while done < n {
            let block = (BLOCK - (at + done as u64) % BLOCK).min((n - done) as u64) as usize;
            let bytes = &mut buffer[done..done + block];
            if bytes.iter().any(|b| *b != 0) {
                cleared = true;
                bytes.fill(0);
                file.write_all_at(bytes, at + done as u64)?;
            }
            done += block;
        }
        at += n as u64;
        if buffer.len() < 1 << 18 {
            buffer.resize(buffer.len() * 2, 0);
        }
    }
    Ok(cleared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroing_keeps_length_and_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        for keep in [false, true] {
            let path = dir.path().join(format!("f{keep}"));
            let file = create_allocated(&path, 20_000).unwrap();
            file.write_all_at(&vec![7; 20_000], 0).unwrap();
            zero(&file, 5_001, 20_000, keep).unwrap();
            let content = fs::read(&path).unwrap();
            assert_eq!(content.len(), 20_000);
            assert!(content[..5_001].iter().all(|b| *b == 7));
            assert!(content[5_001..].iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn zeroing_takes_no_more_of_the_disk() {
        use std::os::unix::fs::MetadataExt;

        let dir = tempfile::tempdir().unwrap();
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.path().join("f"))
            .unwrap();
        file.set_len(1 << 20).unwrap();
        for at in [100, 9_000, 400_000] {
            file.write_all_at(&[7; 50], at).unwrap();
        }
        file.sync_all().unwrap();
        let before = file.metadata().unwrap().blocks();
        assert!(zero(&file, 60, 1 << 20, false).unwrap());
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().blocks(), before);
        assert!(fs::read(dir.path().join("f")).unwrap().iter().all(|b| *b == 0));
        assert!(!zero(&file, 0, 1 << 20, false).unwrap());
    }

    #[test]
    fn a_file_that_cannot_be_made_leaves_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge");
        assert!(create_allocated(&path, 1 << 62).is_err());
        assert!(!path.exists());
    }
}
