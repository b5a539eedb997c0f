//! Deleting a BrokerCluster removes what it made, keeps the volumes, and a new one of that name finds its data again.

use crate::support::{Namespace, broker_cluster, ferroctl, kill_operator, run, text, topic, wait_for};

#[test]
fn volumes_outlive_the_cluster_and_are_taken_up_again() {
    let space = Namespace::new("removal");
    run(&mut space.apply(&broker_cluster("keep", 1)));
    run(&mut space.apply(&topic("kept", "keep", "kept", 4)));
    space.wait_ready("mqc", "keep");
    space.wait_ready("mqt", "kept");
    let sent = ferroctl(
        &space.name_server("keep"),
        &[
            "bench", "send", "--topic", "kept", "--count", "500", "--run", "r1",
        ],
    );
    assert_eq!(sent["sent"], 500, "{sent}");

    run(&mut space.kubectl(&["delete", "mqc", "keep"]));
    wait_for("everything but the volume to be gone", || {
        let kinds = "deployments,statefulsets,services,configmaps,secrets,poddisruptionbudgets,pods";
        let list = space.json(&[kinds]);
        let left: Vec<String> = list["items"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|o| format!("{}/{}", text(o, "/kind"), text(o, "/metadata/name")))
            .filter(|n| n != "ConfigMap/kube-root-ca.crt")
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    let claims = space.json(&["pvc"]);
    assert_eq!(
        claims["items"].as_array().expect("a list").len(),
        1,
        "the volume claim is kept: {claims}"
    );

    run(&mut space.apply(&broker_cluster("keep", 1)));
    space.wait_ready("mqc", "keep");
    let got = ferroctl(
        &space.name_server("keep"),
        &[
            "bench", "receive", "--topic", "kept", "--count", "500", "--run", "r1", "--group", "after",
        ],
    );
    assert_eq!(got["missing"], 0, "{got}");
}

#[test]
fn an_operator_killed_in_mid_reconcile_is_resumed() {
    let space = Namespace::new("killed");
    run(&mut space.apply(&broker_cluster("killed", 2)));
    run(&mut space.apply(&topic("t", "killed", "t", 4)));
    // As soon as the first object exists the operator dies without notice, in the middle of the rest.
    wait_for("the first object", || {
        let list = space.json(&["services"]);
        if list["items"].as_array().is_some_and(|i| !i.is_empty()) {
            Ok(())
        } else {
            Err("no service yet".to_owned())
        }
    });
    kill_operator();
    space.wait_ready("mqc", "killed");
    space.wait_ready("mqt", "t");
}
