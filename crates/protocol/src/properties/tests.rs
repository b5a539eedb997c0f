//! Properties there and back, and odd texts.

use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

#[test]
fn both_endings() {
    for text in [
        "A\u{1}1\u{2}B\u{1}2",
        "A\u{1}1\u{2}B\u{1}2\u{2}",
        "\u{2}\u{2}A\u{1}1\u{2}\u{2}B\u{1}2\u{2}\u{2}",
    ] {
        assert_eq!(iter(text).collect::<Vec<_>>(), [("A", "1"), ("B", "2")]);
        assert_eq!(get(text, "B"), Some("2"));
        assert_eq!(get_bytes(text.as_bytes(), "B"), Some("2"));
        assert_eq!(Builder::parse(text).build(), "A\u{1}1\u{2}B\u{1}2");
    }
}

#[test]
fn pairs_that_do_not_count() {
    let text = "A\u{1}\u{2}\u{1}x\u{2}B\u{2}C\u{1}1\u{1}2\u{2}C2\u{1}3\u{2}D\u{1}old\u{2}D\u{1}new";
    assert_eq!(
        iter(text).collect::<Vec<_>>(),
        [("C", "1\u{1}2"), ("C2", "3"), ("D", "old"), ("D", "new")]
    );
    for name in ["A", "", "B"] {
        assert_eq!(
            (get(text, name), get_bytes(text.as_bytes(), name)),
            (None, None),
            "{name}"
        );
    }
    assert_eq!(
        (get(text, "D"), get_bytes(text.as_bytes(), "D")),
        (Some("new"), Some("new"))
    );
    assert_eq!(get_bytes(b"A\x01\xFF\x02B\x01b", "A"), None);
    assert_eq!(get_bytes(b"A\x01\xFF\x02B\x01b", "B"), Some("b"));
    let built = Builder::new()
        .set("A", "")
        .set("", "x")
        .set("N\u{1}\u{2}", "v\u{2}w\u{1}")
        .set("Z", "z")
        .build();
    assert_eq!(built, "N\u{1}vw\u{1}\u{2}Z\u{1}z");
    assert_eq!(Builder::new().set("\u{2}", "x").set("y", "\u{2}").build(), "");
}

#[test]
fn joining_puts_one_separator() {
    for (own, more, expected) in [
        ("", "", ""),
        ("", "B\u{1}2", "B\u{1}2"),
        ("A\u{1}1", "", "A\u{1}1"),
        ("A\u{1}1\u{2}", "", "A\u{1}1\u{2}"),
        ("A\u{1}1", "B\u{1}2", "A\u{1}1\u{2}B\u{1}2"),
        ("A\u{1}1\u{2}", "B\u{1}2", "A\u{1}1\u{2}B\u{1}2"),
        ("A\u{1}1\u{2}", "\u{2}B\u{1}2\u{2}", "A\u{1}1\u{2}B\u{1}2\u{2}"),
    ] {
        let mut out = own.as_bytes().to_vec();
        join(&mut out, more.as_bytes());
        assert_eq!(out, expected.as_bytes(), "{own:?} {more:?}");
    }
}

#[test]
fn taking_out() {
    let text = "WAIT\u{1}true\u{2}A\u{1}1\u{2}WAITER\u{1}x\u{2}";
    assert_eq!(without(text, &["WAIT"]), "A\u{1}1\u{2}WAITER\u{1}x");
    assert!(matches!(
        without(text, &["B"]),
        Cow::Borrowed("WAIT\u{1}true\u{2}A\u{1}1\u{2}WAITER\u{1}x")
    ));
    assert_eq!(without("WAIT\u{1}true", &["WAIT"]), "");
    let mut b = Builder::parse(text);
    assert_eq!(b.remove("WAIT").as_deref(), Some("true"));
    assert_eq!((b.remove("WAIT"), b.get("A")), (None, Some("1")));
    b.put("A", "2");
    assert_eq!(b.build(), "A\u{1}2\u{2}WAITER\u{1}x");
}

proptest! {
    #[test]
    fn round_trip(pairs in prop::collection::btree_map("[^\u{1}\u{2}]{1,10}", "[^\u{2}]{1,20}", 0..10), trailing in any::<bool>()) {
        let mut b = Builder::new();
        for (n, v) in &pairs {
            b.put(n, v.clone());
        }
        let mut text = b.build();
        if trailing {
            text.push(PAIR_END);
        }
        let back: std::collections::BTreeMap<String, String> = iter(&text).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        prop_assert_eq!(&back, &pairs);
        for (n, v) in &pairs {
            prop_assert_eq!(get(&text, n), Some(v.as_str()));
            prop_assert_eq!(get_bytes(text.as_bytes(), n), Some(v.as_str()));
        }
        prop_assert_eq!(Builder::parse(&text), b);
    }

    #[test]
    fn any_text_reads_and_writes(text in "[ab\u{1}\u{2}]{0,30}") {
        let b = Builder::parse(&text);
        for (n, v) in b.iter() {
            prop_assert_eq!(get(&text, n), Some(v));
        }
        prop_assert_eq!(Builder::parse(&b.build()), b);
    }
}
