//! The body of a bench message: which run it belongs to and which number it has.
//!
//! `ferroctl-bench RUN NUMBER CRC ` then filler up to the size asked for. The checksum covers the text before it
//! and the filler's length, so that a cut or mixed-up body is not taken for a good one.

use std::fmt::Write as _;

use bytes::Bytes;

const MARK: &str = "ferroctl-bench";

/// A body of `size` bytes, or of the least that holds the numbers if that is more.
pub(crate) fn encode(run: &str, number: u64, size: usize) -> Bytes {
    let mut text = format!("{MARK} {run} {number} ");
    // The checksum's own 8 digits and the blank behind it.
    let whole = size.max(text.len() + 9);
    let sum = checksum(&text, whole);
    text.reserve(whole - text.len());
    let _always_ok = write!(text, "{sum:08x} ");
    let filler = (0..).map(|i: u64| char::from(b'a' + ((i + number) % 26) as u8));
    let missing = whole - text.len();
    text.extend(filler.take(missing));
    Bytes::from(text)
}

/// The run and number of a body that [`encode`] made; `None` for any other.
pub(crate) fn decode(body: &[u8]) -> Option<(&str, u64)> {
    let head = &body[..body.len().min(160)];
    let end = head
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b' ')
        .nth(3)
        .map(|(i, _)| i)?;
    let head = std::str::from_utf8(&head[..end]).ok()?;
    let mut parts = head.split(' ');
    let (mark, run, number, sum) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let covered = &head[..head.len() - sum.len()];
    let fine = mark == MARK && u32::from_str_radix(sum, 16) == Ok(checksum(covered, body.len()));
    if !fine {
        return None;
    }
    Some((run, number.parse().ok()?))
}

/// FNV-1a: enough to tell a damaged body, with nothing to depend on.
fn checksum(text: &str, size: usize) -> u32 {
    let size = size.to_string();
    text.bytes()
        .chain(size.bytes())
        .fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_carry_run_and_number_at_any_size() {
        for size in [1, 40, 41, 42, 128, 100_000] {
            for number in [0, 9, 123_456_789] {
                let body = encode("run-1", number, size);
                assert_eq!(decode(&body), Some(("run-1", number)));
                assert!(body.len() >= size);
                assert!(body.len() == size || size < 60);
            }
        }
    }

    #[test]
    fn damaged_and_foreign_bodies_are_not_taken() {
        let body = encode("run-1", 17, 128);
        assert_eq!(decode(&body[..127]), None);
        let mut changed = body.to_vec();
        changed[21] = b'9';
        assert_eq!(decode(&changed), None);
        for other in [
            &b""[..],
            b"hello",
            b"    ",
            b"ferroctl-bench a 1",
            b"\xff\xff \xff \xff \xff ",
        ] {
            assert_eq!(decode(other), None);
        }
    }
}
