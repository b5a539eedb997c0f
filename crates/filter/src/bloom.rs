//! Which groups a message matters to, as bits beside its consume queue unit.
//!
//! Each group that subscribes to a topic by an expression has some positions in a bit map of fixed length, found by hashing
//! `GROUP#TOPIC`. A message's map has the bits of every group whose expression takes it. A group none of whose
//! bits is missing may want the message; one with a missing bit does not. Positions and maps are Java's to the bit, since both
//! are kept on disk.
//!
//! * With an error rate of `f` percent and `n` expected groups there are `k = ⌈log₀.₅(f/100)⌉` positions a group in
//!   `m = ⌈n · log₂(100/f) · log₂ e⌉` bits, rounded up to whole bytes.
//! * The hash is the first half of the 128-bit Murmur3 hash (x64, seed 0) of the key in UTF-8. With its lower 32 bits `a` and its
//!   upper ones `b`, position `i` of 1 to k is `a + i·b` in 32 bits, turned over if negative, modulo m.
//! * Bit `p` is bit `p mod 8`, from the lowest, of byte `p / 8`.

/// The most bits of a map: more does not fit into an extension of a consume queue.
pub const MOST_BITS: u32 = 8 * 32_747;

/// Shape of the maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloomFilter {
    positions: u32,
    bits: u32,
}

impl BloomFilter {
    /// For an error rate in percent (1 to 99) and a number of groups (from 1). `None` outside of these, and when the maps would have
    /// more than [`MOST_BITS`] bits.
    pub fn new(error_percent: u32, groups: u32) -> Option<Self> {
        if !(1..=99).contains(&error_percent) || groups == 0 {
            return None;
        }
        let rate = f64::from(error_percent) / 100.0;
        // Java divides natural logarithms; the rounding of its results decides.
        let log = |base: f64, of: f64| of.ln() / base.ln();
        let positions = log(0.5, rate).ceil();
        let bits = (f64::from(groups) * log(2.0, 1.0 / rate) * log(2.0, std::f64::consts::E)).ceil();
        let bits = (8.0 * (bits / 8.0).ceil()) as u32;
        (positions >= 1.0 && bits <= MOST_BITS).then_some(Self {
            positions: positions as u32,
            bits,
        })
    }

    /// Length of a map in bits, a multiple of 8.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Number of positions of a key.
    pub fn positions(self) -> u32 {
        self.positions
    }

    /// The positions of a key; some may be equal.
    pub fn positions_of(self, key: &str) -> Vec<u32> {
        let hash = murmur3_first_half(key.as_bytes());
        let (low, high) = (hash as i32, (hash >> 32) as i32);
        (1..=self.positions)
            .map(|i| {
                let mixed = low.wrapping_add(high.wrapping_mul(i as i32));
                let mixed = if mixed < 0 { !mixed } else { mixed };
                mixed.unsigned_abs() % self.bits
            })
            .collect()
    }

    /// A map without any bit.
    pub fn empty_map(self) -> Vec<u8> {
        vec![0; (self.bits / 8) as usize]
    }
}

/// Sets bits in a map; positions beyond its end are passed over.
pub fn set(map: &mut [u8], positions: &[u32]) {
    for &position in positions {
        if let Some(byte) = map.get_mut((position / 8) as usize) {
            *byte |= 1 << (position % 8);
        }
    }
}

/// Whether a map has all of these bits.
pub fn has_all(map: &[u8], positions: &[u32]) -> bool {
    positions.iter().all(|&position| {
        map.get((position / 8) as usize)
            .is_some_and(|byte| byte & (1 << (position % 8)) != 0)
    })
}

/// The first half of the 128-bit Murmur3 hash, x64 form, seed 0.
fn murmur3_first_half(bytes: &[u8]) -> u64 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    };
    let mix1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let finish = |mut k: u64| {
        k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        k ^ (k >> 33)
    };
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        h1 ^= mix1(word(&block[..8]));
        h1 = h1
            .rotate_left(27)
            .wrapping_add(h2)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
        h2 ^= mix2(word(&block[8..]));
        h2 = h2
            .rotate_left(31)
            .wrapping_add(h1)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5ab5);
    }
    let rest = blocks.remainder();
    let (first, second) = rest.split_at(rest.len().min(8));
    h2 ^= mix2(word(second));
    h1 ^= mix1(word(first));
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_possible_shapes() {
        let filter = BloomFilter::new(20, 32).unwrap();
        assert_eq!((filter.positions(), filter.bits()), (3, 112));
        assert_eq!(filter.empty_map().len(), 14);
        for (percent, groups) in [(0, 32), (100, 32), (20, 0), (1, u32::MAX)] {
            assert!(BloomFilter::new(percent, groups).is_none(), "{percent} {groups}");
        }
    }

    #[test]
    fn a_map_has_what_was_set_and_hostile_positions_do_no_harm() {
        let filter = BloomFilter::new(20, 32).unwrap();
        let mut map = filter.empty_map();
        let (one, other) = (filter.positions_of("g#t"), filter.positions_of("h#t"));
        set(&mut map, &one);
        assert!(has_all(&map, &one) && !has_all(&map, &other));
        set(&mut map, &[u32::MAX, 112]);
        assert!(!has_all(&map, &[u32::MAX]) && !has_all(&map, &[112]));
        assert!(has_all(&[], &[]) && !has_all(&[], &[0]));
    }
}
