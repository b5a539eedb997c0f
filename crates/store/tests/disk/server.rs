//! What the kernel asks of the disk.

use std::{
    ffi::OsStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;

use super::{
    Op,
    image::{Content, PAGE, State},
};

/// Nothing about names and lengths is kept by the kernel.
const TTL: Duration = Duration::ZERO;

pub struct Server(Arc<Mutex<State>>);

impl Server {
    pub fn new(state: Arc<Mutex<State>>) -> Self {
        Self(state)
    }

    fn attr(state: &State, ino: u64) -> Option<FileAttr> {
        let node = state.nodes.get(&ino)?;
        let (size, blocks, kind, perm) = match &node.content {
            Content::Dir { .. } => (PAGE, 1, FileType::Directory, 0o755),
            Content::File { bytes, blocks, .. } => (
                bytes.len() as u64,
                blocks.len() as u64,
                FileType::RegularFile,
                0o644,
            ),
        };
        Some(FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: blocks * PAGE / 512,
            atime: node.modified,
            mtime: node.modified,
            ctime: node.modified,
            crtime: node.modified,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE as u32,
            flags: 0,
        })
    }

    /// Does something that may fail, wait, or be cut short.
    fn change<R>(
        &self,
        op: Op,
        ino: u64,
        name: Option<&str>,
        act: impl FnOnce(&mut State, usize) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let before = self.0.lock().before(op, ino, name);
        match before {
            Ok((delay, most)) => {
                if !delay.is_zero() {
                    std::thread::sleep(delay);
                }
                act(&mut self.0.lock(), most)
            }
            Err(error) => {
                if op == Op::Fsync {
                    self.0.lock().fail_fsync(ino);
                }
                Err(error)
            }
        }
    }
}

fn text(name: &OsStr) -> &str {
    name.to_str().unwrap_or("?")
}

fn empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.0.lock();
        match state
            .find(parent.0, text(name))
            .and_then(|ino| Self::attr(&state, ino))
        {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match Self::attr(&self.0.lock(), ino.0) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size
            && let Err(error) = self.change(Op::Truncate, ino.0, None, |state, _| state.truncate(ino.0, size))
        {
            return reply.error(error);
        }
        let mut state = self.0.lock();
        if let (Some(time), Some(node)) = (mtime, state.nodes.get_mut(&ino.0)) {
            node.modified = match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => SystemTime::now(),
            };
        }
        match Self::attr(&state, ino.0) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let name = text(name);
        let made = self.change(Op::Mkdir, parent.0, Some(name), |state, _| {
            let ino = state.add_dir(parent.0, name)?;
            Self::attr(state, ino).ok_or(Errno::ENOENT)
        });
        match made {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = text(name);
        let result = self.change(Op::Unlink, parent.0, Some(name), |state, _| {
            state.remove(parent.0, name, false)
        });
        empty(result, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = text(name);
        let result = self.change(Op::Unlink, parent.0, Some(name), |state, _| {
            state.remove(parent.0, name, true)
        });
        empty(result, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, newname) = (text(name), text(newname));
        let result = self.change(Op::Rename, newparent.0, Some(newname), |state, _| {
            state.rename((parent.0, name), (newparent.0, newname))
        });
        empty(result, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        let name = text(name);
        let made = self.change(Op::Create, parent.0, Some(name), |state, _| {
            let ino = state
                .find(parent.0, name)
                .unwrap_or_else(|| state.add_file(parent.0, name));
            Self::attr(state, ino).ok_or(Errno::ENOENT)
        });
        match made {
            Ok(attr) => reply.created(
                &TTL,
                &attr,
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.change(Op::Read, ino.0, None, |state, _| match state.nodes.get(&ino.0) {
            Some(node) => match &node.content {
                Content::File { bytes, .. } => {
                    let start = (offset as usize).min(bytes.len());
                    Ok(bytes[start..(start + size as usize).min(bytes.len())].to_vec())
                }
                Content::Dir { .. } => Err(Errno::EISDIR),
            },
            None => Err(Errno::ENOENT),
        });
        match read {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.change(Op::Write, ino.0, None, |state, most| {
            state.write(ino.0, offset, &data[..data.len().min(most)])
        });
        match written {
            Ok(n) => reply.written(n as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let result = self.change(Op::Fsync, ino.0, None, |state, _| {
            state.fsync(ino.0);
            Ok(())
        });
        empty(result, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let result = self.change(Op::FsyncDir, ino.0, None, |state, _| {
            state.fsync_dir(ino.0);
            Ok(())
        });
        empty(result, reply);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = self.0.lock();
        let Some(Content::Dir { names, .. }) = state.nodes.get(&ino.0).map(|n| &n.content) else {
            return reply.error(Errno::ENOTDIR);
        };
        for (n, (name, child)) in names.iter().enumerate().skip(offset as usize) {
            let kind = match state.nodes[child].content {
                Content::Dir { .. } => FileType::Directory,
                Content::File { .. } => FileType::RegularFile,
            };
            if reply.add(INodeNo(*child), n as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let state = self.0.lock();
        let used = state.used();
        let total = state.capacity.min(used + (1 << 30));
        let free = total.saturating_sub(used);
        reply.statfs(total, free, free, 1 << 20, 1 << 20, PAGE as u32, 255, PAGE as u32);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        at: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let result = self.change(Op::Fallocate, ino.0, None, |state, _| {
            state.fallocate(ino.0, at, len, mode)
        });
        empty(result, reply);
    }
}
