//! The fuzz targets' inputs as plain tests.
#![allow(unreachable_pub, missing_docs)]

#[path = "../../../fuzz/checks/protocol.rs"]
mod checks;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn frames() {
    corpus::replay("frame", 20_000, checks::frame);
}

#[test]
fn records() {
    corpus::replay("record", 20_000, checks::record);
}

#[test]
fn batches() {
    corpus::replay("batch", 20_000, checks::batch);
}

#[test]
fn bodies() {
    corpus::replay("body", 10_000, checks::body);
}

#[test]
fn property_texts() {
    corpus::replay("properties", 20_000, |data| {
        checks::properties(&String::from_utf8_lossy(data));
    });
}
