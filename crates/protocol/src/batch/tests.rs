//! Batches there and back, and damaged ones.

use proptest::prelude::*;

use super::*;
use crate::unhex;

const BATCH: &str = "0000001d 00000000 00000000 00000000 00000001 61 0006 544147530141
    00000018 00000000 00000000 00000000 00000002 6263 0000";

#[test]
fn official_batch_both_ways() {
    let bytes = unhex(BATCH);
    assert_eq!(bytes.len(), 53);
    let messages: Vec<_> = iter(&bytes).collect::<Result<_, _>>().unwrap();
    assert_eq!(
        messages,
        [
            BatchMessage {
                flag: 0,
                body: b"a",
                properties: b"TAGS\x01A"
            },
            BatchMessage {
                flag: 0,
                body: b"bc",
                properties: b""
            },
        ]
    );
    let mut out = Vec::new();
    encode(messages, &mut out);
    assert_eq!(out, bytes);
}

#[test]
fn bad_batches() {
    let good = unhex(BATCH);
    assert_eq!(iter(&[]).count(), 0);
    for cut in 1..good.len() {
        let whole = iter(&good[..cut]).all(|m| m.is_ok());
        assert_eq!(whole, cut == 29, "{cut}");
    }
    for (at, width) in [(0, 4), (16, 4), (21, 2)] {
        for value in [-1_i32, i32::MIN, i32::MAX, 0, 21, 22, 28, 30, 53] {
            let mut bytes = good.clone();
            bytes[at..at + width].copy_from_slice(&value.to_be_bytes()[4 - width..]);
            assert!(iter(&bytes).any(|m| m.is_err()), "{at} {value}");
        }
    }
    let e = iter(&good[..40]).last().unwrap().unwrap_err();
    assert_eq!(
        e,
        BatchError::Size {
            index: 1,
            size: 24,
            left: 11
        }
    );
}

proptest! {
    #[test]
    fn round_trip(parts in prop::collection::vec((any::<i32>(), prop::collection::vec(any::<u8>(), 0..50), prop::collection::vec(any::<u8>(), 0..50)), 0..8)) {
        let messages: Vec<_> = parts.iter().map(|(flag, body, properties)| BatchMessage { flag: *flag, body, properties }).collect();
        let mut out = Vec::new();
        encode(messages.iter().copied(), &mut out);
        prop_assert_eq!(out.len(), messages.iter().map(encoded_len).sum::<usize>());
        prop_assert_eq!(iter(&out).collect::<Result<Vec<_>, _>>().unwrap(), messages);
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(iter(&bytes).count() <= 10);
    }
}
