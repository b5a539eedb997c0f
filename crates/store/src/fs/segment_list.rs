//! The log's files in order. Readers take a file out and keep it as long as they like; one writer adds at the end, the
//! cleaner takes away at the front.

use std::sync::Arc;

use parking_lot::RwLock;

use super::segment::Segment;

/// Files that follow each other without a gap.
#[derive(Debug)]
pub(crate) struct SegmentList {
    size: u64,
    list: RwLock<Vec<Arc<Segment>>>,
}

impl SegmentList {
    /// `segments` in order, each `size` long.
    pub(crate) fn new(size: u64, segments: Vec<Arc<Segment>>) -> Self {
        Self {
            size,
            list: RwLock::new(segments),
        }
    }

    pub(crate) fn file_size(&self) -> u64 {
        self.size
    }

    /// The file that has the log offset.
    pub(crate) fn find(&self, offset: u64) -> Option<Arc<Segment>> {
        let list = self.list.read();
        let first = list.first()?.base();
        let index = offset.checked_sub(first)? / self.size;
        list.get(usize::try_from(index).ok()?).cloned()
    }

    pub(crate) fn first(&self) -> Option<Arc<Segment>> {
        self.list.read().first().cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.read().len()
    }

    pub(crate) fn snapshot(&self) -> Vec<Arc<Segment>> {
        self.list.read().clone()
    }

    pub(crate) fn push(&self, segment: Arc<Segment>) {
        self.list.write().push(segment);
    }

    /// Takes the first file away if it starts at `base` and isn't the last.
    pub(crate) fn remove_first(&self, base: u64) -> Option<Arc<Segment>> {
        let mut list = self.list.write();
        if list.len() > 1 && list[0].base() == base {
            Some(list.remove(0))
        } else {
            None
        }
    }
}
