//! A batch body yields messages or one error, and ends.
#![no_main]

use ferromq_protocol::batch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let members = batch::iter(data).take_while(Result::is_ok).count();
    assert!(members <= data.len());
});
