//! Property texts; see `checks/protocol.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../checks/protocol.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| checks::properties(text));
