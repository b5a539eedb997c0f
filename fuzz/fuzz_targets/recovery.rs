//! Recovery of a store with changed files; see `checks/recovery.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../checks/recovery.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| checks::recovery(data));
