//! Changes that need restarts: one broker at a time, nothing acknowledged lost, a bad change stops at the first broker, and
//! an operator that dies in the middle goes on where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{
    Namespace, broker_cluster, ferroctl, ferroctl_command, kill_operator, kubectl, ready, run, text, topic,
    wait_for,
};

/// Brokers of a cluster: uid by pod name, and the names of those that are not ready.
fn brokers(space: &Namespace) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let list = space.json(&["pods", "-l", "app.kubernetes.io/component=broker"]);
    let mut uids = BTreeMap::new();
    let mut down = BTreeSet::new();
    for pod in list["items"].as_array().expect("a list") {
        let name = text(pod, "/metadata/name").to_owned();
        let is_ready = pod["status"]["conditions"]
            .as_array()
            .is_some_and(|c| c.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
        if !is_ready || !pod["metadata"]["deletionTimestamp"].is_null() {
            down.insert(name.clone());
        }
        uids.insert(name, text(pod, "/metadata/uid").to_owned());
    }
    (uids, down)
}

/// `ferroctl bench send` at a steady pace, beside the test.
fn load(name_server: &str, topic: &str, count: &str, acknowledged: &str) -> Child {
    let mut command = ferroctl_command(
        name_server,
        &[
            "bench",
            "send",
            "--topic",
            topic,
            "--count",
            count,
            "--rate",
            "200",
            "--concurrency",
            "8",
            "--retry-for",
            "120",
            "--run",
            "load",
            "--acknowledged",
            acknowledged,
        ],
    );
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start the load")
}

fn replicated(name: &str, groups: u32) -> String {
    broker_cluster(name, groups).replace(
        &format!("{{groups: {groups}}}"),
        &format!("{{groups: {groups}, replicasPerGroup: 2}}"),
    )
}

#[test]
fn a_roll_under_load_takes_one_broker_at_a_time_and_loses_nothing() {
    let space = Namespace::new("roll");
    run(&mut space.apply(&replicated("roll", 2)));
    run(&mut space.apply(&topic("load", "roll", "load", 4)));
    space.wait_ready("mqc", "roll");
    space.wait_ready("mqt", "load");
    let name_server = space.name_server("roll");
    let file = std::env::temp_dir().join(format!("ferromq-acknowledged-{}", std::process::id()));
    let path = file.to_str().expect("path is UTF-8");
    let mut sender = load(&name_server, "load", "16000", path);

    let (before, _) = brokers(&space);
    assert_eq!(before.len(), 4, "{before:?}");
    let edit = r#"{"spec":{"config":{"maxMessageSize":"2097152"}}}"#;
    run(&mut space.kubectl(&["patch", "mqc", "roll", "--type", "merge", "-p", edit]));
    let mut order = Vec::new();
    let mut killed = false;
    wait_for("every broker to be replaced", || {
        let (uids, down) = brokers(&space);
        let missing = before.keys().filter(|n| !uids.contains_key(*n)).count();
        assert!(
            down.len() + missing <= 1,
            "more than one broker is down: {down:?} and {missing} missing"
        );
        for (name, uid) in &uids {
            if before.get(name) != Some(uid) && !order.contains(name) {
                order.push(name.clone());
                // The operator dies without notice in the middle of the roll.
                if !killed {
                    killed = true;
                    kill_operator();
                }
            }
        }
        if order.len() == 4 {
            Ok(())
        } else {
            Err(format!("{order:?}"))
        }
    });
    let cluster = space.wait_ready("mqc", "roll");
    let place = |name: &str| order.iter().position(|n| n == name);
    for group in ["roll-0", "roll-1"] {
        assert!(
            place(&format!("{group}-1")) < place(&format!("{group}-0")),
            "the replica goes before its master: {order:?}"
        );
    }
    for row in cluster["status"]["brokers"].as_array().expect("rows") {
        assert_eq!(row["lastStopClean"], true, "{row}");
    }
    let status = sender.wait().expect("the load ends");
    assert!(status.success(), "the load failed: {status}");
    let got = ferroctl(
        &name_server,
        &[
            "bench",
            "receive",
            "--topic",
            "load",
            "--count",
            "16000",
            "--run",
            "load",
            "--group",
            "check",
            "--from-start",
            "--acknowledged",
            path,
        ],
    );
    assert_eq!(got["missing"], 0, "{got}");
    std::fs::remove_file(file).expect("remove the ledger");
    let events = run(&mut space.kubectl(&["get", "events.events.k8s.io", "-o", "json"]));
    for reason in ["RestartBegins", "WritesStopped", "BrokerStopped", "RestartDone"] {
        assert!(events.contains(reason), "no event {reason}");
    }
}

#[test]
fn a_bad_image_stops_at_one_broker_and_the_right_one_heals_it() {
    let space = Namespace::new("bad");
    run(&mut space.apply(&broker_cluster("bad", 2)));
    // Passes are counted over both kinds.
    run(&mut space.apply(&topic("any", "bad", "any", 1)));
    let good = space.wait_ready("mqc", "bad");
    let image = text(&good, "/spec/image").to_owned();
    let (before, _) = brokers(&space);
    let set_image = |image: &str| {
        let edit = format!(r#"{{"spec":{{"image":"{image}"}}}}"#);
        run(&mut space.kubectl(&["patch", "mqc", "bad", "--type", "merge", "-p", &edit]));
    };
    // The pods alone: name servers of a bad image would stop the roll before the first broker.
    let edit = r#"{"spec":{"brokers":{"podTemplate":{"spec":{"containers":[{"name":"broker","image":"ferromq/ferromq:none"}]}}}}}"#;
    run(&mut space.kubectl(&["patch", "mqc", "bad", "--type", "merge", "-p", edit]));
    let taken = wait_for("one broker that does not come up", || {
        let object = space.json(&["mqc", "bad"]);
        let (status, said) = ready(&object);
        let (uids, down) = brokers(&space);
        let changed: Vec<String> = uids
            .iter()
            .filter(|(n, u)| before.get(*n) != Some(u))
            .map(|(n, _)| n.clone())
            .collect();
        if status == "False" && said.contains("mage") && changed.len() == 1 && down.len() == 1 {
            Ok(changed[0].clone())
        } else {
            Err(said)
        }
    });
    kill_operator();
    let passes = crate::topics::passes();
    wait_for("two passes of the next operator", || {
        if crate::topics::passes_since(&passes) >= 2 {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    let (now, _) = brokers(&space);
    let changed: Vec<&String> = now
        .iter()
        .filter(|(n, u)| before.get(*n) != Some(u))
        .map(|(n, _)| n)
        .collect();
    assert_eq!(changed, [&taken], "no second broker is taken");
    let right = r#"{"spec":{"brokers":{"podTemplate":null}}}"#;
    run(&mut space.kubectl(&["patch", "mqc", "bad", "--type", "merge", "-p", right]));
    space.wait_ready("mqc", "bad");
    let (healed, _) = brokers(&space);
    for (name, uid) in &before {
        assert_eq!(
            *name != taken,
            healed.get(name) == Some(uid),
            "{name} of {healed:?}"
        );
    }
    // The same by a change of everything: what cannot start takes nothing down.
    set_image("ferromq/ferromq:none");
    wait_for("the name servers to hold the roll", || {
        let (status, said) = ready(&space.json(&["mqc", "bad"]));
        if status == "False" { Ok(()) } else { Err(said) }
    });
    set_image(&image);
    space.wait_ready("mqc", "bad");
    let (kept, _) = brokers(&space);
    assert_eq!(kept, healed, "no broker was touched");
}

#[test]
fn new_name_servers_are_found_without_a_restart_of_brokers() {
    let space = Namespace::new("names");
    let spec = broker_cluster("names", 2).replace(
        "nameServers: {replicas: 1}",
        "nameServers: {replicas: 2, kv: {ORDER_TOPIC_CONFIG: {orders: \"names-0:4\"}}}",
    );
    run(&mut space.apply(&spec));
    space.wait_ready("mqc", "names");
    let (before, _) = brokers(&space);
    run(&mut space.kubectl(&[
        "delete",
        "pods",
        "-l",
        "app.kubernetes.io/component=namesrv",
        "--wait=false",
    ]));
    wait_for(
        "two new name servers that know every broker and the entry",
        || {
            let pods = space.json(&["pods", "-l", "app.kubernetes.io/component=namesrv"]);
            let living: Vec<&Value> = pods["items"]
                .as_array()
                .expect("a list")
                .iter()
                .filter(|p| p["metadata"]["deletionTimestamp"].is_null())
                .collect();
            for pod in &living {
                let Some(ip) = pod["status"]["podIP"].as_str() else {
                    return Err("no address yet".to_owned());
                };
                let address = format!("{ip}:9876");
                let shown = ferroctl_command(&address, &["cluster", "list"])
                    .output()
                    .expect("ferroctl runs");
                let listed = String::from_utf8_lossy(&shown.stdout).into_owned();
                if !listed.contains("names-0") || !listed.contains("names-1") {
                    return Err(format!("{address} knows {listed}"));
                }
            }
            if living.len() == 2 {
                Ok(())
            } else {
                Err(format!("{} name servers", living.len()))
            }
        },
    );
    space.wait_ready("mqc", "names");
    assert_eq!(brokers(&space).0, before, "no broker was restarted");
}

#[test]
fn a_drain_of_a_node_ends_and_the_cluster_comes_back() {
    let space = Namespace::new("drain");
    run(&mut space.apply(&replicated("drain", 1)));
    space.wait_ready("mqc", "drain");
    let node = text(&space.json(&["pod", "drain-0-0"]), "/spec/nodeName").to_owned();
    run(kubectl().args([
        "drain",
        &node,
        "--pod-selector=ferromq.io/cluster=drain",
        "--ignore-daemonsets",
        "--timeout=240s",
        "--delete-emptydir-data",
    ]));
    run(kubectl().args(["uncordon", &node]));
    let cluster = space.wait_ready("mqc", "drain");
    for row in cluster["status"]["brokers"].as_array().expect("rows") {
        assert_eq!(row["lastStopClean"], true, "{row}");
    }
}

#[test]
fn one_name_in_two_namespaces_is_two_clusters() {
    let (one, two) = (Namespace::new("twin-a"), Namespace::new("twin-b"));
    run(&mut one.apply(&broker_cluster("twin", 1)));
    run(&mut two.apply(&broker_cluster("twin", 1)));
    one.wait_ready("mqc", "twin");
    let cluster = two.wait_ready("mqc", "twin");
    let servers = |space: &Namespace| -> BTreeSet<String> {
        let pods = space.json(&["pods", "-l", "app.kubernetes.io/component=namesrv"]);
        pods["items"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|p| format!("{}:9876", text(p, "/status/podIP")))
            .collect()
    };
    let own = servers(&two);
    for row in cluster["status"]["brokers"].as_array().expect("rows") {
        for at in row["registeredAt"].as_array().expect("a list") {
            assert!(
                own.contains(at.as_str().unwrap_or_default()),
                "{at} is not of {own:?}"
            );
        }
    }
    let generation =
        |space: &Namespace| space.json(&["statefulset", "twin-0"])["metadata"]["generation"].clone();
    let before = generation(&two);
    run(&mut one.kubectl(&["delete", "mqc", "twin"]));
    two.wait_ready("mqc", "twin");
    assert_eq!(generation(&two), before);
}
