//! What the handler of page faults reads and writes: the entries of its register, and the pages that turned out to be bad.
//!
//! Neither takes a lock. An entry's version is odd while it changes: who finds the same even version before and after
//! reading has values that belong together.

use crate::sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Bad pages that a mapping can name; with more, all of it counts as bad.
pub(crate) const NAMED: usize = 32;
/// In place of a page's number: none.
const NONE: usize = usize::MAX;

/// Which pages of a mapping turned out to be bad.
#[derive(Debug)]
pub(crate) struct Damage {
    any: AtomicBool,
    all: AtomicBool,
    pages: Vec<AtomicUsize>,
    told: AtomicBool,
}

impl Damage {
    pub(crate) fn new(named: usize) -> Self {
        Self {
            any: AtomicBool::new(false),
            all: AtomicBool::new(false),
            pages: (0..named).map(|_| AtomicUsize::new(NONE)).collect(),
            told: AtomicBool::new(false),
        }
    }

    /// Whether any page turned out to be bad.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether one of these pages, the last included, turned out to be bad.
    pub(crate) fn touches_pages(&self, first: usize, last: usize) -> bool {
        self.any()
            && (self.all.load(Ordering::Acquire)
                || self.pages.iter().any(|page| {
                    let page = page.load(Ordering::Acquire);
                    page != NONE && (first..=last).contains(&page)
                }))
    }

    /// `true` the first time that it's asked after something went bad.
    pub(crate) fn news(&self) -> bool {
        self.any() && !self.told.swap(true, Ordering::AcqRel)
    }

    /// Called by the handler.
    pub(crate) fn note(&self, page: usize) {
        let named = self.pages.iter().any(|slot| {
            slot.load(Ordering::Acquire) == page
                || slot
                    .compare_exchange(NONE, page, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
                || slot.load(Ordering::Acquire) == page
        });
        if !named {
            self.all.store(true, Ordering::Release);
        }
        self.any.store(true, Ordering::Release);
    }
}

/// A place of the register: a mapping, or nothing while `start` is 0.
pub(crate) struct Entry<T> {
    /// Odd while the rest changes.
    pub(crate) version: AtomicUsize,
    pub(crate) start: AtomicUsize,
    pub(crate) len: AtomicUsize,
    pub(crate) damage: AtomicPtr<T>,
}

impl<T> Entry<T> {
    /// Changes the entry. One thread at a time does.
    pub(crate) fn change(&self, start: usize, len: usize, damage: *mut T) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.len.store(len, Ordering::SeqCst);
        self.damage.store(damage, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The mapping that is here, if it has the address: its start and what is known of it. Nothing while the entry changes;
    /// that of a mapping which the caller is reading doesn't.
    pub(crate) fn holding(&self, address: usize) -> Option<(usize, *mut T)> {
        let version = self.version.load(Ordering::SeqCst);
        let start = self.start.load(Ordering::SeqCst);
        let len = self.len.load(Ordering::SeqCst);
        let damage = self.damage.load(Ordering::SeqCst);
        let here = version.is_multiple_of(2)
            && start != 0
            && (start..start + len).contains(&address)
            && self.version.load(Ordering::SeqCst) == version;
        here.then_some((start, damage))
    }
}
