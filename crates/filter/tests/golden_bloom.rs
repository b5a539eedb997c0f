//! Shapes, positions and maps that Java's own classes wrote into `e2e/java/golden/filters.jsonl`.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fmt::Write as _;

use ferromq_filter::bloom::{BloomFilter, has_all, set};
use serde_json::Value;

fn number(line: &Value, name: &str) -> u32 {
    u32::try_from(line[name].as_u64().unwrap()).unwrap()
}

fn hex(map: &[u8]) -> String {
    map.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn maps_are_javas_to_the_bit() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/java/golden/filters.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let mut seen = 0;
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["kind"] != "bloom" {
            continue;
        }
        let filter = BloomFilter::new(number(&line, "errorRate"), number(&line, "groups")).unwrap();
        assert_eq!(
            (filter.positions(), filter.bits()),
            (number(&line, "k"), number(&line, "m")),
            "{line}"
        );
        let mut map = filter.empty_map();
        for (key, positions) in line["keys"].as_object().unwrap() {
            let java: Vec<u32> = serde_json::from_value(positions.clone()).unwrap();
            assert_eq!(filter.positions_of(key), java, "{key} in {line}");
            set(&mut map, &java);
            assert!(has_all(&map, &java));
        }
        assert_eq!(hex(&map), line["hex"].as_str().unwrap(), "{line}");
        seen += 1;
    }
    assert!(seen >= 10, "{seen} lines");
}
