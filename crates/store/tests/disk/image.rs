//! The disk's content: what was written, what is safe, and what a power loss makes of the difference.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use fuser::Errno;

use super::{Fault, Op, What};

pub const PAGE: u64 = 4096;
const SECTOR: usize = 512;
pub const ROOT: u64 = 1;

/// Numbers that a seed gives, always the same.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `n` − 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// Directories and files by their paths, as they are when power comes back.
#[derive(Debug, Clone, Default)]
pub struct Image(BTreeMap<String, Option<(Vec<u8>, SystemTime)>>);

impl Image {
    /// Writes it into a directory.
    pub fn write_to(&self, dir: &Path) {
        for (path, content) in &self.0 {
            let at = dir.join(path);
            match content {
                None => fs::create_dir_all(at).unwrap(),
                Some((bytes, time)) => {
                    fs::write(&at, bytes).unwrap();
                    fs::File::options()
                        .write(true)
                        .open(at)
                        .unwrap()
                        .set_modified(*time)
                        .unwrap();
                }
            }
        }
    }

    /// Paths of the files.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .filter_map(|(path, content)| Some((path.as_str(), content.as_ref()?.0.as_slice())))
    }
}

#[derive(Debug)]
pub enum Change {
    Put(String, u64),
    Take(String),
    /// One name to another in the same directory, at once.
    Move(String, String),
}

fn apply(names: &mut BTreeMap<String, u64>, change: &Change) {
    match change {
        Change::Put(name, ino) => {
            names.insert(name.clone(), *ino);
        }
        Change::Take(name) => {
            names.remove(name);
        }
        Change::Move(from, to) => {
            if let Some(ino) = names.remove(from) {
                names.insert(to.clone(), ino);
            }
        }
    }
}

#[derive(Debug)]
pub enum Content {
    Dir {
        names: BTreeMap<String, u64>,
        safe: BTreeMap<String, u64>,
        pending: Vec<Change>,
    },
    File {
        bytes: Vec<u8>,
        /// Pages that take room.
        blocks: BTreeSet<u64>,
        safe: Vec<u8>,
        dirty: BTreeSet<u64>,
        /// The length, or what has blocks, isn't safe.
        changed: bool,
    },
}

#[derive(Debug)]
pub struct Node {
    pub content: Content,
    pub path: String,
    pub modified: SystemTime,
    pub linked: bool,
}

#[derive(Debug)]
pub struct State {
    pub nodes: HashMap<u64, Node>,
    last: u64,
    pub faults: Vec<Fault>,
    pub struck: HashMap<Op, u64>,
    /// In pages.
    pub capacity: u64,
    pub no_fallocate: bool,
    pub changes: u64,
    pub power_at: Option<(u64, u64)>,
    pub left: Option<Image>,
}

fn dir() -> Content {
    Content::Dir {
        names: BTreeMap::new(),
        safe: BTreeMap::new(),
        pending: Vec::new(),
    }
}

impl State {
    pub fn new() -> Self {
        let root = Node {
            content: dir(),
            path: String::new(),
            modified: SystemTime::now(),
            linked: true,
        };
        Self {
            nodes: HashMap::from([(ROOT, root)]),
            last: ROOT,
            faults: Vec::new(),
            struck: HashMap::new(),
            capacity: u64::MAX,
            no_fallocate: false,
            changes: 0,
            power_at: None,
            left: None,
        }
    }

    pub fn from_image(image: &Image) -> Self {
        let mut state = Self::new();
        for (path, content) in &image.0 {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = *state
                .nodes
                .iter()
                .find(|(_, n)| n.path == parent && matches!(n.content, Content::Dir { .. }))
                .unwrap()
                .0;
            let (content, modified) = match content {
                None => (dir(), SystemTime::now()),
                Some((bytes, time)) => (
                    Content::File {
                        bytes: bytes.clone(),
                        blocks: (0..(bytes.len() as u64).div_ceil(PAGE)).collect(),
                        safe: bytes.clone(),
                        dirty: BTreeSet::new(),
                        changed: false,
                    },
                    *time,
                ),
            };
            let ino = state.add(parent, name, content);
            state.nodes.get_mut(&ino).unwrap().modified = modified;
            let Content::Dir { safe, pending, .. } = &mut state.nodes.get_mut(&parent).unwrap().content
            else {
                unreachable!()
            };
            pending.clear();
            safe.insert(name.to_owned(), ino);
        }
        state.changes = 0;
        state
    }

    /// Pages in use.
    pub fn used(&self) -> u64 {
        self.nodes
            .values()
            .filter(|n| n.linked)
            .map(|n| match &n.content {
                Content::Dir { .. } => 1,
                Content::File { blocks, .. } => blocks.len() as u64,
            })
            .sum()
    }

    fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.used())
    }

    /// Looks for a fault, and counts a change. Returns how long to wait, and how much a write may take.
    pub fn before(&mut self, op: Op, ino: u64, name: Option<&str>) -> Result<(Duration, usize), Errno> {
        let mut path = self.nodes.get(&ino).map_or_else(String::new, |n| n.path.clone());
        if let Some(name) = name {
            path = format!("{path}/{name}");
        }
        if op != Op::Read {
            if let Some((at, seed)) = self.power_at
                && self.changes >= at
                && self.left.is_none()
            {
                self.left = Some(self.crash(seed));
            }
            self.changes += 1;
        }
        let mut delay = Duration::ZERO;
        let mut most = usize::MAX;
        let mut error = None;
        for fault in &mut self.faults {
            if fault.op != op || !path.contains(&fault.path) || fault.times == 0 {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            fault.times -= 1;
            *self.struck.entry(op).or_default() += 1;
            match fault.what {
                What::Error(e) => error = Some(e),
                What::Slow(time) => delay = time,
                What::Short(n) => most = n,
            }
        }
        error.map_or(Ok((delay, most)), Err)
    }

    pub fn find(&self, parent: u64, name: &str) -> Option<u64> {
        match &self.nodes.get(&parent)?.content {
            Content::Dir { names, .. } => names.get(name).copied(),
            Content::File { .. } => None,
        }
    }

    pub fn add(&mut self, parent: u64, name: &str, content: Content) -> u64 {
        self.last += 1;
        let ino = self.last;
        let above = &self.nodes[&parent].path;
        let path = if above.is_empty() {
            name.to_owned()
        } else {
            format!("{above}/{name}")
        };
        self.nodes.insert(
            ino,
            Node {
                content,
                path,
                modified: SystemTime::now(),
                linked: true,
            },
        );
        self.change(parent, Change::Put(name.to_owned(), ino));
        ino
    }

    pub fn add_file(&mut self, parent: u64, name: &str) -> u64 {
        self.add(
            parent,
            name,
            Content::File {
                bytes: Vec::new(),
                blocks: BTreeSet::new(),
                safe: Vec::new(),
                dirty: BTreeSet::new(),
                changed: false,
            },
        )
    }

    pub fn add_dir(&mut self, parent: u64, name: &str) -> Result<u64, Errno> {
        if self.room() == 0 {
            return Err(Errno::ENOSPC);
        }
        Ok(self.add(parent, name, dir()))
    }

    fn change(&mut self, parent: u64, change: Change) {
        let node = self.nodes.get_mut(&parent).unwrap();
        node.modified = SystemTime::now();
        if let Content::Dir { names, pending, .. } = &mut node.content {
            apply(names, &change);
            pending.push(change);
        }
    }

    pub fn remove(&mut self, parent: u64, name: &str, directory: bool) -> Result<(), Errno> {
        let ino = self.find(parent, name).ok_or(Errno::ENOENT)?;
        match &self.nodes[&ino].content {
            Content::Dir { names, .. } if directory => {
                if !names.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
            }
            Content::File { .. } if !directory => {}
            _ => return Err(if directory { Errno::ENOTDIR } else { Errno::EISDIR }),
        }
        self.nodes.get_mut(&ino).unwrap().linked = false;
        self.change(parent, Change::Take(name.to_owned()));
        Ok(())
    }

    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str)) -> Result<(), Errno> {
        if from.0 != to.0 {
            return Err(Errno::EXDEV);
        }
        let ino = self.find(from.0, from.1).ok_or(Errno::ENOENT)?;
        if let Some(old) = self.find(to.0, to.1) {
            self.nodes.get_mut(&old).unwrap().linked = false;
        }
        self.change(from.0, Change::Move(from.1.to_owned(), to.1.to_owned()));
        let above = &self.nodes[&to.0].path;
        let path = if above.is_empty() {
            to.1.to_owned()
        } else {
            format!("{above}/{}", to.1)
        };
        self.nodes.get_mut(&ino).unwrap().path = path;
        Ok(())
    }

    pub fn write(&mut self, ino: u64, at: u64, data: &[u8]) -> Result<usize, Errno> {
        let mut room = self.room();
        let node = self.nodes.get_mut(&ino).ok_or(Errno::ENOENT)?;
        let Content::File {
            bytes,
            blocks,
            dirty,
            changed,
            ..
        } = &mut node.content
        else {
            return Err(Errno::EISDIR);
        };
        let mut done = 0;
        while done < data.len() {
            let pos = at + done as u64;
            let page = pos / PAGE;
            let n = ((PAGE - pos % PAGE) as usize).min(data.len() - done);
            if !blocks.contains(&page) {
                if room == 0 {
                    break;
                }
                room -= 1;
                blocks.insert(page);
            }
            let end = pos as usize + n;
            if bytes.len() < end {
                bytes.resize(end, 0);
                *changed = true;
            }
            bytes[pos as usize..end].copy_from_slice(&data[done..done + n]);
            dirty.insert(page);
            done += n;
        }
        node.modified = SystemTime::now();
        if done == 0 && !data.is_empty() {
            return Err(Errno::ENOSPC);
        }
        Ok(done)
    }

    pub fn truncate(&mut self, ino: u64, size: u64) -> Result<(), Errno> {
        let node = self.nodes.get_mut(&ino).ok_or(Errno::ENOENT)?;
        let Content::File {
            bytes,
            blocks,
            dirty,
            changed,
            ..
        } = &mut node.content
        else {
            return Err(Errno::EISDIR);
        };
        let old = bytes.len() as u64;
        bytes.resize(size as usize, 0);
        blocks.retain(|p| p * PAGE < size);
        dirty.retain(|p| p * PAGE < size);
        *changed |= old != size;
        node.modified = SystemTime::now();
        Ok(())
    }

    pub fn fallocate(&mut self, ino: u64, at: u64, len: u64, mode: i32) -> Result<(), Errno> {
        const KEEP_SIZE: i32 = 1;
        const PUNCH: i32 = 2;
        const ZERO: i32 = 16;
        if self.no_fallocate {
            return Err(Errno::EOPNOTSUPP);
        }
        let room = self.room();
        let node = self.nodes.get_mut(&ino).ok_or(Errno::ENOENT)?;
        let Content::File {
            bytes,
            blocks,
            dirty,
            changed,
            ..
        } = &mut node.content
        else {
            return Err(Errno::EISDIR);
        };
        let end = at + len;
        if mode & (PUNCH | ZERO) != 0 {
            let to = end.min(bytes.len() as u64);
            if at < to {
                bytes[at as usize..to as usize].fill(0);
                dirty.extend(at / PAGE..to.div_ceil(PAGE));
            }
        }
        if mode & PUNCH != 0 {
            blocks.retain(|p| p * PAGE < at || (p + 1) * PAGE > end);
            return Ok(());
        }
        let missing: Vec<u64> = (at / PAGE..end.div_ceil(PAGE))
            .filter(|p| !blocks.contains(p))
            .collect();
        if missing.len() as u64 > room {
            return Err(Errno::ENOSPC);
        }
        blocks.extend(missing);
        if mode & KEEP_SIZE == 0 && (bytes.len() as u64) < end {
            bytes.resize(end as usize, 0);
            *changed = true;
        }
        Ok(())
    }

    /// Makes a file's content safe.
    pub fn fsync(&mut self, ino: u64) {
        if let Some(Node {
            content:
                Content::File {
                    bytes,
                    safe,
                    dirty,
                    changed,
                    ..
                },
            ..
        }) = self.nodes.get_mut(&ino)
        {
            safe.resize(bytes.len(), 0);
            for page in std::mem::take(dirty) {
                let range = (page * PAGE) as usize..(((page + 1) * PAGE) as usize).min(bytes.len());
                safe[range.clone()].copy_from_slice(&bytes[range]);
            }
            *changed = false;
        }
    }

    /// What a failed `fsync` does: nothing is safe, and the kernel thinks that nothing has to be written any more.
    pub fn fail_fsync(&mut self, ino: u64) {
        if let Some(Node {
            content: Content::File { dirty, .. },
            ..
        }) = self.nodes.get_mut(&ino)
        {
            dirty.clear();
        }
    }

    /// Makes a directory's names safe.
    pub fn fsync_dir(&mut self, ino: u64) {
        if let Some(Node {
            content: Content::Dir { names, safe, pending },
            ..
        }) = self.nodes.get_mut(&ino)
        {
            safe.clone_from(names);
            pending.clear();
        }
    }

    /// What is left when the power goes now.
    pub fn crash(&self, seed: u64) -> Image {
        let mut rng = Rng::new(seed);
        // In some crashes next to all of what was written is there, in others next to nothing.
        let (lost, torn) = (rng.below(101), rng.below(40));
        let mut image = Image::default();
        self.leave(ROOT, "", &mut image, &mut rng, (lost, torn));
        image
    }

    fn leave(&self, ino: u64, path: &str, image: &mut Image, rng: &mut Rng, odds: (u64, u64)) {
        let node = &self.nodes[&ino];
        match &node.content {
            Content::Dir { safe, pending, .. } => {
                if !path.is_empty() {
                    image.0.insert(path.to_owned(), None);
                }
                let mut names = safe.clone();
                let kept = rng.below(pending.len() as u64 + 1) as usize;
                pending[..kept]
                    .iter()
                    .for_each(|change| apply(&mut names, change));
                for (name, ino) in names {
                    let below = if path.is_empty() {
                        name
                    } else {
                        format!("{path}/{name}")
                    };
                    self.leave(ino, &below, image, rng, odds);
                }
            }
            Content::File {
                bytes,
                safe,
                dirty,
                changed,
                ..
            } => {
                let (lost, torn) = odds;
                let mut left = safe.clone();
                if *changed && rng.below(100) >= lost / 2 {
                    left.resize(bytes.len(), 0);
                }
                for page in dirty {
                    let start = (page * PAGE) as usize;
                    let end = (start + PAGE as usize).min(bytes.len()).min(left.len());
                    if start >= end || rng.below(100) < lost {
                        continue;
                    }
                    let tear = rng.below(100) < torn;
                    for at in (start..end).step_by(SECTOR) {
                        if !tear || rng.below(2) == 0 {
                            let to = (at + SECTOR).min(end);
                            left[at..to].copy_from_slice(&bytes[at..to]);
                        }
                    }
                }
                image.0.insert(path.to_owned(), Some((left, node.modified)));
            }
        }
    }
}
