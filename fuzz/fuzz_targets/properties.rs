//! A property text can be read, and what is read can be written and read again.
#![no_main]

use ferromq_protocol::properties;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let first = properties::Builder::parse(text);
    let second = properties::Builder::parse(&first.build());
    assert!(first.iter().eq(second.iter()));
});
