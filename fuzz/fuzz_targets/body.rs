//! JSON bodies as fastjson reads them; see `checks/protocol.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../checks/protocol.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| checks::body(data));
