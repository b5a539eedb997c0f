//! Which numbers of a run have come, and how often: one bit each and two counters.
//!
//! Also the file form of a set of numbers: one range `FROM-TO`, both included, a line.

use std::fmt::Write as _;

/// A set of numbers below a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ledger {
    bits: Vec<u64>,
    limit: u64,
    distinct: u64,
    duplicates: u64,
    strangers: u64,
}

impl Ledger {
    pub(crate) fn new(limit: u64) -> Self {
        let words = usize::try_from(limit.div_ceil(64)).unwrap_or(usize::MAX);
        Self {
            bits: vec![0; words],
            limit,
            distinct: 0,
            duplicates: 0,
            strangers: 0,
        }
    }

    /// Notes a number; false if it was there before or is not below the limit.
    pub(crate) fn note(&mut self, number: u64) -> bool {
        if number >= self.limit {
            self.strangers += 1;
            return false;
        }
        let (word, bit) = ((number / 64) as usize, 1u64 << (number % 64));
        if self.bits[word] & bit != 0 {
            self.duplicates += 1;
            return false;
        }
        self.bits[word] |= bit;
        self.distinct += 1;
        true
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        number < self.limit && self.bits[(number / 64) as usize] & (1 << (number % 64)) != 0
    }

    /// Different numbers noted.
    pub(crate) fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Numbers noted again.
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Numbers at or above the limit.
    pub(crate) fn strangers(&self) -> u64 {
        self.strangers
    }

    /// How many of `expected` have not come, and the first few of them as ranges.
    pub(crate) fn missing_from(&self, expected: &Self) -> (u64, String) {
        let mut missing = Self::new(expected.limit);
        for number in expected.numbers() {
            if !self.contains(number) {
                missing.note(number);
            }
        }
        let text = missing.to_text();
        let first: Vec<&str> = text.lines().take(10).collect();
        (missing.distinct, first.join(" "))
    }

    fn numbers(&self) -> impl Iterator<Item = u64> {
        self.bits.iter().enumerate().flat_map(|(word, bits)| {
            (0..64)
                .filter(move |bit| bits & (1 << bit) != 0)
                .map(move |bit| word as u64 * 64 + bit)
        })
    }

    /// A set of all numbers below the limit.
    pub(crate) fn full(limit: u64) -> Self {
        let mut all = Self::new(limit);
        for number in 0..limit {
            all.note(number);
        }
        all
    }

    /// The numbers as lines of ranges.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let mut open: Option<(u64, u64)> = None;
        for number in self.numbers() {
            open = match open {
                Some((from, to)) if to + 1 == number => Some((from, number)),
                Some(range) => {
                    push_range(&mut text, range);
                    Some((number, number))
                }
                None => Some((number, number)),
            };
        }
        if let Some(range) = open {
            push_range(&mut text, range);
        }
        text
    }

    /// Reads what [`Self::to_text`] wrote. Numbers at or above the limit are an error.
    pub(crate) fn from_text(text: &str, limit: u64) -> Result<Self, String> {
        let mut ledger = Self::new(limit);
        for (i, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let bad = || format!("line {}: {line:?} is not a range FROM-TO below {limit}", i + 1);
            let (from, to) = line.trim().split_once('-').ok_or_else(bad)?;
            let (from, to): (u64, u64) = (from.parse().map_err(|_| bad())?, to.parse().map_err(|_| bad())?);
            if from > to || to >= limit {
                return Err(bad());
            }
            for number in from..=to {
                ledger.note(number);
            }
        }
        Ok(ledger)
    }
}

fn push_range(text: &mut String, (from, to): (u64, u64)) {
    let _always_ok = writeln!(text, "{from}-{to}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_duplicates_strangers_and_the_missing() {
        let mut seen = Ledger::new(200);
        for number in (0..200).filter(|n| !(64..=66).contains(n) && *n != 199) {
            assert!(seen.note(number));
        }
        assert!(!seen.note(5));
        assert!(!seen.note(200));
        assert_eq!(
            (seen.distinct(), seen.duplicates(), seen.strangers()),
            (196, 1, 1)
        );
        let (missing, which) = seen.missing_from(&Ledger::full(200));
        assert_eq!((missing, which.as_str()), (4, "64-66 199-199"));
    }

    #[test]
    fn text_form_returns_what_went_in() {
        let mut ledger = Ledger::new(1000);
        for number in [0, 1, 2, 63, 64, 65, 500, 999] {
            ledger.note(number);
        }
        let text = ledger.to_text();
        assert_eq!(text, "0-2\n63-65\n500-500\n999-999\n");
        assert_eq!(Ledger::from_text(&text, 1000), Ok(ledger));
        for bad in ["7", "3-1", "0-1000", "a-b"] {
            assert!(Ledger::from_text(bad, 1000).is_err(), "{bad}");
        }
    }
}
