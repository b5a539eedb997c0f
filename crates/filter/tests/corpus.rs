//! The fuzz target's inputs as a plain test.
#![allow(unreachable_pub, missing_docs)]

#[path = "../../../fuzz/checks/filter.rs"]
mod checks;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn filters() {
    corpus::replay("sql92", 20_000, |data| {
        checks::sql92(&String::from_utf8_lossy(data));
    });
}
