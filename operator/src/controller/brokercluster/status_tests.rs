//! The status for each state that a cluster can be in.

use super::super::validate::{tests::cluster, validate};
use super::*;
use serde_json::json;

fn at(second: i64) -> Time {
    Time(jiff::Timestamp::from_second(second).unwrap())
}

fn pod(name: &str, ready: bool) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "status": {"podIP": "10.1.0.1", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    }))
    .unwrap()
}

fn set(index: i32, done: bool) -> ((ObjectKind, String), Value) {
    let value = json!({
        "metadata": {"generation": 2, "labels": {"ferromq.io/group": index.to_string()}},
        "status": {
            "observedGeneration": if done { 2 } else { 1 }, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
            "currentRevision": "a", "updateRevision": "a",
        },
    });
    ((ObjectKind::StatefulSet, format!("demo-{index}")), value)
}

fn world(groups: i32) -> (Observed, Reports) {
    let mut live = Live::from([(
        (ObjectKind::Deployment, "demo-namesrv".to_owned()),
        json!({"metadata": {"generation": 1},
               "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}}),
    )]);
    let mut pods = BTreeMap::new();
    let mut reports = Reports::new();
    for i in 0..groups {
        live.extend([
            set(i, true),
            (
                (ObjectKind::Service, format!("demo-{i}-master")),
                json!({"spec": {"clusterIP": format!("10.96.0.{i}")}}),
            ),
        ]);
        let name = format!("demo-{i}-0");
        pods.insert(name.clone(), pod(&name, true));
        let report = Report {
            stage: "running".to_owned(),
            role: "ASYNC_MASTER".to_owned(),
            registered_at: vec!["10.1.0.9:9876".to_owned()],
            last_stop_clean: true,
            ..Report::default()
        };
        reports.insert(name, Ok(report));
    }
    (
        Observed {
            live,
            pods,
            claims: BTreeMap::new(),
            trusted: false,
        },
        reports,
    )
}

fn applied() -> Outcome {
    Outcome::Applied(Box::default())
}

fn of(observed: &Observed, reports: &Reports, outcome: &Outcome) -> BrokerClusterStatus {
    let resource = cluster(json!({"brokers": {"groups": 2}}));
    let valid = validate(&resource, &observed.existing()).unwrap();
    status(&resource, Some(&valid), observed, reports, outcome, &at(1))
}

fn ready(status: &BrokerClusterStatus) -> (String, String, String) {
    let c = status.conditions.iter().find(|c| c.type_ == READY).unwrap();
    (c.status.clone(), c.reason.clone(), c.message.clone())
}

#[test]
fn all_well_is_ready_with_a_row_per_broker() {
    let (observed, reports) = world(2);
    let status = of(&observed, &reports, &applied());
    assert_eq!(ready(&status).0, "True");
    assert_eq!(status.observed_generation, Some(3));
    assert_eq!(status.ready_brokers.as_deref(), Some("2/2"));
    assert_eq!(status.ready_name_servers.as_deref(), Some("1/1"));
    assert_eq!(
        status.name_server_address.as_deref(),
        Some("demo-namesrv.mq.svc:9876")
    );
    let row = &status.brokers[1];
    assert_eq!(
        (row.name.as_str(), row.group, row.broker_name.as_str()),
        ("demo-1-0", 1, "demo-1")
    );
    assert_eq!(row.address.as_deref(), Some("10.96.0.1:10911"));
    assert_eq!(row.last_stop_clean, Some(true));
}

#[test]
fn equal_facts_give_an_equal_status() {
    let (observed, reports) = world(2);
    let mut resource = cluster(json!({"brokers": {"groups": 2}}));
    let valid = validate(&resource, &observed.existing()).unwrap();
    let first = status(&resource, Some(&valid), &observed, &reports, &applied(), &at(1));
    resource.status = Some(first.clone());
    let second = status(&resource, Some(&valid), &observed, &reports, &applied(), &at(99));
    assert_eq!(first, second);
}

#[test]
fn each_kind_of_trouble_is_named() {
    type Spoil = fn(&mut Observed, &mut Reports);
    let cases: [(Spoil, &str, &str); 8] = [
        (
            |o, _| drop(o.pods.remove("demo-1-0")),
            "BrokersNotReady",
            "demo-1-0 is Missing",
        ),
        (
            |o, r| {
                o.pods.insert("demo-0-0".to_owned(), pod("demo-0-0", false));
                r.remove("demo-0-0");
            },
            "BrokersNotReady",
            "demo-0-0 is Pending",
        ),
        (
            |_, r| drop(r.insert("demo-0-0".to_owned(), Err(ReportError::NoAddress))),
            "BrokersNotReady",
            "demo-0-0 is Unreachable",
        ),
        (
            |_, r| {
                if let Some(Ok(report)) = r.get_mut("demo-0-0") {
                    report.registered_at.clear();
                }
            },
            "BrokersNotReady",
            "registered at no name server",
        ),
        (
            |o, r| {
                o.pods.insert("demo-0-0".to_owned(), pod("demo-0-0", false));
                if let Some(Ok(report)) = r.get_mut("demo-0-0") {
                    report.stage = "recovering".to_owned();
                    report.recovery = crate::broker_status::Recovery {
                        abnormal: true,
                        done: 4,
                        total: 10,
                    };
                }
            },
            "BrokersNotReady",
            "recovering: 40% (after an abnormal stop)",
        ),
        (|o, _| o.live.extend([set(1, false)]), "RollingOut", "group 1"),
        (
            |o, _| o.live.retain(|(kind, _), _| *kind != ObjectKind::Deployment),
            "NameServersNotReady",
            "0 of 1",
        ),
        (
            |o, r| {
                let stuck: Pod = serde_json::from_value(json!({
                    "metadata": {"name": "demo-0-0"},
                    "status": {"containerStatuses": [{
                        "name": "broker", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
                    }]},
                }))
                .unwrap();
                o.pods.insert("demo-0-0".to_owned(), stuck);
                r.remove("demo-0-0");
            },
            "BrokersNotReady",
            "ImagePullBackOff: no such image",
        ),
    ];
    for (spoil, reason, word) in cases {
        let (mut observed, mut reports) = world(2);
        spoil(&mut observed, &mut reports);
        let status = of(&observed, &reports, &applied());
        let (holds, found, message) = ready(&status);
        assert_eq!((holds.as_str(), found.as_str()), ("False", reason), "{message}");
        assert!(message.contains(word), "{message}");
        let reconciling = status.conditions.iter().find(|c| c.type_ == RECONCILING).unwrap();
        assert_eq!(reconciling.status, "True");
    }
}

#[test]
fn a_senseless_spec_is_named_and_keeps_the_rows() {
    let (observed, reports) = world(2);
    let before = of(&observed, &reports, &applied());
    let mut resource = cluster(json!({"brokers": {"groups": 2}}));
    resource.status = Some(before.clone());
    let outcome = Outcome::Invalid("spec.retention.timeZone is bad".to_owned());
    let after = status(&resource, None, &observed, &reports, &outcome, &at(2));
    assert_eq!(
        ready(&after),
        (
            "False".to_owned(),
            "InvalidSpec".to_owned(),
            "spec.retention.timeZone is bad".to_owned()
        )
    );
    assert_eq!(after.brokers, before.brokers);
    assert_eq!(
        after
            .conditions
            .iter()
            .find(|c| c.type_ == STALLED)
            .unwrap()
            .status,
        "True"
    );
}

#[test]
fn a_volume_that_does_not_grow_leaves_the_cluster_ready_and_says_so() {
    let (observed, reports) = world(2);
    let outcome = Outcome::Applied(Box::new(Applied {
        storage_notes: vec!["class x cannot expand".to_owned()],
        ..Applied::default()
    }));
    let status = of(&observed, &reports, &outcome);
    assert_eq!(ready(&status).0, "True");
    let stalled = status.conditions.iter().find(|c| c.type_ == STALLED).unwrap();
    assert_eq!(
        (stalled.status.as_str(), stalled.message.as_str()),
        ("True", "class x cannot expand")
    );
}

#[test]
fn pausing_still_reports() {
    let (mut observed, reports) = world(2);
    assert_eq!(ready(&of(&observed, &reports, &Outcome::Paused)).1, "Paused");
    observed.pods.clear();
    assert_eq!(ready(&of(&observed, &reports, &Outcome::Paused)).0, "False");
}

#[test]
fn a_broker_that_waits_for_its_turn_stands_in_the_plan() {
    use super::super::roll::{Broker, Form, Grant, Pod as Seen, Rules, plan};
    let (observed, reports) = world(2);
    let broker = |uid: &str, stale: Option<&str>| Broker {
        pod: Some(Seen {
            uid: uid.to_owned(),
            stale: stale.map(str::to_owned),
            urgent: false,
            leaving: false,
            health: Health::Serving,
            stopped_for: 0,
            behind: Some(0),
            has_all: true,
        }),
    };
    let groups = [
        Group {
            index: 0,
            form: Form::Current,
            grant: Some(Grant {
                ordinal: 0,
                uid: "a".to_owned(),
                why: "image".to_owned(),
            }),
            brokers: vec![broker("a", Some("image"))],
        },
        Group {
            index: 1,
            form: Form::Behind,
            grant: None,
            brokers: vec![broker("b", Some("image"))],
        },
    ];
    let resource = cluster(json!({"brokers": {"groups": 2}}));
    let valid = validate(&resource, &observed.existing()).unwrap();
    let rules = Rules::default();
    let shown = rollout(&valid, &groups, &plan(&rules, &groups), &rules, "id").unwrap();
    let rows: Vec<_> = shown
        .plan
        .iter()
        .map(|r| {
            (
                r.name.as_str(),
                r.state.as_str(),
                r.message.as_deref().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("demo-0-0", "Granted", "its writes are being stopped"),
            ("demo-1-0", "Pending", "group 0 has its turn first"),
        ]
    );
    let outcome = Outcome::Applied(Box::new(Applied {
        rollout: Some(shown),
        ..Applied::default()
    }));
    let (holds, reason, message) = ready(&of(&observed, &reports, &outcome));
    assert_eq!((holds.as_str(), reason.as_str()), ("False", "RollingOut"));
    assert!(message.contains("demo-0-0"), "{message}");
}

#[test]
fn a_group_that_joins_or_leaves_is_named() {
    let (observed, reports) = world(2);
    let outcome = Outcome::Applied(Box::new(Applied {
        groups: vec![GroupRow {
            index: 2,
            stage: "Leaving".to_owned(),
            message: Some("7 messages are not read".to_owned()),
            ..GroupRow::default()
        }],
        ..Applied::default()
    }));
    let status = of(&observed, &reports, &outcome);
    let (holds, reason, message) = ready(&status);
    assert_eq!((holds.as_str(), reason.as_str()), ("False", "GroupsChange"));
    assert!(message.contains("7 messages"), "{message}");
    assert_eq!(status.group_states.len(), 1);
}
