//! The body of a registration in each of its forms.

use super::*;
use crate::body::DataVersion;
use crate::crc::crc31;
use crate::unhex;

const RAW: &str = "00000027 7b22636f756e746572223a372c2274696d657374616d70223a313634303939353230303030307d
    00000001 0000001a 546f706963546573742034203420362053494e474c455f544147 00000002 5b5d";
const ZLIB: &str = "78DA63606050AF564ACE2FCD2B492D52B232D7512AC9CC4D2D2E49CC2D50B232343331B0B434353200815A0606064620960AC92FC84C0E01AA
    513001423385604F3F771FD7F8104777A02C53742C0086B31476";

fn sample() -> RegisterBrokerBody {
    let mut body = RegisterBrokerBody {
        filter_server_list: Some(Vec::new()),
        ..RegisterBrokerBody::default()
    };
    body.topic_config_table.data_version = DataVersion {
        counter: 7,
        timestamp: 1_640_995_200_000,
    };
    body.topic_config_table
        .topic_config_table
        .insert("TopicTest".into(), TopicConfig::new("TopicTest", 4, 4, 6));
    body
}

#[test]
fn official_compressed_form() {
    let zlib = unhex(ZLIB);
    assert_eq!((zlib.len(), crc31(&zlib)), (83, 1_113_913_358));
    assert_eq!(RegisterBrokerBody::decode(&zlib, true).unwrap(), sample());
    let ours = sample().encode(true);
    assert_eq!(ours[..2], [0x78, 0xDA]);
    assert_eq!(
        compress::inflate(compress::Kind::Zlib, &ours, 1000).unwrap(),
        unhex(RAW)
    );
    assert_eq!(RegisterBrokerBody::decode(&ours, true).unwrap(), sample());
}

#[test]
fn plain_form() {
    let body = sample();
    let text = String::from_utf8(body.encode(false)).unwrap();
    assert!(text.starts_with(r#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":7,"timestamp":1640995200000},"#));
    assert_eq!(RegisterBrokerBody::decode(text.as_bytes(), false).unwrap(), body);
    assert_eq!(
        RegisterBrokerBody::decode(b"", false).unwrap(),
        RegisterBrokerBody::default()
    );
    assert_eq!(
        RegisterBrokerBody::decode(b"", true).unwrap(),
        RegisterBrokerBody::default()
    );
}

fn packed(raw: &[u8]) -> Vec<u8> {
    compress::compress(compress::Kind::Zlib, raw).unwrap()
}

#[test]
fn hostile_compressed_forms() {
    let raw = unhex(RAW);
    for cut in 0..raw.len() {
        assert!(
            RegisterBrokerBody::decode(&packed(&raw[..cut]), true).is_err(),
            "{cut}"
        );
    }
    let mut lying = raw.clone();
    lying[43..47].copy_from_slice(&i32::MAX.to_be_bytes());
    assert!(RegisterBrokerBody::decode(&packed(&lying), true).is_err());
    let good = String::from_utf8_lossy(&raw).into_owned();
    for bad in [
        "TopicTest 4 4 6 SINGLE_BAD",
        "TopicTest 4 4  SINGLE_TAG6",
        "TopicTest_4 4 6 SINGLE_TAG",
        "TopicTest 4 4 6 SINGLE TAG",
    ] {
        let raw = good.replace("TopicTest 4 4 6 SINGLE_TAG", bad);
        assert!(
            matches!(
                RegisterBrokerBody::decode(&packed(raw.as_bytes()), true),
                Err(RegisterBodyError::Topic(_))
            ),
            "{bad}"
        );
    }
    assert!(matches!(
        RegisterBrokerBody::decode(b"{}", true),
        Err(RegisterBodyError::Inflate(_))
    ));
    assert!(matches!(
        RegisterBrokerBody::decode(b"{", false),
        Err(RegisterBodyError::Json(_))
    ));
}
