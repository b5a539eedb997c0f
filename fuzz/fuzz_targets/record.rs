//! Any bytes are a record, a blank or an error; lengths found in them are never trusted.
#![no_main]

use ferromq_protocol::record::{self, Check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for check in [Check::None, Check::Crc] {
        if let Ok(record::Entry::Record(found)) = record::parse(data, check) {
            assert!(found.total_size as usize <= data.len());
        }
    }
    let walked = record::iter(data, Check::None).take_while(Result::is_ok).count();
    assert!(walked <= data.len());
});
