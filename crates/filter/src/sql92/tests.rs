//! What expressions mean, and that no text makes the parser panic.

use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

const PROPS: [(&str, &str); 8] = [
    ("a", "5"),
    ("b", "4.5"),
    ("s", "it's"),
    ("t", "TRUE"),
    ("e", "5"),
    ("big", "3000000000"),
    ("word", "x"),
    ("$_9", "1"),
];

fn get(name: &str) -> Option<Cow<'static, str>> {
    PROPS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, v)| Cow::Borrowed(*v))
}

fn eval(text: &str) -> bool {
    Sql92::parse(text)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .eval(&get)
}

fn truth(text: &str) -> Result<Option<bool>, eval::Unreadable> {
    Sql92::parse(text)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .root
        .truth(&get)
}

fn refused(text: &str) -> String {
    Sql92::parse(text).expect_err(text).to_string()
}

#[test]
fn wanted() {
    for text in [
        "a = 5",
        "a=5",
        "5 = a",
        "a = '5'",
        "a = 5.0",
        "a = e",
        "a <> 6",
        "a > 4",
        "a >= 5",
        "a < 6",
        "a <= 5",
        "4 < a",
        "a > -1",
        "a > +4",
        "a = 5L",
        "a = +5",
        "-5 < a",
        "- -5 = a",
        "b = 4.5",
        "b > 3.0",
        "b > .5",
        "b < 5.",
        "b < 4.5E1",
        "b < 45e-1 OR b = 4.5",
        "a > b",
        "b < a",
        "big > 3",
        "big = 3000000000",
        "a > -9223372036854775808",
        "a < 9223372036854775807",
        "s = 'it''s'",
        "s <> 'it'",
        "word IN ('x')",
        "word in ('y', 'x')",
        "word NOT IN ('y')",
        "a IN ('5')",
        "a BETWEEN 5 AND 6",
        "a between 4 and 5",
        "a NOT BETWEEN 6 AND 7",
        "a NOT BETWEEN 1 AND 4.5",
        "b BETWEEN 4.0 AND 5.0",
        "a BETWEEN b AND 6",
        "a BETWEEN -1 AND 6 AND word = 'x'",
        "a NOT BETWEEN 7 AND 6",
        "a IS NOT NULL",
        "gone IS NULL",
        "gone IS NULL AND a IS NOT NULL",
        "gone = absent",
        "(gone > 1) IS NULL",
        "t = TRUE",
        "TRUE = t",
        "a = FALSE",
        "(a > 1) = TRUE",
        "(a > 9) = FALSE",
        "(a > 1) = (a > 2)",
        "TRUE",
        "NOT FALSE",
        "not false",
        "a = 5 = TRUE",
        "NOT (a = 6)",
        "NOT a",
        "NOT NOT (a = 5)",
        "(((a = 5)))",
        "a = 5 AND b = 4.5 OR word = 'y'",
        "a = 6 AND b = 4.5 OR word = 'x'",
        "word = 'x' OR a = 6 AND a = 7",
        "gone = 1 OR a = 5",
        "NOT (gone = 1 AND a = 6)",
        "a = 5 OR b > 3",
        " a\t=\n5 -- the rest",
        "a /* c * / */ = /**/ 5",
        "-- first\na = 5",
        "$_9 = 1",
        "0 < a",
        "0.0 < a",
        "NULL OR a = 5",
        "TRUE <> FALSE",
        "3 < 4",
        "3 = 3.0",
        "'3' = 3",
        "a > 1 AND a > 2 AND a > 3 AND NOT (a > 9)",
    ] {
        assert!(eval(text), "{text}");
    }
}

#[test]
fn not_wanted() {
    for text in [
        "a = 6",
        "a <> 5",
        "a > 5",
        "a < 5",
        "a >= 6",
        "a <= 4",
        "s = 'it'",
        "word = 'X'",
        "word IN ('y')",
        "word NOT IN ('x')",
        "a BETWEEN 6 AND 7",
        "a NOT BETWEEN 4 AND 6",
        "a IS NULL",
        "gone IS NOT NULL",
        "FALSE",
        "NULL",
        "NOT TRUE",
        "a",
        "t",
        "a AND a = 5",
        "NOT gone",
        "gone",
        "t = FALSE",
        "3 = 4",
        "A = 5",
    ] {
        assert!(!eval(text), "{text}");
    }
}

#[test]
fn unknown_is_neither() {
    for text in [
        "gone = 1",
        "gone <> 1",
        "gone > 1",
        "1 < gone",
        "gone BETWEEN 1 AND 2",
        "gone NOT BETWEEN 1 AND 2",
        "a BETWEEN gone AND 6",
        "gone IN ('x')",
        "gone NOT IN ('x')",
        "NOT (gone = 1)",
        "gone = 1 AND a = 5",
        "a = 5 AND gone = 1",
        "gone = 1 OR a = 6",
        "NULL AND a = 5",
        "-a < 1",
        "gone = TRUE",
    ] {
        assert_eq!(truth(text), Ok(None), "{text}");
    }
    // What is known decides.
    for (text, expected) in [
        ("gone = 1 AND a = 6", false),
        ("a = 6 AND gone = 1", false),
        ("gone = 1 OR a = 5", true),
        ("a BETWEEN gone AND 4", false),
        ("a NOT BETWEEN gone AND 4", true),
        ("1 = gone", false),
    ] {
        assert_eq!(truth(text), Ok(Some(expected)), "{text}");
    }
}

#[test]
fn a_decimal_does_not_compare_with_a_whole_number() {
    for text in [
        "b > 3",
        "b < 5",
        "b = 4",
        "b <> 4",
        "3 < b",
        "NOT (b > 3)",
        "b BETWEEN 3 AND 5",
        "b > 3 OR a = 5",
        "word > 3",
        "word = 3",
        "word > 3.5",
        "word > a",
        "s <> 1",
    ] {
        assert_eq!(truth(text), Err(eval::Unreadable), "{text}");
        assert!(!eval(text), "{text}");
    }
    assert!(eval("b > 3.0"));
    // What decides earlier spares the comparison.
    assert!(eval("a = 5 OR b > 3"));
    assert_eq!(truth("a = 6 AND b > 3"), Ok(Some(false)));
}

const ERRORS: &[(&str, &str)] = &[
    ("", "at character 1: expected a condition, found nothing"),
    (
        "  -- nothing",
        "at character 13: expected a condition, found nothing",
    ),
    (
        "a >",
        "at character 4: expected a property, a number, a text in single quotes, TRUE, FALSE, NULL or '(', found the end",
    ),
    (
        "a = 5 b",
        "at character 7: expected AND, OR or the end, found 'b'",
    ),
    ("a = 5)", "at character 6: expected AND, OR or the end, found ')'"),
    ("(a = 5", "at character 7: expected ')', AND or OR, found the end"),
    ("a IN 'x'", "at character 6: expected '(', found the text 'x'"),
    (
        "a IN (",
        "at character 7: expected a text in single quotes, found the end",
    ),
    (
        "a IN (5)",
        "at character 7: expected a text in single quotes, found 5",
    ),
    (
        "a IN ()",
        "at character 7: expected a text in single quotes, found ')'",
    ),
    (
        "a IN ('x' 'y')",
        "at character 11: expected ',' or ')', found the text 'y'",
    ),
    (
        "5 IN ('x')",
        "at character 1: expected a property before IN, found the number 5",
    ),
    (
        "a NOT 5",
        "at character 7: expected BETWEEN or IN after NOT, found 5",
    ),
    ("a IS 5", "at character 6: expected NULL or NOT NULL, found 5"),
    ("a IS NOT 5", "at character 10: expected NULL, found 5"),
    ("a BETWEEN 1", "at character 12: expected AND, found the end"),
    (
        "a BETWEEN 2 AND 1",
        "at character 11: the lower bound of BETWEEN is above the upper one",
    ),
    (
        "a BETWEEN 'a' AND 'b'",
        "at character 11: expected a number or a property to compare, found the text 'a'",
    ),
    (
        "中 = 5",
        "at character 1: unexpected character '中'; names are made of the letters a-z, digits, '_' and '$'",
    ),
    (
        "s = '中' x",
        "at character 9: expected AND, OR or the end, found 'x'",
    ),
    (
        "a = \"x\"",
        "at character 5: unexpected '\"'; texts stand in single quotes",
    ),
    ("a != 5", "at character 3: unexpected '!='; write <>"),
    ("a = 5 && b = 6", "at character 7: unexpected '&&'; write AND"),
    (
        "a > 'x'",
        "at character 5: expected a number or a property to compare, found the text 'x'",
    ),
    (
        "a > TRUE",
        "at character 5: expected a number or a property to compare, found TRUE",
    ),
    (
        "1 < a < 9",
        "at character 1: expected a number or a property to compare, found a condition",
    ),
    (
        "a = NULL",
        "at character 5: NULL equals nothing; write IS NULL or IS NOT NULL",
    ),
    (
        "'x'",
        "at character 1: expected a condition, found only the text 'x'",
    ),
    (
        "a = 5 AND 7",
        "at character 11: expected a condition, found only the number 7",
    ),
    (
        "NOT 7",
        "at character 5: expected a condition, found only the number 7",
    ),
    ("a = 'x", "at character 5: this text is not closed by a quote"),
    ("a = 5 /* x", "at character 7: this comment is not closed by */"),
    ("a = 007", "at character 5: a whole number has no leading zeros"),
    (
        "a = 9223372036854775808",
        "at character 5: 9223372036854775808 is beyond 64 bits; write it as a decimal with a point",
    ),
    ("a = 1e999", "at character 5: 1e999 is too large for a decimal"),
    (
        "-'x' = a",
        "at character 1: '-' needs a number, found the text 'x'",
    ),
    ("a = 5x", "at character 6: expected AND, OR or the end, found 'x'"),
    (
        "a LIKE 'x'",
        "at character 3: expected AND, OR or the end, found 'LIKE'",
    ),
];

#[test]
fn errors_tell_the_place_and_what_was_expected() {
    for (text, error) in ERRORS {
        assert_eq!(refused(text), *error, "{text}");
    }
    assert!(refused("NOT a = 1").contains("NOT (…)"));
    assert!(refused("TRUE = 3").contains("a truth value cannot be compared with the number 3"));
    assert!(refused(&format!("a = '{}", "x".repeat(10_000))).len() < 200);
    assert!(refused(&"y".repeat(10_000).repeat(2).replacen('y', "= ", 1)).len() < 200);
}

#[test]
fn nesting_is_limited() {
    let nested = |open: &str, close: &str, n: usize| format!("{}a = 5{}", open.repeat(n), close.repeat(n));
    assert!(eval(&nested("(", ")", MAX_DEPTH - 1)));
    assert!(refused(&nested("(", ")", MAX_DEPTH + 1)).contains("levels of nesting"));
    for text in [
        nested("(", ")", 1_000_000),
        nested("NOT (", ")", 1_000_000),
        "NOT ".repeat(1_000_000),
        "+".repeat(1_000_000),
        "- ".repeat(1_000_000),
        format!("a = 5{}", " = TRUE".repeat(1_000_000)),
        format!("a{}", " IS NULL".repeat(1_000_000)),
    ] {
        assert!(refused(&text).contains("levels of nesting"));
    }
    // Long is not deep.
    assert!(eval(&format!("a = 5{}", " AND a = 5".repeat(100_000))));
    assert!(eval(&format!(
        "a = 6{}",
        " OR a = 6".repeat(100_000) + " OR a = 5"
    )));
    assert!(eval(&format!("a IN ('x'{}, '5')", ", 'y'".repeat(100_000))));
}

#[test]
fn the_text_is_kept() {
    let sql = Sql92::parse(" a = 5 ").unwrap();
    assert_eq!(sql.text(), " a = 5 ");
    assert_eq!(sql.clone(), sql);
}

proptest! {
    #[test]
    fn hostile_text_never_panics(text in ".{0,60}") {
        let _any = Sql92::parse(&text).map(|sql| sql.eval(&get));
    }

    #[test]
    fn words_in_any_order_never_panic(words in prop::collection::vec(prop::sample::select(vec![
        "a", "b", "gone", "5", "4.5", "'x'", "(", ")", "=", "<>", "<", ">=", "AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "-", ",", "--", "/*",
    ]), 0..14)) {
        let text = words.join(" ");
        match Sql92::parse(&text) {
            Ok(sql) => { sql.eval(&get); }
            Err(e) => prop_assert!((1..=text.chars().count() + 1).contains(&e.position)),
        }
    }

    #[test]
    fn numbers_compare_as_numbers(x in any::<i64>(), y in any::<i64>()) {
        let value = |_: &str| Some(Cow::Owned(x.to_string()));
        for (op, expected) in [("<", x < y), ("<=", x <= y), (">", x > y), (">=", x >= y), ("=", x == y), ("<>", x != y)] {
            let sql = Sql92::parse(&format!("a {op} {y}")).unwrap();
            prop_assert_eq!(sql.eval(&value), expected);
        }
    }

    #[test]
    fn texts_survive_quoting(text in ".*") {
        let value = |_: &str| Some(Cow::Borrowed(text.as_str()));
        let sql = Sql92::parse(&format!("a = '{}'", text.replace('\'', "''"))).unwrap();
        prop_assert!(sql.eval(&value));
    }
}
