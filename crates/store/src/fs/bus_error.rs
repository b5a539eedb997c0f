//! A page that can't be read is an error here, and not the end of the process.
//!
//! Touching a mapped page that the disk can't give, or that lies behind the end of a file which somebody cut, raises SIGBUS. A
//! handler for the whole process is installed with the first mapping. It looks the address up among the mappings that
//! registered: if it's in one, a page of zeros takes the bad page's place and the mapping is told which page that was;
//! whoever was reading goes on with zeros, and asks afterwards whether what it read was [`Damage::touches`]. Any other
//! SIGBUS goes to the handler that was there before.
//!
//! The handler takes no lock and allocates nothing: the register is a list of blocks that only grows, each entry of which
//! carries a version, odd while it changes. The entry of a mapping that a thread is reading doesn't change.
#![expect(
    unsafe_code,
    reason = "a signal handler and the register that it reads; every block says why it is sound"
)]

use std::{
    mem, ptr,
    sync::{
        Once, OnceLock,
        atomic::{AtomicPtr, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::damage::{Damage, Entry, NAMED};

/// Entries of a block of the register.
const BLOCK: usize = 256;

impl Damage {
    /// Whether any of the bytes `[start, end)` of the mapping is on a page that turned out to be bad.
    #[inline]
    pub(crate) fn touches(&self, start: usize, end: usize) -> bool {
        self.any() && start < end && self.touches_pages(start / page_size(), (end - 1) / page_size())
    }
}

struct Block {
    entries: [Entry<Damage>; BLOCK],
    next: AtomicPtr<Block>,
}

impl Block {
    const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    version: AtomicUsize::new(0),
                    start: AtomicUsize::new(0),
                    len: AtomicUsize::new(0),
                    damage: AtomicPtr::new(ptr::null_mut()),
                }
            }; BLOCK],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

static REGISTER: Block = Block::new();
/// One thread at a time changes the register.
static CHANGE: Mutex<()> = Mutex::new(());
static INSTALL: Once = Once::new();
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE: AtomicUsize = AtomicUsize::new(4096);

fn page_size() -> usize {
    PAGE.load(Ordering::Relaxed)
}

/// Calls `visit` with each entry until it says `true`.
fn any_entry(mut visit: impl FnMut(&'static Entry<Damage>) -> bool) -> bool {
    let mut block: &'static Block = &REGISTER;
    loop {
        if block.entries.iter().any(&mut visit) {
            return true;
        }
        // SAFETY: the pointer is null or comes from `Box::leak` in `Watched::new`, which published it with Release; blocks
        // are never freed.
        match unsafe { block.next.load(Ordering::Acquire).as_ref() } {
            Some(next) => block = next,
            None => return false,
        }
    }
}

/// A mapping that the handler knows. It leaves the register when this is dropped, which has to be before it's unmapped.
#[derive(Debug)]
pub(crate) struct Watched {
    start: usize,
    damage: Box<Damage>,
}

impl Watched {
    /// Enters the mapping of `len` bytes at `start`.
    pub(crate) fn new(start: *const u8, len: usize) -> Self {
        INSTALL.call_once(install);
        let damage = Box::new(Damage::new(NAMED));
        let start = start as usize;
        let _one = CHANGE.lock();
        let enter = |entry: &'static Entry<Damage>| {
            if entry.start.load(Ordering::Relaxed) != 0 {
                return false;
            }
            entry.change(start, len, ptr::from_ref(&*damage).cast_mut());
            true
        };
        if !any_entry(enter) {
            let new: &'static Block = Box::leak(Box::new(Block::new()));
            new.entries[0].change(start, len, ptr::from_ref(&*damage).cast_mut());
            let mut last = &REGISTER;
            // SAFETY: as in `any_entry`.
            while let Some(next) = unsafe { last.next.load(Ordering::Acquire).as_ref() } {
                last = next;
            }
            last.next.store(ptr::from_ref(new).cast_mut(), Ordering::Release);
        }
        Self { start, damage }
    }

    pub(crate) fn damage(&self) -> &Damage {
        &self.damage
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _one = CHANGE.lock();
        any_entry(|entry| {
            let mine = entry.start.load(Ordering::Relaxed) == self.start;
            if mine {
                entry.change(0, 0, ptr::null_mut());
            }
            mine
        });
    }
}

fn install() {
    PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
    // SAFETY: both calls get pointers to structures that live through the call; all-zero is a valid `sigaction`. The
    // handler has the signature that SA_SIGINFO asks for and does only what a signal handler may. SA_ONSTACK because
    // threads of Rust have a stack for signals, and a broken ordinary one may be the reason for the signal.
    unsafe {
        let mut previous: libc::sigaction = mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous);
        PREVIOUS.get_or_init(|| previous);
        let mut ours: libc::sigaction = mem::zeroed();
        ours.sa_sigaction = handler as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut ours.sa_mask);
        if libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) != 0 {
            tracing::warn!("no handler for SIGBUS: a page that the disk cannot read ends the process");
        }
    }
}

/// Puts zeros in the place of the page at `address`, if it's of a mapping that is known.
fn replace(address: usize) -> bool {
    let size = page_size();
    any_entry(|entry| {
        let Some((start, damage)) = entry.holding(address) else {
            return false;
        };
        let page = (address - start) / size;
        // SAFETY: the values belong together, as the entry's version says, and the mapping is one that this thread is
        // touching, so neither it nor its `Damage` goes before the thread goes on. The page lies inside the mapping,
        // which starts at a page and was made by this process for a file; nothing else is mapped there. No reference to
        // its bytes expects them to keep a value: they can't be read at all.
        unsafe {
            let Some(damage) = damage.as_ref() else {
                return false;
            };
            damage.note(page);
            mmap_anonymous(
                (start + page * size) as *mut libc::c_void,
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
            )
            .is_ok()
        }
    })
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid `siginfo_t` to a handler with SA_SIGINFO; for a SIGBUS that a fault raised (a code
    // above 0) it carries the address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 && replace(address) {
        return;
    }
    let previous = PREVIOUS.get();
    let target = previous.map_or(libc::SIG_DFL, |p| p.sa_sigaction);
    if target == libc::SIG_DFL || target == libc::SIG_IGN {
        // SAFETY: restores the default; the fault happens again when this returns and ends the process. A signal that
        // somebody sent has to be raised again.
        unsafe {
            let mut default: libc::sigaction = mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const default, ptr::null_mut());
            if code <= 0 {
                libc::raise(signal);
            }
        }
        return;
    }
    // SAFETY: what was installed before is a function of one of these two signatures, by its flag.
    unsafe {
        if previous.is_some_and(|p| p.sa_flags & libc::SA_SIGINFO != 0) {
            let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                mem::transmute(target);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(libc::c_int) = mem::transmute(target);
            call(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_by_page_until_there_is_too_much() {
        let damage = Damage::new(NAMED);
        let size = page_size();
        assert!(!damage.touches(0, usize::MAX) && !damage.news());
        damage.note(3);
        damage.note(3);
        assert!(damage.news() && !damage.news());
        assert!(damage.touches(4 * size - 1, 4 * size));
        assert!(!damage.touches(0, 3 * size) && !damage.touches(4 * size, 9 * size));
        for page in 100..100 + NAMED {
            damage.note(page);
        }
        assert!(damage.touches(0, 1), "too many to name: all of it");
    }

    #[test]
    fn more_mappings_than_a_block_has_are_known() {
        let (start, len) = (1usize << 40, 4096);
        let all: Vec<_> = (0..BLOCK + 50)
            .map(|n| Watched::new((start + n * len) as *const u8, len))
            .collect();
        let known = |n: usize| any_entry(|e| e.start.load(Ordering::SeqCst) == start + n * len);
        assert!((0..all.len()).all(known));
        drop(all);
        assert!(!(0..BLOCK + 50).any(known));
    }
}
