//! Any bytes are a frame, an error, or too few bytes; what decodes also encodes and decodes to the same command.
#![no_main]

use bytes::BytesMut;
use ferromq_protocol::frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    while let Ok(Some(command)) = frame::decode(&mut buffer, frame::MAX_FRAME) {
        let mut out = BytesMut::new();
        frame::encode(&command, &mut out);
        let again = frame::decode(&mut out, frame::MAX_FRAME).expect("our own frame decodes").expect("and is whole");
        assert_eq!(again.code, command.code);
        assert_eq!(again.opaque, command.opaque);
        assert_eq!(again.body, command.body);
    }
});
