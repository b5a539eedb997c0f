//! Random texts as `java.util.Properties` of JDK 17 read them.
//!
//! `data/java_properties.txt` has a case a line: the text, ` OK `, and the pairs in braces, sorted; texts are
//! written as four hexadecimal digits for each UTF-16 unit.

#![allow(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::collections::BTreeMap;

use ferromq_daemon::Properties;

fn hex(text: &str) -> String {
    let digits: Vec<String> = text.encode_utf16().map(|unit| format!("{unit:04x}")).collect();
    digits.concat()
}

fn unhex(text: &str) -> String {
    let digits = text.as_bytes().chunks(4).map(|d| std::str::from_utf8(d).unwrap());
    String::from_utf16(
        &digits
            .map(|d| u16::from_str_radix(d, 16).unwrap())
            .collect::<Vec<_>>(),
    )
    .unwrap()
}

#[test]
fn texts_are_read_as_java_reads_them() {
    for case in include_str!("data/java_properties.txt").lines() {
        let (text, expected) = case.split_once(" OK ").unwrap();
        let read = Properties::parse(&unhex(text)).unwrap();
        let pairs: BTreeMap<String, String> = read.iter().map(|(k, v)| (hex(k), hex(v))).collect();
        let shown: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(format!("{{{}}}", shown.join(", ")), expected, "{:?}", unhex(text));
    }
}
