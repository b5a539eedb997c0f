//! Bodies of batches; see `checks/protocol.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../checks/protocol.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| checks::batch(data));
