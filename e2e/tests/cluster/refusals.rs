//! A bad value is refused when it is applied, or named in a condition; never clamped, never half obeyed.

use crate::support::{Namespace, broker_cluster, ready, refused, run, topic, wait_for};

/// Each wrong line of a spec, and a word that the refusal must hold.
const REFUSED: &[(&str, &str)] = &[
    ("retention: {deleteWhen: \"25\"}", "deleteWhen"),
    ("retention: {deleteWhen: \"4,16\"}", "deleteWhen"),
    ("retention: {diskMaxUsedSpaceRatio: 5}", "diskMaxUsedSpaceRatio"),
    ("retention: {diskMaxUsedSpaceRatio: 99}", "diskMaxUsedSpaceRatio"),
    ("retention: {fileReservedTime: 0}", "fileReservedTime"),
    ("retentoin: {}", "retentoin"),
];

/// Wrong values that only the operator can judge.
const CONDITIONS: &[(&str, &str)] = &[
    ("config: {noSuchKey: \"1\"}", "noSuchKey"),
    ("config: {listenPort: \"1\"}", "listenPort"),
    ("config: {deleteWhen: \"05\"}", "retention.deleteWhen"),
    ("storage: {size: 1Gi}", "storage"),
    ("retention: {timeZone: Mars/Olympus}", "Mars/Olympus"),
];

fn with(name: &str, line: &str) -> String {
    let key = line.split(':').next().unwrap_or_default();
    let base = broker_cluster(name, 1);
    let replaced = format!("{key}:");
    let mut lines: Vec<&str> = base
        .lines()
        .filter(|l| !l.trim_start().starts_with(&replaced))
        .collect();
    let line = format!("  {line}\n");
    lines.push(&line);
    lines.join("\n")
}

#[test]
fn bad_values_are_refused_at_apply_or_named_in_a_condition() {
    let space = Namespace::new("refusals");
    for (line, word) in REFUSED {
        let answer = refused(&mut space.apply(&with("bad", line)));
        assert!(
            answer.contains(word),
            "the refusal of `{line}` does not name {word}: {answer}"
        );
    }
    for (n, (line, word)) in CONDITIONS.iter().enumerate() {
        let name = format!("bad-{n}");
        let applied = space.apply(&with(&name, line)).output().expect("kubectl runs");
        if !applied.status.success() {
            let answer = String::from_utf8_lossy(&applied.stderr).into_owned();
            assert!(
                answer.contains(word),
                "the refusal of `{line}` does not name {word}: {answer}"
            );
            continue;
        }
        wait_for(&format!("a condition that names {word}"), || {
            let (status, text) = ready(&space.json(&["mqc", &name]));
            if status == "False" && text.contains(word) {
                Ok(())
            } else {
                Err(text)
            }
        });
        let pods = space.json(&["pods"]);
        assert!(
            pods["items"].as_array().expect("a list").is_empty(),
            "`{line}` started pods"
        );
        run(&mut space.kubectl(&["delete", "mqc", &name]));
    }
}

#[test]
fn a_volume_never_shrinks_and_names_that_are_too_long_are_refused() {
    let space = Namespace::new("limits");
    run(&mut space.apply(&broker_cluster("small", 1)));
    let shrink = r#"{"spec":{"storage":{"size":"1900Mi"}}}"#;
    let patched = space
        .kubectl(&["patch", "mqc", "small", "--type", "merge", "-p", shrink])
        .output()
        .expect("kubectl runs");
    if patched.status.success() {
        wait_for("a condition that refuses the smaller volume", || {
            let (status, text) = ready(&space.json(&["mqc", "small"]));
            if status == "False" && text.contains("storage") {
                Ok(())
            } else {
                Err(text)
            }
        });
    } else {
        let answer = String::from_utf8_lossy(&patched.stderr).into_owned();
        assert!(answer.contains("size"), "{answer}");
    }
    let long = "n".repeat(60);
    refused(&mut space.apply(&broker_cluster(&long, 1)));
}

#[test]
fn of_two_topics_that_claim_one_name_the_second_says_so() {
    let space = Namespace::new("claims");
    run(&mut space.apply(&broker_cluster("claims", 1)));
    run(&mut space.apply(&topic("first", "claims", "same", 4)));
    space.wait_ready("mqt", "first");
    run(&mut space.apply(&topic("second", "claims", "same", 8)));
    wait_for("the second Topic to name the first", || {
        let (status, text) = ready(&space.json(&["mqt", "second"]));
        if status == "False" && text.contains("first") {
            Ok(())
        } else {
            Err(text)
        }
    });
    space.wait_ready("mqt", "first");
}
