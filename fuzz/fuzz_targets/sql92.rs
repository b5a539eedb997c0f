//! SQL92 filters; see `checks/filter.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../checks/filter.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| checks::sql92(text));
