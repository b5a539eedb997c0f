//! The main job: the official Java client, inside the cluster's network, sends and receives through two broker groups,
//! and nothing is lost when every broker pod is replaced.

use std::process::Command;

use crate::support::{Namespace, broker_cluster, in_cluster, root, run, same, text, topic};

/// A run of the Java client suite inside the cluster's network.
fn java(name_server: &str, args: &[&str]) -> Command {
    let launcher = root().join("e2e/java/run-suite.sh");
    let mut line = vec![
        launcher.to_str().expect("path is UTF-8"),
        "--namesrv",
        name_server,
    ];
    line.extend(args);
    in_cluster(&line)
}

#[test]
fn the_official_client_loses_nothing_while_every_broker_pod_is_replaced() {
    let space = Namespace::new("life");
    run(&mut space.apply(&broker_cluster("life", 2)));
    run(&mut space.apply(&topic("ledger", "life", "ledger", 4)));
    space.wait_ready("mqc", "life");
    space.wait_ready("mqt", "ledger");
    let name_server = space.name_server("life");
    let route = crate::support::ferroctl(&name_server, &["topic", "route", "ledger"]);

    let ledger = std::env::temp_dir().join(format!("ferromq-ledger-{}.jsonl", std::process::id()));
    let ledger = ledger.to_str().expect("path is UTF-8");
    // Sync, async, one-way and batch sends to both groups; then push and pull consumers receive all of them.
    run(&mut java(
        &name_server,
        &["send-phase", "--topic", "ledger", "--ledger", ledger],
    ));
    run(&mut java(
        &name_server,
        &["verify-phase", "--topic", "ledger", "--ledger", ledger],
    ));

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
        &crate::support::ferroctl(&name_server, &["topic", "route", "ledger"]),
        &route,
    );
    // A fresh group reads everything again, and each message id given before the restarts still resolves.
    run(&mut java(
        &name_server,
        &["verify-phase", "--topic", "ledger", "--ledger", ledger],
    ));
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
