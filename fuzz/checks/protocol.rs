//! What has to hold for any bytes that reach the parsers of the wire and of the log.

use bytes::BytesMut;
use ferromq_protocol::{
    batch, body, fastjson, frame, properties,
    record::{self, Check},
};

/// Any bytes are a frame, an error, or too few bytes; what decodes also encodes and decodes to the same command.
pub fn frame(data: &[u8]) {
    let mut buffer = BytesMut::from(data);
    while let Ok(Some(command)) = frame::decode(&mut buffer, frame::MAX_FRAME) {
        let mut out = BytesMut::new();
        frame::encode(&command, &mut out);
        let again = frame::decode(&mut out, frame::MAX_FRAME)
            .expect("our own frame decodes")
            .expect("and is whole");
        assert_eq!(again.code, command.code);
        assert_eq!(again.opaque, command.opaque);
        assert_eq!(again.body, command.body);
    }
}

/// Any bytes are a record, a blank or an error; lengths found in them are never trusted.
pub fn record(data: &[u8]) {
    for check in [Check::None, Check::Crc] {
        if let Ok(record::Entry::Record(found)) = record::parse(data, check) {
            assert!(found.total_size as usize <= data.len());
        }
    }
    let walked = record::iter(data, Check::None).take_while(Result::is_ok).count();
    assert!(walked <= data.len());
}

/// A batch body yields messages or one error, and ends.
pub fn batch(data: &[u8]) {
    let members = batch::iter(data).take_while(Result::is_ok).count();
    assert!(members <= data.len());
}

/// A property text can be read, and what is read can be written and read again.
pub fn properties(text: &str) {
    let first = properties::Builder::parse(text);
    let second = properties::Builder::parse(&first.build());
    assert!(first.iter().eq(second.iter()));
}

/// JSON bodies as lenient as fastjson's: any bytes give a value or an error.
pub fn body(data: &[u8]) {
    drop(fastjson::from_slice::<body::HeartbeatData>(data));
    drop(fastjson::from_slice::<body::TopicRouteData>(data));
    drop(fastjson::from_slice::<body::TopicConfigTable>(data));
    drop(fastjson::from_slice::<body::LockBatchRequestBody>(data));
}
