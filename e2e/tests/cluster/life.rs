//! The main job: the official Java client, inside the cluster's network, sends and receives through two broker groups,
//! and nothing is lost when every broker pod is replaced.

use std::process::Command;

use crate::support::{
    Namespace, broker_cluster, ferroctl, in_cluster, root, run, same, text, topic, wait_reachable,
};

/// The suite's cases that make sense whatever the number of broker groups; some others count the messages of one queue.
const CASES: &[&str] = &[
    "send-sync",
    "send-async",
    "send-oneway",
    "send-batch",
    "send-compressed",
    "send-selector",
    "push-concurrent",
    "push-orderly",
    "push-tags",
    "pull",
    "lite-pull-assign",
    "lite-pull-subscribe",
    "retry",
    "dead-letter",
    "group-rebalance",
    "offsets-survive-restart",
    "query-by-key",
    "view-by-id",
    "topic-auto-create",
];

/// A run of the Java client inside the cluster's network.
fn java(name_server: &str, args: &[&str]) -> Command {
    let launcher = root().join("e2e/java/run.sh");
    let mut line = vec![launcher.to_str().expect("path is UTF-8"), "client"];
    line.extend(args);
    line.extend(["--namesrv", name_server]);
    in_cluster(&line)
}

#[test]
fn the_official_client_loses_nothing_while_every_broker_pod_is_replaced() {
    let space = Namespace::new("life");
    run(&mut space.apply(&broker_cluster("life", 2)));
    run(&mut space.apply(&topic("declared", "life", "declared", 4)));
    space.wait_ready("mqc", "life");
    space.wait_ready("mqt", "declared");
    let name_server = space.name_server("life");

    // Sync, async, one-way and batch sends; push and pull consumers receive every message, from both groups.
    run(&mut java(&name_server, &["suite", "--cases", &CASES.join(",")]));

    let ledger = std::env::temp_dir().join(format!("ferromq-ledger-{}.jsonl", std::process::id()));
    let path = ledger.to_str().expect("path is UTF-8");
    run(&mut java(&name_server, &["send-phase", "--ledger", path]));
    let entries = std::fs::read_to_string(&ledger).expect("read the ledger");
    for group in ["life-0", "life-1"] {
        assert!(
            entries.contains(&format!("\"broker\":\"{group}\"")),
            "no message went to {group}"
        );
    }
    let route = ferroctl(&name_server, &["topic", "route", "declared"]);

    for group in 0..2 {
        space.replace_pod(&format!("life-{group}-0"));
        let cluster = space.wait_ready("mqc", "life");
        for broker in cluster["status"]["brokers"].as_array().expect("a row per broker") {
            assert_eq!(
                broker["lastStopClean"], true,
                "a deleted pod stops cleanly: {broker}"
            );
        }
    }

    same(
        "routes",
        &ferroctl(&name_server, &["topic", "route", "declared"]),
        &route,
    );
    for broker in route["brokerDatas"].as_array().expect("a route has brokers") {
        wait_reachable(text(broker, "/brokerAddrs/0"));
    }
    // A fresh group reads everything again, and each message id given before the restarts still resolves.
    run(&mut java(&name_server, &["verify-phase", "--ledger", path]));
    std::fs::remove_file(ledger).expect("remove the ledger");
}

#[test]
fn pods_are_restricted_and_images_small() {
    let space = Namespace::new("restricted");
    let label = "pod-security.kubernetes.io/enforce=restricted";
    run(crate::support::kubectl().args(["label", "namespace", &space.0, label]));
    run(&mut space.apply(&broker_cluster("tight", 1)));
    // Under the restricted pod security standard a pod that asks for more is never made.
    space.wait_ready("mqc", "tight");
    let pods = space.json(&["pods"]);
    for pod in pods["items"].as_array().expect("a list") {
        let container = &pod["spec"]["containers"][0];
        assert_eq!(
            container["securityContext"]["readOnlyRootFilesystem"],
            true,
            "{}",
            text(pod, "/metadata/name")
        );
    }
}
