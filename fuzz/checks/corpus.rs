//! The corpora of the fuzz targets as plain tests: each committed input, then changed copies of them, as many and the same ones
//! each time. `FUZZ_ROUNDS` says how many.

use std::{fs, panic::AssertUnwindSafe, path::Path};

/// Numbers that a seed gives, always the same.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Values that lengths and counts go wrong at.
const EDGES: [i64; 10] = [
    0,
    1,
    -1,
    127,
    255,
    32_767,
    65_535,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
];

fn change(input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(out.len() + 1);
        match rng.below(8) {
            0 | 1 if at < out.len() => out[at] ^= 1 << rng.below(8),
            2 if at < out.len() => out[at] = rng.next() as u8,
            3 => out.truncate(at),
            4 => {
                let width = [1, 2, 4, 8][rng.below(4)];
                let bytes = EDGES[rng.below(EDGES.len())].to_be_bytes();
                for (to, from) in out[at..].iter_mut().zip(&bytes[8 - width..]) {
                    *to = *from;
                }
            }
            5 => {
                let from = rng.below(other.len() + 1);
                let to = from + rng.below((other.len() - from + 1).min(64));
                out.splice(at..at, other[from..to].iter().copied());
            }
            6 => {
                let end = (at + rng.below(32)).min(out.len());
                out.drain(at..end);
            }
            _ => {
                let byte = rng.next() as u8;
                out.splice(at..at, std::iter::repeat_n(byte, rng.below(16)));
            }
        }
    }
    out
}

/// Runs `check` on the corpus of `target` and on `rounds` changed copies.
pub fn replay(target: &str, rounds: u64, check: impl Fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut names: Vec<_> = fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.expect("list the corpus").path())
        .collect();
    names.sort();
    let inputs: Vec<Vec<u8>> = names
        .iter()
        .map(|n| fs::read(n).expect("read an input"))
        .collect();
    assert!(!inputs.is_empty(), "{} is empty", dir.display());
    for (name, input) in names.iter().zip(&inputs) {
        let held = std::panic::catch_unwind(AssertUnwindSafe(|| check(input)));
        assert!(held.is_ok(), "{target} fails on {}", name.display());
    }
    let rounds = std::env::var("FUZZ_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(rounds);
    for seed in 0..rounds {
        let mut rng = Rng(seed);
        let input = &inputs[rng.below(inputs.len())];
        let other = &inputs[rng.below(inputs.len())];
        let changed = change(input, other, &mut rng);
        let held = std::panic::catch_unwind(AssertUnwindSafe(|| check(&changed)));
        assert!(held.is_ok(), "{target} fails with seed {seed}: {changed:02x?}");
    }
}
