//! A Topic reaches the brokers, stays as declared, and costs nothing while nothing changes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Namespace, broker_cluster, ferroctl, run, same, topic, try_ferroctl, wait_for};

/// Queue counts of a topic on each broker that has it, by broker name; none where the topic is not known.
fn queues(name_server: &str, topic: &str) -> BTreeMap<String, (u64, u64)> {
    let Some(route) = try_ferroctl(name_server, &["topic", "route", topic]) else {
        return BTreeMap::new();
    };
    let data = route["queueDatas"].as_array().expect("a route has queues");
    data.iter()
        .map(|q| {
            let count = |key: &str| q[key].as_u64().unwrap_or_default();
            (
                q["brokerName"].as_str().unwrap_or_default().to_owned(),
                (count("readQueueNums"), count("writeQueueNums")),
            )
        })
        .collect()
}

fn wait_for_queues(name_server: &str, topic: &str, brokers: &[&str], count: u64) {
    let wanted: BTreeMap<String, (u64, u64)> = brokers
        .iter()
        .map(|b| ((*b).to_owned(), (count, count)))
        .collect();
    wait_for(&format!("{topic} with {count} queues on {brokers:?}"), || {
        let now = queues(name_server, topic);
        if now == wanted {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
}

#[test]
fn edits_reach_the_brokers_and_a_topic_deleted_by_hand_comes_back() {
    let space = Namespace::new("topics");
    run(&mut space.apply(&broker_cluster("tq", 2)));
    run(&mut space.apply(&topic("orders", "tq", "orders", 4)));
    space.wait_ready("mqc", "tq");
    space.wait_ready("mqt", "orders");
    let name_server = space.name_server("tq");
    wait_for_queues(&name_server, "orders", &["tq-0", "tq-1"], 4);

    let edit = r#"{"spec":{"readQueues":8,"writeQueues":8}}"#;
    run(&mut space.kubectl(&["patch", "mqt", "orders", "--type", "merge", "-p", edit]));
    space.wait_ready("mqt", "orders");
    wait_for_queues(&name_server, "orders", &["tq-0", "tq-1"], 8);

    ferroctl(&name_server, &["topic", "delete", "orders", "--yes"]);
    wait_for_queues(&name_server, "orders", &["tq-0", "tq-1"], 8);
    space.wait_ready("mqt", "orders");
}

#[test]
fn two_passes_with_no_change_write_nothing() {
    let space = Namespace::new("quiet");
    run(&mut space.apply(&broker_cluster("quiet", 1)));
    run(&mut space.apply(&topic("still", "quiet", "still", 4)));
    space.wait_ready("mqc", "quiet");
    space.wait_ready("mqt", "still");
    let name_server = space.name_server("quiet");

    let settled = wait_for("versions to settle", || {
        let (first, passes) = (versions(&space), passes());
        wait_for("a further pass over everything", || {
            if passes_since(&passes) >= 2 {
                Ok(())
            } else {
                Err("the operator has not passed twice yet".to_owned())
            }
        });
        let second = versions(&space);
        if first == second {
            Ok(first)
        } else {
            Err("still changing".to_owned())
        }
    });
    let tables = ferroctl(&name_server, &["topic", "get", "still"]);

    // From here on nothing may change while the operator passes twice more, and once more after its restart.
    let before = passes();
    wait_for("two more passes", || {
        if passes_since(&before) >= 2 {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    same("resource versions", &versions(&space), &settled);
    same(
        "topic on the brokers",
        &ferroctl(&name_server, &["topic", "get", "still"]),
        &tables,
    );
}

/// Every object of the namespace that the operator could write, with its version.
fn versions(space: &Namespace) -> BTreeMap<String, String> {
    let kinds = "mqc,mqt,deployments,statefulsets,services,configmaps,secrets,poddisruptionbudgets";
    let list = space.json(&[kinds]);
    let items = list["items"].as_array().expect("a list");
    items
        .iter()
        .map(|o| {
            let of = |pointer: &str| {
                o.pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            (
                format!("{}/{}", of("/kind"), of("/metadata/name")),
                of("/metadata/resourceVersion"),
            )
        })
        .collect()
}

/// Reconciles ended so far, by kind, from the operator's own metrics.
pub(crate) fn passes() -> BTreeMap<String, u64> {
    let path = "/api/v1/namespaces/ferromq-system/services/ferromq-operator:8080/proxy/metrics";
    // Right after an operator was started anew nothing answers yet.
    let text = wait_for("the operator's metrics", || {
        let got = crate::support::kubectl()
            .args(["get", "--raw", path])
            .output()
            .expect("kubectl runs");
        if got.status.success() {
            Ok(String::from_utf8_lossy(&got.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&got.stderr).into_owned())
        }
    });
    text.lines()
        .filter(|l| l.starts_with("ferromq_reconciles_total{"))
        .filter_map(|l| {
            let (labels, count) = l.rsplit_once(' ')?;
            let kind = labels.split("kind=\"").nth(1)?.split('"').next()?;
            Some((kind.to_owned(), count.parse::<f64>().ok()? as u64))
        })
        .fold(BTreeMap::new(), |mut sums, (kind, n)| {
            *sums.entry(kind).or_default() += n;
            sums
        })
}

/// The smallest number of passes over either kind since `before`.
pub(crate) fn passes_since(before: &BTreeMap<String, u64>) -> u64 {
    let now = passes();
    ["BrokerCluster", "Topic"]
        .iter()
        .map(|k| {
            let (now, before) = (now.get(*k).copied(), before.get(*k).copied());
            let (now, before) = (now.unwrap_or_default(), before.unwrap_or_default());
            // An operator that was started anew counts from zero.
            now.checked_sub(before).unwrap_or(now)
        })
        .min()
        .unwrap_or_default()
}
