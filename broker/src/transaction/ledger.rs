//! Which half messages are decided.
//!
//! What holds: every half below `first_open` is decided, and `first_open` is not; a half is decided at most once
//! by [`Ledger::begin`], however many decisions come for it, in whatever order; a half that was stored anew for
//! another check counts as the one it was made from. Memory grows with what lies behind the first open
//! half only.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// The state of all half messages, by queue offset.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    open: bool,
    first_open: i64,
    decided: BTreeSet<i64>,
    /// Decisions that are being stored.
    deciding: BTreeSet<i64>,
    /// Halves that were stored anew → their newest copy.
    moved: HashMap<i64, i64>,
    /// Ops in the order of their queue, with the half that each is about.
    ops: VecDeque<(i64, i64)>,
}

impl Ledger {
    /// Starts at the first half that may be open. False when it was started before.
    pub(crate) fn open(&mut self, first_open: i64) -> bool {
        if self.open {
            return false;
        }
        self.open = true;
        self.first_open = first_open;
        true
    }

    /// The newest copy of a half.
    fn newest(&self, half: i64) -> i64 {
        self.moved.get(&half).copied().unwrap_or(half)
    }

    /// Claims the decision about a half. None when it is decided already or being decided; else what to pass
    /// to [`Ledger::decided`] or [`Ledger::give_up`].
    pub(crate) fn begin(&mut self, half: i64) -> Option<i64> {
        let half = self.newest(half);
        if self.is_decided(half) || !self.deciding.insert(half) {
            return None;
        }
        Some(half)
    }

    /// A claimed decision could not be stored.
    pub(crate) fn give_up(&mut self, half: i64) {
        self.deciding.remove(&half);
    }

    /// The half is decided, by the op at that offset.
    pub(crate) fn decided(&mut self, half: i64, op: i64) {
        self.ops.push_back((op, half));
        self.mark(half);
    }

    /// The half is decided, but its op could not be stored.
    pub(crate) fn decided_without_op(&mut self, half: i64) {
        self.mark(half);
    }

    fn mark(&mut self, half: i64) {
        self.deciding.remove(&half);
        if half >= self.first_open {
            self.decided.insert(half);
        }
        if !self.moved.is_empty() {
            self.moved.retain(|_, newest| *newest != half);
        }
        while self.decided.remove(&self.first_open) {
            self.first_open += 1;
        }
        while self
            .ops
            .front()
            .is_some_and(|&(_, about)| about < self.first_open)
        {
            self.ops.pop_front();
        }
    }

    /// A half was stored anew for another check.
    pub(crate) fn moved(&mut self, from: i64, to: i64) {
        for newest in self.moved.values_mut() {
            if *newest == from {
                *newest = to;
            }
        }
        self.moved.insert(from, to);
    }

    /// Everything before that is decided or gone.
    pub(crate) fn gone_before(&mut self, half: i64) {
        if half > self.first_open {
            self.decided = self.decided.split_off(&half);
            self.first_open = half;
            // Lets what is decided right there pass too.
            while self.decided.remove(&self.first_open) {
                self.first_open += 1;
            }
            while self
                .ops
                .front()
                .is_some_and(|&(_, about)| about < self.first_open)
            {
                self.ops.pop_front();
            }
        }
    }

    pub(crate) fn is_decided(&self, half: i64) -> bool {
        half < self.first_open || self.decided.contains(&half) || self.deciding.contains(&half)
    }

    /// The first half that is not decided.
    pub(crate) fn first_open(&self) -> i64 {
        self.first_open
    }

    /// What a restart needs: the first open half, and the first op that is about it or a later one. None before the start.
    pub(crate) fn progress(&self) -> Option<(i64, Option<i64>)> {
        self.open
            .then(|| (self.first_open, self.ops.front().map(|&(op, _)| op)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        assert!(ledger.open(10));
        assert!(!ledger.open(0));
        ledger
    }

    #[test]
    fn a_half_is_decided_once() {
        let mut ledger = ledger();
        assert_eq!(ledger.begin(10), Some(10));
        assert_eq!(ledger.begin(10), None, "being decided");
        ledger.give_up(10);
        assert_eq!(ledger.begin(10), Some(10), "it failed and comes again");
        ledger.decided(10, 0);
        assert_eq!(ledger.begin(10), None);
        assert_eq!(ledger.begin(9), None, "below the first open one all are decided");
    }

    #[test]
    fn progress_stops_at_the_first_open_half() {
        let mut ledger = ledger();
        ledger.decided(11, 0);
        ledger.decided(12, 1);
        assert_eq!(ledger.progress(), Some((10, Some(0))));
        ledger.decided(10, 2);
        assert_eq!(ledger.progress(), Some((13, None)));
        assert!(ledger.decided.is_empty() && ledger.ops.is_empty());
    }

    #[test]
    fn a_late_decision_reaches_the_newest_copy() {
        let mut ledger = ledger();
        ledger.decided(10, 0);
        ledger.moved(10, 20);
        ledger.decided(20, 1);
        assert!(ledger.moved.is_empty());

        let mut ledger = self::ledger();
        ledger.moved(10, 20);
        ledger.decided(10, 0);
        ledger.moved(20, 30);
        ledger.decided(20, 1);
        assert_eq!(ledger.begin(10), Some(30));
        ledger.decided(30, 2);
        assert_eq!(ledger.begin(10), None);
        assert_eq!(ledger.begin(20), None);
    }

    #[test]
    fn what_retention_took_is_passed() {
        let mut ledger = ledger();
        ledger.decided(15, 0);
        ledger.gone_before(15);
        assert_eq!(ledger.progress(), Some((16, None)));
        ledger.gone_before(3);
        assert_eq!(ledger.first_open(), 16);
    }
}
