//! A disk that fails on demand: a file system in memory, mounted by FUSE, so that the store's mappings, `fdatasync` and
//! `fallocate` go through the kernel as they do on a real one.
//!
//! What was written and what would survive a power loss are kept apart, as strictly as POSIX allows: a file's bytes and length
//! are safe after its `fsync`, a name after its directory's. [`Disk::power_loss`] leaves what is safe and, of the rest, any
//! part that a seed chooses: pages lost, kept or torn at a sector, names of a directory up to some operation.
//!
//! A failed `fsync` behaves as the worst file systems do: what it should have made safe is forgotten and no later `fsync` brings
//! it there, although reads show it until the mount goes.
#![allow(dead_code, unused_imports, missing_docs, unreachable_pub, clippy::unwrap_used)]

mod image;
mod server;

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fuser::{BackgroundSession, Config, Errno, MountOption};
use parking_lot::Mutex;

pub use image::{Image, Rng};
use server::Server;

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    Read,
    Write,
    Fsync,
    FsyncDir,
    Create,
    Mkdir,
    Rename,
    Unlink,
    Truncate,
    Fallocate,
}

/// What happens instead.
#[derive(Debug, Clone, Copy)]
pub enum What {
    /// It fails.
    Error(Errno),
    /// It is done, later.
    Slow(Duration),
    /// A write takes this many bytes only.
    Short(usize),
}

/// A rule: `what` happens to `op` on paths that contain `path`, after `skip` of them, `times` times.
#[derive(Debug, Clone)]
pub struct Fault {
    pub op: Op,
    pub path: String,
    pub skip: u64,
    pub times: u64,
    pub what: What,
}

impl Fault {
    /// Each `op` on a path that contains `path` fails.
    pub fn always(op: Op, path: &str, error: Errno) -> Self {
        Self {
            op,
            path: path.to_owned(),
            skip: 0,
            times: u64::MAX,
            what: What::Error(error),
        }
    }

    /// One does.
    pub fn once(op: Op, path: &str, error: Errno) -> Self {
        Self {
            times: 1,
            ..Self::always(op, path, error)
        }
    }
}

/// A mounted disk. Unmounted when dropped, whoever still uses it.
pub struct Disk {
    state: Arc<Mutex<image::State>>,
    dir: tempfile::TempDir,
    session: Option<BackgroundSession>,
}

impl Disk {
    /// An empty disk; `None` where this process may not mount.
    pub fn new() -> Option<Self> {
        Self::mount(image::State::new())
    }

    /// A disk with what an image holds, all of it safe.
    pub fn with(image: &Image) -> Self {
        Self::mount(image::State::from_image(image)).expect("it could be mounted before")
    }

    fn mount(state: image::State) -> Option<Self> {
        let may = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
        if !may {
            eprintln!("skipped: FUSE needs root and /dev/fuse");
            return None;
        }
        private_mounts();
        let dir = tempfile::tempdir().unwrap();
        let state = Arc::new(Mutex::new(state));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("faulty".to_owned())];
        config.n_threads = Some(2);
        let at = dir.path().join("disk");
        std::fs::create_dir(&at).unwrap();
        let session = fuser::spawn_mount(Server::new(state.clone()), &at, &config)
            .unwrap_or_else(|e| panic!("cannot mount at {}: {e}", at.display()));
        Some(Self {
            state,
            dir,
            session: Some(session),
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    pub fn fault(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// No more faults.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.capacity = u64::MAX;
    }

    /// How often a fault of this kind struck.
    pub fn struck(&self, op: Op) -> u64 {
        self.state.lock().struck.get(&op).copied().unwrap_or(0)
    }

    /// Lets the disk have room for this many more bytes.
    pub fn leave(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.capacity = state.used() + bytes / image::PAGE;
    }

    /// Says that `fallocate` is not supported.
    pub fn without_fallocate(&self) {
        self.state.lock().no_fallocate = true;
    }

    /// Calls that changed something so far.
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Loses power just before the change of this number.
    pub fn lose_power_at(&self, change: u64, seed: u64) {
        self.state.lock().power_at = Some((change, seed));
    }

    /// Whether that has happened.
    pub fn lost_power(&self) -> bool {
        self.state.lock().left.is_some()
    }

    /// What a power loss leaves, at the set moment or else now.
    pub fn power_loss(&self, seed: u64) -> Image {
        let mut state = self.state.lock();
        let now = state.left.take();
        now.unwrap_or_else(|| state.crash(seed))
    }

    /// Has the kernel forget what it read of a file.
    pub fn forget_cached(&self, path: &str) {
        let ino = self
            .state
            .lock()
            .nodes
            .iter()
            .find(|(_, n)| n.path == path && n.linked)
            .map(|(ino, _)| *ino);
        let notifier = self.session.as_ref().unwrap().notifier();
        notifier.inval_inode(fuser::INodeNo(ino.unwrap()), 0, 0).unwrap();
    }

    /// Has the kernel hand over what is only in mappings, without making it safe.
    pub fn write_back(&self) {
        rustix::fs::syncfs(std::fs::File::open(self.path()).unwrap()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Whoever has a file open keeps the file system, not the name.
        if let Err(error) = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH) {
            eprintln!("cannot unmount {}: {error}", self.path().display());
        }
        drop(self.session.take());
    }
}

/// Gives this thread, and those it starts, mounts of their own: they go with the process even if that is killed.
#[expect(
    unsafe_code,
    reason = "nothing of this process depends on which mounts a thread sees"
)]
fn private_mounts() {
    std::thread_local! {
        static DONE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if DONE.replace(true) {
        return;
    }
    // SAFETY: NEWNS alone gives up no shared memory or descriptors.
    let own = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
    let private = own.and_then(|()| {
        rustix::mount::mount_change(
            "/",
            rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC,
        )
    });
    if let Err(error) = private {
        eprintln!("mounting where all see it: {error}");
    }
    watch();
}

/// Ends the mounts of this process should it die without doing so: a thread that waits for a server which is gone would
/// keep it from ending for ever.
fn watch() {
    const SCRIPT: &str = r#"
        at=/sys/fs/fuse/connections
        mount -t fusectl none $at
        while read -r _ _ state _ < /proc/$1/stat && [ "$state" != Z ]; do sleep 1; done
        awk '/ faulty /{split($3, n, ":"); print n[2]}' /proc/self/mountinfo |
            while read -r n; do echo 1 > $at/$n/abort; done
    "#;
    let started = std::process::Command::new("sh")
        .args(["-c", SCRIPT, "sh", &std::process::id().to_string()])
        // Whoever ends this process by its group doesn't end the watch.
        .process_group(0)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    if let Err(error) = started {
        eprintln!("nobody watches the mounts: {error}");
    }
}
