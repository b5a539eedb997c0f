//! More groups and fewer, more replicas and fewer, fewer queues, settings on running brokers, and namespaces that go.

use serde_json::Value;

use crate::support::{
    Namespace, broker_cluster, ferroctl, kubectl, refused, run, text, topic, try_ferroctl, wait_for,
};

fn uid(space: &Namespace, pod: &str) -> String {
    text(&space.json(&["pod", pod]), "/metadata/uid").to_owned()
}

fn patch(space: &Namespace, kind: &str, name: &str, edit: &str) {
    run(&mut space.kubectl(&["patch", kind, name, "--type", "merge", "-p", edit]));
}

fn stage(cluster: &Value, index: u64) -> String {
    let rows = cluster["status"]["groupStates"].as_array();
    rows.and_then(|all| all.iter().find(|g| g["index"] == index))
        .map_or_else(String::new, |g| format!("{} {}", g["stage"], g["message"]))
}

#[test]
fn groups_come_with_all_topics_and_go_when_they_are_read() {
    let space = Namespace::new("growth");
    run(&mut space.apply(&broker_cluster("grow", 1)));
    space.wait_ready("mqc", "grow");
    let name_server = space.name_server("grow");
    // Made by hand, so that only the copying of tables can bring it to a new group.
    let by_hand = [
        "topic",
        "create",
        "by-hand",
        "--read-queues",
        "4",
        "--write-queues",
        "4",
    ];
    // A Service's address leads nowhere until every node has heard of it.
    wait_for("the broker to be reachable", || {
        try_ferroctl(&name_server, &by_hand)
            .map(|_| ())
            .ok_or_else(|| "no topic was made".to_owned())
    });
    let first = uid(&space, "grow-0-0");

    run(&mut space.kubectl(&["scale", "mqc", "grow", "--replicas=2"]));
    space.wait_ready("mqc", "grow");
    assert_eq!(uid(&space, "grow-0-0"), first, "the old group is not touched");
    wait_for("the topic on the new group", || {
        let route = try_ferroctl(&name_server, &["topic", "route", "by-hand"]).unwrap_or_default();
        if route["queueDatas"].to_string().contains("grow-1") {
            Ok(())
        } else {
            Err(route.to_string())
        }
    });

    let send = |run: &str, count: &str| {
        let line = [
            "bench", "send", "--topic", "by-hand", "--run", run, "--count", count,
        ];
        ferroctl(&name_server, &line);
    };
    let receive = |run: &str, count: &str| {
        let line = [
            "bench", "receive", "--topic", "by-hand", "--group", "readers", "--run", run, "--count", count,
        ];
        ferroctl(&name_server, &line);
    };
    // The group has read from every queue, and then there is more in each.
    send("one", "800");
    receive("one", "800");
    send("two", "800");
    run(&mut space.kubectl(&["scale", "mqc", "grow", "--replicas=1"]));
    wait_for("the group to wait for its readers", || {
        let now = stage(&space.json(&["mqc", "grow"]), 1);
        if now.contains("Leaving") && now.contains("not read") {
            Ok(())
        } else {
            Err(now)
        }
    });
    assert!(
        !space.json(&["pods", "-l", "ferromq.io/group=1"])["items"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
    receive("two", "800");
    wait_for("the group to be gone", || {
        let kinds = "statefulsets,services,configmaps,poddisruptionbudgets,pods";
        let list = space.json(&[kinds, "-l", "ferromq.io/group=1"]);
        let left = list["items"].as_array().expect("a list").len();
        if left == 0 {
            Ok(())
        } else {
            Err(format!("{left} objects"))
        }
    });
    space.wait_ready("mqc", "grow");
    let claims = space.json(&["pvc", "-l", "ferromq.io/group=1"]);
    assert_eq!(
        claims["items"].as_array().expect("a list").len(),
        1,
        "the volume is kept"
    );
    let route = ferroctl(&name_server, &["topic", "route", "by-hand"]);
    assert!(!route.to_string().contains("grow-1"), "{route}");
    assert_eq!(uid(&space, "grow-0-0"), first);
}

#[test]
fn replicas_come_and_go_and_the_master_stays() {
    let space = Namespace::new("replicas");
    run(&mut space.apply(&broker_cluster("rep", 1)));
    space.wait_ready("mqc", "rep");
    let master = uid(&space, "rep-0-0");
    patch(
        &space,
        "mqc",
        "rep",
        r#"{"spec":{"brokers":{"replicasPerGroup":2}}}"#,
    );
    let cluster = space.wait_ready("mqc", "rep");
    let rows = cluster["status"]["brokers"].as_array().expect("rows");
    assert_eq!(
        (rows.len(), &rows[1]["role"]),
        (2, &Value::from("SLAVE")),
        "{rows:?}"
    );
    assert_eq!(uid(&space, "rep-0-0"), master, "one broker more restarts nobody");
    patch(
        &space,
        "mqc",
        "rep",
        r#"{"spec":{"brokers":{"replicasPerGroup":1}}}"#,
    );
    wait_for("the replica to be gone", || {
        let list = space.json(&["pods,services", "-l", "ferromq.io/group=0"]);
        let text = list["items"].to_string();
        if text.contains("rep-0-1") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
    space.wait_ready("mqc", "rep");
    assert_eq!(uid(&space, "rep-0-0"), master);
}

#[test]
fn settings_reach_running_brokers_and_queues_go_when_they_are_read() {
    let space = Namespace::new("settings");
    run(&mut space.apply(&broker_cluster("set", 1)));
    run(&mut space.apply(&topic("few", "set", "few", 8)));
    let cluster = space.wait_ready("mqc", "set");
    space.wait_ready("mqt", "few");
    let name_server = space.name_server("set");
    let broker = uid(&space, "set-0-0");
    assert!(text(&cluster, "/status/brokers/0/address").ends_with(":10911"));
    patch(
        &space,
        "mqc",
        "set",
        r#"{"spec":{"retention":{"fileReservedTime":24,"deleteWhen":"05","timeZone":"Europe/Berlin"}}}"#,
    );
    wait_for("the running broker to have the new retention", || {
        let keys = [
            "broker",
            "config",
            "get",
            "fileReservedTime",
            "deleteWhen",
            "deleteWhenTimeZone",
        ];
        let now = ferroctl(&name_server, &keys).to_string();
        if ["\"24\"", "\"05\"", "Europe/Berlin"]
            .iter()
            .all(|v| now.contains(v))
        {
            Ok(())
        } else {
            Err(now)
        }
    });
    space.wait_ready("mqc", "set");
    assert_eq!(uid(&space, "set-0-0"), broker, "no restart");

    patch(
        &space,
        "mqt",
        "few",
        r#"{"spec":{"readQueues":4,"writeQueues":4}}"#,
    );
    space.wait_ready("mqt", "few");
    let route = ferroctl(&name_server, &["topic", "get", "few"]).to_string();
    assert!(
        route.contains("\"read_queues\":4") && route.contains("\"write_queues\":4"),
        "{route}"
    );
}

#[test]
fn a_namespace_with_topics_to_delete_goes_without_help() {
    let space = Namespace::new("going");
    run(&mut space.apply(&broker_cluster("going", 1)));
    for n in 0..5 {
        let name = format!("t{n}");
        let with_policy = topic(&name, "going", &name, 1)
            .replace("writeQueues: 1}", "writeQueues: 1, deletionPolicy: Delete}");
        run(&mut space.apply(&with_policy));
        let group = format!(
            "apiVersion: ferromq.io/v1alpha1\nkind: ConsumerGroup\nmetadata: {{name: g{n}}}\nspec: {{cluster: going, deletionPolicy: Delete}}\n"
        );
        run(&mut space.apply(&group));
    }
    space.wait_ready("mqt", "t0");
    space.wait_ready("mqg", "g0");
    run(kubectl().args(["delete", "namespace", &space.0, "--wait=false"]));
    wait_for("the namespace to be gone", || {
        let found = kubectl()
            .args(["get", "namespace", &space.0])
            .output()
            .expect("kubectl runs");
        if found.status.success() {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
}

#[test]
fn names_that_do_not_fit_are_refused_at_apply() {
    let space = Namespace::new("long");
    for name in ["n".repeat(41), "n".repeat(63), "a.b".to_owned(), "1a".to_owned()] {
        let answer = refused(space.apply(&broker_cluster(&name, 1)).arg("--dry-run=server"));
        assert!(answer.contains("at most 40 characters"), "{name}: {answer}");
    }
    for name in ["n".repeat(20), "n".repeat(40)] {
        run(space.apply(&broker_cluster(&name, 1)).arg("--dry-run=server"));
    }
}
