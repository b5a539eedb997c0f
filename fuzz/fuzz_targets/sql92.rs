//! Any text is a filter or an error with a position; evaluation never panics.
#![no_main]

use ferromq_filter::sql92::Sql92;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(filter) = Sql92::parse(text) {
        let _ = filter.eval(&|name| (name.len() % 2 == 0).then(|| name.to_owned().into()));
    }
});
