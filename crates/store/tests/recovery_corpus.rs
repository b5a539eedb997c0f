//! The fuzz target's inputs as a plain test: stores with changed files.
#![allow(unreachable_pub, missing_docs)]

#[path = "../../../fuzz/checks/recovery.rs"]
mod checks;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn stores_with_changed_files() {
    corpus::replay("recovery", 60, checks::recovery);
}
