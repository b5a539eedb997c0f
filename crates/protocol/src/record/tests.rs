//! Records there and back, and damaged ones.

use proptest::prelude::*;

use super::*;
use crate::{properties, unhex};

const RECORD: &str = "000000b3 daa320a7 3610a686 00000001 00000000
    000000000000002a 000000000001e240 00000000
    0000017e12ef9c00 0a000009 0000d431
    0000017e12ef9c05 0a000001 00002a9f
    00000000 0000000000000000
    00000005 68656c6c6f  09 546f70696354657374
    004a 54414753 01 54616741 02 554e49515f4b4559 01 3746303030303031333033393138423441414332344443413545344130303030
    02 434c5553544552 01 44656661756c74436c7573746572";

fn record(buf: &[u8]) -> Record<'_> {
    match parse(buf, Check::Crc).unwrap() {
        Entry::Record(r) => r,
        Entry::Blank { .. } => panic!("a blank"),
    }
}

#[test]
fn official_record_both_ways() {
    let bytes = unhex(RECORD);
    assert_eq!(bytes.len(), 179);
    let r = record(&bytes);
    assert_eq!(
        (r.total_size, r.body_crc, r.queue_id, r.flag),
        (179, 0x3610_A686, 1, 0)
    );
    assert_eq!((r.queue_offset, r.physical_offset, r.sys_flag), (42, 123_456, 0));
    assert_eq!(
        (r.born_timestamp, r.born_host),
        (1_640_995_200_000, "10.0.0.9:54321".parse().unwrap())
    );
    assert_eq!(
        (r.store_timestamp, r.store_host),
        (1_640_995_200_005, "10.0.0.1:10911".parse().unwrap())
    );
    assert_eq!((r.reconsume_times, r.prepared_transaction_offset), (0, 0));
    assert_eq!(
        (r.body, r.topic, r.properties.len()),
        (&b"hello"[..], "TopicTest", 74)
    );
    assert_eq!(r.property("TAGS"), Some("TagA"));
    assert_eq!(r.property("UNIQ_KEY"), Some("7F000001303918B4AAC24DCA5E4A0000"));
    assert_eq!(r.property("CLUSTER"), Some("DefaultCluster"));
    assert_eq!(r.offset_id(), "0A00000100002A9F000000000001E240");

    let props = properties::Builder::new()
        .set("TAGS", "TagA")
        .set("UNIQ_KEY", "7F000001303918B4AAC24DCA5E4A0000")
        .set("CLUSTER", "DefaultCluster")
        .build();
    assert_eq!(props, r.properties_text());
    let mut out = vec![9, 9];
    let draft = RecordDraft {
        properties: props.as_bytes(),
        ..r.to_draft()
    };
    draft.encode(&mut out);
    let made = &mut out[2..];
    assert_eq!(draft.encoded_len(), made.len());
    patch::queue_offset(made, 42);
    patch::physical_offset(made, 123_456);
    patch::store_timestamp(made, 1_640_995_200_005);
    assert_eq!(made, bytes);
}

#[test]
fn blanks() {
    let mut file_end = blank(300).to_vec();
    assert_eq!(file_end, unhex("0000012c cbd43194"));
    assert_eq!(parse(&file_end, Check::Crc), Ok(Entry::Blank { size: 300 }));
    file_end.extend_from_slice(b"whatever");
    assert_eq!(parse(&file_end, Check::None), Ok(Entry::Blank { size: 300 }));
}

#[test]
fn no_record() {
    assert_eq!(
        parse(&[], Check::None),
        Err(RecordError::Short { need: 8, have: 0 })
    );
    assert_eq!(parse(&[0; 100], Check::None), Err(RecordError::Magic(0)));
    let mut bytes = unhex(RECORD);
    for cut in 0..bytes.len() {
        assert!(
            matches!(parse(&bytes[..cut], Check::None), Err(RecordError::Short { .. })),
            "{cut}"
        );
    }
    bytes[88] ^= 1;
    assert!(matches!(
        parse(&bytes, Check::Crc),
        Err(RecordError::Crc {
            stored: 0x3610_A686,
            ..
        })
    ));
    assert!(parse(&bytes, Check::None).is_ok());
}

#[test]
fn lying_lengths() {
    let good = unhex(RECORD);
    for value in [i32::MIN, -1, 0, 90] {
        let mut bytes = good.clone();
        bytes[..4].copy_from_slice(&value.to_be_bytes());
        assert_eq!(parse(&bytes, Check::None), Err(RecordError::Size(value)));
    }
    for size in 91..179_i32 {
        let mut bytes = good.clone();
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        assert!(
            matches!(parse(&bytes, Check::None), Err(RecordError::Field { .. })),
            "{size}"
        );
    }
    let mut longer = good.clone();
    longer.push(0);
    longer[..4].copy_from_slice(&180_i32.to_be_bytes());
    assert_eq!(
        parse(&longer, Check::None),
        Err(RecordError::Field {
            field: "end",
            size: 180
        })
    );
    // Body, topic and properties lengths.
    for (at, width) in [(84, 4), (93, 1), (103, 2)] {
        for value in [-1_i32, 4, 75, 127, i32::MAX] {
            let mut bytes = good.clone();
            bytes[at..at + width].copy_from_slice(&value.to_be_bytes()[4 - width..]);
            if bytes != good {
                assert!(
                    matches!(parse(&bytes, Check::None), Err(RecordError::Field { .. })),
                    "{at} {value}"
                );
            }
        }
    }
    // A flag that claims longer hosts.
    let mut bytes = good.clone();
    bytes[39] = 0x30;
    assert!(parse(&bytes, Check::None).is_err());
    let mut bytes = good;
    bytes[95] = 0xFF;
    assert_eq!(parse(&bytes, Check::None), Err(RecordError::Topic));
}

#[test]
fn mapped_addresses_are_folded() {
    let bytes = unhex(RECORD);
    let draft = RecordDraft {
        born_host: "[::ffff:10.0.0.9]:54321".parse().unwrap(),
        store_host: "[2001:db8::1]:10911".parse().unwrap(),
        ..record(&bytes).to_draft()
    };
    let mut out = Vec::new();
    draft.encode(&mut out);
    assert_eq!(out.len(), 179 + 12);
    patch::store_timestamp(&mut out, 77);
    let r = record(&out);
    assert_eq!((r.sys_flag, r.store_timestamp), (sysflag::STORE_HOST_V6, 77));
    assert_eq!(
        (r.born_host, r.store_host),
        ("10.0.0.9:54321".parse().unwrap(), draft.store_host)
    );
}

#[test]
fn patches_of_short_slices_do_nothing() {
    for n in 0..48 {
        let mut short = vec![0; n];
        patch::queue_id(&mut short, -1);
        patch::physical_offset(&mut short, -1);
        patch::queue_offset(&mut short, -1);
        patch::store_timestamp(&mut short, -1);
    }
}

#[test]
fn records_back_to_back() {
    let one = unhex(RECORD);
    let mut many = one.repeat(3);
    assert_eq!(iter(&many, Check::Crc).flatten().count(), 3);
    many.extend_from_slice(&one[..100]);
    let all: Vec<_> = iter(&many, Check::Crc).collect();
    assert_eq!(all.len(), 4);
    assert!(all[3].is_err());
    assert_eq!(iter(&[], Check::None).count(), 0);
}

fn any_host() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip.into(), port)),
        (any::<[u8; 16]>(), any::<u16>())
            .prop_map(|(ip, port)| SocketAddr::new(IpAddr::from(ip).to_canonical(), port)),
    ]
}

proptest! {
    #[test]
    fn round_trip(
        topic in "[%|a-zA-Z0-9_-]{0,127}", ids in any::<(i32, i32, i32)>(), times in any::<(i64, i64, i64, i64, i64)>(),
        hosts in (any_host(), any_host()), sys_flag in 0..0x800_i32,
        body in prop::collection::vec(any::<u8>(), 0..300), props in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let draft = RecordDraft {
            topic: &topic, queue_id: ids.0, flag: ids.1, reconsume_times: ids.2, sys_flag,
            born_timestamp: times.0, prepared_transaction_offset: times.1, born_host: hosts.0, store_host: hosts.1,
            body: &body, properties: &props,
        };
        let mut out = Vec::new();
        draft.encode(&mut out);
        prop_assert_eq!(out.len(), draft.encoded_len());
        patch::queue_offset(&mut out, times.2);
        patch::physical_offset(&mut out, times.3);
        patch::store_timestamp(&mut out, times.4);
        let r = record(&out);
        prop_assert_eq!((r.queue_offset, r.physical_offset, r.store_timestamp), (times.2, times.3, times.4));
        let back = RecordDraft { sys_flag: draft.sys_flag, ..r.to_draft() };
        prop_assert_eq!(back, draft);
        prop_assert_eq!(r.sys_flag & !0x30, sys_flag & !0x30);
    }

    #[test]
    fn damage_never_panics(at in 0_usize..179, byte in any::<u8>()) {
        let mut bytes = unhex(RECORD);
        bytes[at] = byte;
        let _any = parse(&bytes, Check::Crc);
    }

    #[test]
    fn hostile_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 8..300)) {
        bytes[4..8].copy_from_slice(&MESSAGE_MAGIC.to_be_bytes());
        let n = bytes.len() as i32;
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        let _any = parse(&bytes, Check::Crc);
    }
}
