//! Frames in pieces, in a row, and damaged.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::command::Language;
use crate::ext::{Ext, MAX_FIELDS};
use crate::header::GetRouteInfo;
use crate::unhex;

const ROUTE_JSON: &str = "00000087 00000083
    7b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f70696354657374227d2c22666c6167223a302c
    226c616e6775616765223a224a415641222c226f7061717565223a312c2273657269616c697a655479706543757272656e74525043223a
    224a534f4e222c2276657273696f6e223a3339397d";
const ROUTE_BINARY: &str = "0000002d 01000029 0069 00 018f 00000001 00000000 00000000 00000014
    0005 746f706963 00000009 546f70696354657374";

fn one(bytes: &[u8]) -> Result<Option<Command>, FrameError> {
    let mut buf = BytesMut::from(bytes);
    let cmd = decode(&mut buf, MAX_FRAME)?;
    assert!(cmd.is_none() || buf.is_empty());
    Ok(cmd)
}

fn written(cmd: &Command) -> BytesMut {
    let mut out = BytesMut::new();
    encode(cmd, &mut out);
    out
}

/// A JSON frame around a header text.
fn json_frame(header: &str) -> Vec<u8> {
    let mut f = (4 + header.len() as u32).to_be_bytes().to_vec();
    f.extend_from_slice(&(header.len() as u32).to_be_bytes());
    f.extend_from_slice(header.as_bytes());
    f
}

/// A binary frame around a header.
fn binary_frame(header: &[u8]) -> Vec<u8> {
    let mut f = (4 + header.len() as u32).to_be_bytes().to_vec();
    f.extend_from_slice(&(1 << 24 | header.len() as u32).to_be_bytes());
    f.extend_from_slice(header);
    f
}

fn route_query(serialize: SerializeType) -> Command {
    let mut cmd = Command::request(105).with_ext("topic", "TopicTest");
    cmd.opaque = 1;
    cmd.version = 399;
    cmd.serialize = serialize;
    cmd
}

#[test]
fn official_frames_both_ways() {
    for (hex, len, form) in [
        (ROUTE_JSON, 139, SerializeType::Json),
        (ROUTE_BINARY, 49, SerializeType::Binary),
    ] {
        let bytes = unhex(hex);
        assert_eq!(bytes.len(), len);
        let cmd = one(&bytes).unwrap().unwrap();
        assert_eq!(cmd, route_query(form));
        assert_eq!(written(&cmd), bytes);
        assert_eq!(cmd.header::<GetRouteInfo<'_>>().unwrap().topic, "TopicTest");
    }
}

#[test]
fn partial_input_asks_for_more_and_keeps_it() {
    for hex in [ROUTE_JSON, ROUTE_BINARY] {
        let bytes = unhex(hex);
        for cut in 0..bytes.len() {
            let mut buf = BytesMut::from(&bytes[..cut]);
            assert!(decode(&mut buf, MAX_FRAME).unwrap().is_none(), "{cut}");
            assert_eq!(buf, bytes[..cut]);
        }
    }
}

#[test]
fn frames_back_to_back_with_bodies() {
    let mut buf = BytesMut::new();
    for i in 0..5 {
        let mut cmd = route_query(if i % 2 == 0 {
            SerializeType::Json
        } else {
            SerializeType::Binary
        });
        cmd.opaque = i;
        encode(&cmd.with_body(vec![i as u8; i as usize]), &mut buf);
    }
    buf.put_slice(&[0, 0]);
    for i in 0..5 {
        let cmd = decode(&mut buf, MAX_FRAME).unwrap().unwrap();
        assert_eq!(
            (cmd.opaque, cmd.body.as_ref()),
            (i, vec![i as u8; i as usize].as_slice())
        );
    }
    assert!(decode(&mut buf, MAX_FRAME).unwrap().is_none());
    assert_eq!(buf.len(), 2);
}

#[test]
fn lengths_are_checked_before_anything_is_awaited() {
    for length in [-1, i32::MIN, 0, 3, i32::MAX, 16_777_213] {
        let err = one(&length.to_be_bytes()).unwrap_err();
        assert!(
            matches!(err, FrameError::Length { length: l, .. } if l == length),
            "{length}"
        );
    }
    // The largest frame is awaited.
    assert!(one(&16_777_212_i32.to_be_bytes()).unwrap().is_none());
    assert!(matches!(
        one(&unhex("00000004 02000000")),
        Err(FrameError::Serialization(2))
    ));
    assert!(matches!(
        one(&unhex("00000064 ff000000")),
        Err(FrameError::Serialization(255))
    ));
    // The header is one byte longer than its frame; nothing more has to come for this to be known.
    assert!(matches!(
        one(&unhex("00000064 00000061")),
        Err(FrameError::HeaderLength {
            header: 97,
            frame: 96
        })
    ));
    assert!(one(&unhex("00000064 00000060")).unwrap().is_none());
    // A lower limit of one's own.
    let mut buf = BytesMut::from(unhex(ROUTE_JSON).as_slice());
    assert!(decode(&mut buf, 138).is_err());
    assert!(decode(&mut buf, 139).unwrap().is_some());
    assert!(decode(&mut BytesMut::from(&b"\0\0\0\x04"[..]), 0).is_err());
}

#[test]
fn empty_headers() {
    assert!(matches!(
        one(&unhex("00000004 00000000")),
        Err(FrameError::Json(_))
    ));
    assert!(matches!(
        one(&unhex("00000004 01000000")),
        Err(FrameError::Binary(BinaryHeaderError::Short { field: "code", .. }))
    ));
    let cmd = one(&json_frame("{}")).unwrap().unwrap();
    assert_eq!(
        (cmd.code, cmd.version, cmd.ext.len(), cmd.remark),
        (0, 0, 0, None)
    );
}

#[test]
fn lenient_json_headers() {
    let header = r#" {"version":"317","x":{"y":[1,{}]},"code":40000,"extFields":{"n":5,"b":true,"f":1.5,"z":null,"o":{"k":["v",1,null,{}]},"a":[],"s":"t\u0001é\ud83d\ude00","big":18446744073709551615,"n":6},
        "language":9,"opaque":-2147483648,"remark":12,"flag":3} "#;
    let cmd = one(&json_frame(header)).unwrap().unwrap();
    assert_eq!(
        (cmd.code, cmd.language, cmd.version, cmd.opaque, cmd.flag),
        (40000, Language::Go, 317, i32::MIN, 3)
    );
    assert_eq!(cmd.remark.as_deref(), Some("12"));
    let expected: Ext = [
        ("n", "6"),
        ("b", "true"),
        ("f", "1.5"),
        ("o", r#"{"k":["v",1,null,{}]}"#),
        ("a", "[]"),
        ("s", "t\u{1}é😀"),
        ("big", "18446744073709551615"),
    ]
    .into_iter()
    .collect();
    assert_eq!(cmd.ext, expected);
    assert_eq!(cmd.ext.iter().next(), Some(("n", "6")));
    for (language, expected) in [
        ("\"GO\"", Language::Go),
        ("\"COBOL\"", Language::Java),
        ("null", Language::Java),
        ("77", Language::Java),
    ] {
        let cmd = one(&json_frame(&format!(
            r#"{{"language":{language},"extFields":null,"remark":null}}"#
        )))
        .unwrap()
        .unwrap();
        assert_eq!((cmd.language, cmd.remark), (expected, None));
    }
}

#[test]
fn arguments_in_two_parts() {
    let header = r#"{"extFields":{"a":"1","b":"2"},"code":7,"extFields":{"a":"3"}}"#;
    let cmd = one(&json_frame(header)).unwrap().unwrap();
    assert_eq!(cmd.ext.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
    // Many mentions cost no more than their bytes.
    let fields: String = (0..1000)
        .map(|i| format!("\"{i}\":1,"))
        .collect::<Vec<_>>()
        .concat();
    let header = format!(
        "{{\"extFields\":{{{fields}\"x\":1}}{}}}",
        ",\"extFields\":{}".repeat(500_000)
    );
    assert_eq!(one(&json_frame(&header)).unwrap().unwrap().ext.len(), 1001);
}

#[test]
fn bad_json_headers() {
    for header in [
        "",
        "null",
        "[]",
        "5",
        "{",
        "{}x",
        "{\"code\":2147483648}",
        "{\"code\":\"x\"}",
        "{\"code\":[]}",
        "{\"extFields\":5}",
        "{\"extFields\":[1]}",
        "{\"language\":[]}",
        "{\"code\":1.5}",
    ] {
        assert!(
            matches!(one(&json_frame(header)), Err(FrameError::Json(_))),
            "{header}"
        );
    }
    let deep = format!("{{\"extFields\":{{\"a\":{}", "[".repeat(100_000));
    assert!(one(&json_frame(&deep)).is_err());
    let many = "\"k\":1,".repeat(MAX_FIELDS + 1);
    assert!(one(&json_frame(&format!("{{\"extFields\":{{{many}\"x\":1}}}}"))).is_err());
}

#[test]
fn binary_headers_in_detail() {
    // Unknown language, negative code, a key twice, an empty value.
    let mut header = unhex(
        "fffe 7f 018f 00000001 00000000 00000002 6f6b 0000001b 0001 61 00000001 31 0001 62 00000000 0001 61 00000001 32",
    );
    let ext_len = header.len() - 23;
    header[19..23].copy_from_slice(&(ext_len as u32).to_be_bytes());
    let cmd = one(&binary_frame(&header)).unwrap().unwrap();
    assert_eq!(
        (cmd.code, cmd.language, cmd.remark.as_deref()),
        (-2, Language::Java, Some("ok"))
    );
    assert_eq!(cmd.ext.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "")]);
}

#[test]
fn what_is_no_text_is_replaced_as_java_does() {
    let mut raw =
        json_frame(r#"{"code":7,"remark":"xx\ud800\\ud800\ud83d\ude00\udc00","extFields":{"a":"\ud83dx"}}"#);
    raw[28] = 0xFF;
    let cmd = one(&raw).unwrap().unwrap();
    assert_eq!(cmd.remark.as_deref(), Some("\u{FFFD}x\u{FFFD}\\ud800😀\u{FFFD}"));
    assert_eq!((cmd.code, cmd.ext.get("a")), (7, Some("\u{FFFD}x")));
    let cmd = one(&json_frame(
        "{\t\"extFields\":{\"a\":\"\u{1}\\\"\u{2}\n\"},\n\"code\":7}",
    ))
    .unwrap()
    .unwrap();
    assert_eq!((cmd.code, cmd.ext.get("a")), (7, Some("\u{1}\"\u{2}\n")));
    // Mending text mends no JSON.
    for header in [
        "{\"code\":1.5,\"remark\":\"\\ud800\"}",
        "{\"remark\":\"\\ud8\"}",
        "{\"remark\":\"\\",
    ] {
        assert!(one(&json_frame(header)).is_err(), "{header}");
    }
    let mut header = unhex(ROUTE_BINARY)[8..].to_vec();
    header[23] = 0xFF;
    let cmd = one(&binary_frame(&header)).unwrap().unwrap();
    assert_eq!(cmd.ext.get("\u{FFFD}opic"), Some("TopicTest"));
}

#[test]
fn lying_binary_lengths() {
    let good = unhex(ROUTE_BINARY)[8..].to_vec();
    // Remark length, argument length, key length, value length: each with impossible values.
    for (at, width) in [(13, 4), (17, 4), (21, 2), (28, 4)] {
        for value in [-1_i32, i32::MIN, i32::MAX, 1_000_000, 22] {
            let mut header = good.clone();
            let bytes = value.to_be_bytes();
            header[at..at + width].copy_from_slice(&bytes[4 - width..]);
            assert!(one(&binary_frame(&header)).is_err(), "{at} {value}");
        }
    }
    for cut in 0..good.len() {
        assert!(one(&binary_frame(&good[..cut])).is_err(), "{cut}");
    }
    let mut many = unhex("0069 00 018f 00000001 00000000 00000000");
    many.extend_from_slice(&(6 * 2000_u32).to_be_bytes());
    many.extend_from_slice(&[0; 12000]);
    assert!(matches!(
        one(&binary_frame(&many)),
        Err(FrameError::Binary(BinaryHeaderError::TooManyFields))
    ));
}

#[test]
fn what_binary_cannot_hold_goes_as_json() {
    for (code, version) in [(32768, 407), (-32769, 407), (105, 70000), (i32::MAX, i32::MIN)] {
        let cmd = Command {
            code,
            version,
            serialize: SerializeType::Binary,
            ..Command::default()
        };
        let bytes = written(&cmd);
        assert_eq!(bytes[4], 0);
        let back = one(&bytes).unwrap().unwrap();
        assert_eq!(
            (back.code, back.version, back.serialize),
            (code, version, SerializeType::Json)
        );
    }
    let mut cmd = route_query(SerializeType::Binary);
    cmd.ext.set(&"k".repeat(32768), "v");
    assert_eq!(one(&written(&cmd)).unwrap().unwrap().ext, cmd.ext);
}

#[test]
fn a_header_too_long_is_replaced() {
    let mut cmd = Command::request(10)
        .with_ext("x", "y".repeat(MAX_FRAME))
        .with_body("body");
    cmd.opaque = 9;
    let mut out = written(&cmd);
    let back = decode(&mut out, MAX_FRAME).unwrap().unwrap();
    assert!(out.is_empty());
    assert_eq!((back.code, back.opaque, back.body.as_ref()), (1, 9, &b"body"[..]));
    assert!(back.remark.unwrap().contains("16777"));
}

#[test]
fn the_body_is_a_slice_of_the_buffer() {
    let cmd = route_query(SerializeType::Json).with_body(vec![7; 100]);
    let mut buf = written(&cmd);
    let place = buf.as_ptr().wrapping_add(buf.len() - 100);
    let body = decode(&mut buf, MAX_FRAME).unwrap().unwrap().body;
    assert_eq!(body.as_ptr(), place);
}

fn any_command() -> impl Strategy<Value = Command> {
    let ext = prop::collection::vec((".{0,12}", ".{0,40}"), 0..20);
    let body = prop::collection::vec(any::<u8>(), 0..64);
    let remark = prop::option::of(".{1,40}");
    (
        any::<i32>(),
        0_i64..13,
        any::<i32>(),
        any::<i32>(),
        any::<i32>(),
        remark,
        ext,
        any::<bool>(),
        body,
    )
        .prop_map(
            |(code, language, version, opaque, flag, remark, ext, binary, body)| Command {
                code,
                language: Language::from_code(language),
                version,
                opaque,
                flag,
                remark,
                ext: ext.into_iter().collect(),
                serialize: if binary {
                    SerializeType::Binary
                } else {
                    SerializeType::Json
                },
                body: Bytes::from(body),
            },
        )
}

fn any_narrow_command() -> impl Strategy<Value = Command> {
    (any_command(), any::<i16>(), any::<i16>()).prop_map(|(mut cmd, code, version)| {
        cmd.code = code.into();
        cmd.version = version.into();
        cmd
    })
}

proptest! {
    #[test]
    fn round_trip(cmd in any_narrow_command()) {
        prop_assert_eq!(one(&written(&cmd)).unwrap().unwrap(), cmd);
    }

    #[test]
    fn round_trip_wide(mut cmd in any_command()) {
        let back = one(&written(&cmd)).unwrap().unwrap();
        cmd.serialize = back.serialize;
        prop_assert_eq!(back, cmd);
    }

    #[test]
    fn standard_readers_take_our_headers(mut cmd in any_command()) {
        cmd.serialize = SerializeType::Json;
        let bytes = written(&cmd);
        let header = &bytes[8..bytes.len() - cmd.body.len()];
        let json: serde_json::Value = serde_json::from_slice(header).unwrap();
        prop_assert_eq!(json["opaque"].as_i64(), Some(cmd.opaque.into()));
        for (k, v) in cmd.ext.iter() {
            prop_assert_eq!(json["extFields"][k].as_str(), Some(v));
        }
    }

    #[test]
    fn cut_headers_are_errors(cmd in any_narrow_command(), cut in any::<prop::sample::Index>()) {
        let mut bytes = written(&cmd);
        bytes.truncate(bytes.len() - cmd.body.len());
        let header = &bytes[8..];
        let cut = &header[..cut.index(header.len())];
        let frame = if bytes[4] == 0 { json_frame(&String::from_utf8_lossy(cut)) } else { binary_frame(cut) };
        prop_assert!(one(&frame).is_err());
    }

    #[test]
    fn hostile_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 8..300), binary in any::<bool>()) {
        let n = bytes.len() as u32;
        let _any = one(&bytes);
        bytes[..4].copy_from_slice(&(n - 4).to_be_bytes());
        bytes[4..8].copy_from_slice(&(u32::from(binary) << 24 | (n - 8)).to_be_bytes());
        let _any = one(&bytes);
    }

    #[test]
    fn damaged_frames_never_panic(cmd in any_narrow_command(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = written(&cmd);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _any = decode(&mut bytes, MAX_FRAME);
    }
}
