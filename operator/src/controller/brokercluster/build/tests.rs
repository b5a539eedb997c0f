//! The objects of a cluster, read back through their typed forms.

use super::super::validate::{Existing, tests::cluster, validate};
use super::*;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::{Serialize, de::DeserializeOwned};

fn valid(spec: Value) -> ValidCluster {
    validate(&cluster(spec), &Existing::default()).unwrap()
}

fn facts(groups: i32) -> Facts {
    Facts {
        addresses: (0..groups)
            .map(|i| (names::master("demo", i), format!("10.96.0.{}", i + 1)))
            .collect(),
        ..Facts::default()
    }
}

fn find<'a>(plan: &'a Plan, kind: ObjectKind, name: &str) -> &'a Value {
    &plan
        .objects
        .iter()
        .find(|o| o.kind == kind && o.name == name)
        .unwrap_or_else(|| panic!("no {kind:?} {name}"))
        .value
}

fn conf(plan: &Plan, group: i32) -> String {
    let name = format!("demo-{group}");
    let map = find(plan, ObjectKind::ConfigMap, &name);
    map["data"][format!("{name}-0.conf")].as_str().unwrap().to_owned()
}

#[test]
fn two_groups_make_exactly_these_objects() {
    let plan = build(&valid(json!({"brokers": {"groups": 2}})), &facts(2));
    let names: Vec<String> = plan
        .objects
        .iter()
        .map(|o| format!("{:?} {}", o.kind, o.name))
        .collect();
    assert_eq!(
        names,
        [
            "Service demo-namesrv",
            "Service demo-namesrv-headless",
            "Service demo-0-headless",
            "Service demo-0-0",
            "Service demo-0-master",
            "Service demo-1-headless",
            "Service demo-1-0",
            "Service demo-1-master",
            "ConfigMap demo-namesrv",
            "ConfigMap demo-0",
            "ConfigMap demo-1",
            "PodDisruptionBudget demo-namesrv",
            "PodDisruptionBudget demo-0",
            "PodDisruptionBudget demo-1",
            "Deployment demo-namesrv",
            "StatefulSet demo-0",
            "StatefulSet demo-1",
        ]
    );
    assert!(plan.waiting.is_empty());
}

/// A misspelt or misplaced field is lost on the way through the typed form.
#[test]
fn every_field_is_one_that_kubernetes_knows() {
    fn through<T: Serialize + DeserializeOwned>(value: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<T>(value.clone()).unwrap()).unwrap()
    }
    let spec = json!({
        "imagePullSecrets": [{"name": "registry"}],
        "storage": {"size": "2Gi", "storageClassName": "fast"},
        "brokers": {"resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}}},
        "acl": {"secretName": "accounts"},
        "tls": {"secretName": "certificates"},
    });
    for object in build(&valid(spec), &facts(1)).objects {
        let back = match object.kind {
            ObjectKind::Service => through::<Service>(&object.value),
            ObjectKind::ConfigMap => through::<ConfigMap>(&object.value),
            ObjectKind::PodDisruptionBudget => through::<PodDisruptionBudget>(&object.value),
            ObjectKind::Deployment => through::<Deployment>(&object.value),
            ObjectKind::StatefulSet => through::<StatefulSet>(&object.value),
        };
        assert!(
            crate::covers::covers(&back, &object.value),
            "{}\n{}",
            object.value,
            back
        );
    }
}

#[test]
fn a_group_waits_for_its_address() {
    let plan = build(&valid(json!({"brokers": {"groups": 2}})), &facts(1));
    assert_eq!(plan.waiting, [1]);
    assert!(
        !plan
            .objects
            .iter()
            .any(|o| o.kind == ObjectKind::StatefulSet && o.name == "demo-1")
    );
}

#[test]
fn broker_conf_holds_identity_address_paths_and_settings() {
    let spec = json!({"brokers": {"groups": 2, "flush": "Sync", "names": ["broker-a"]}});
    assert_eq!(
        conf(&build(&valid(spec), &facts(2)), 0),
        "# Written by ferromq-operator; changes are overwritten.
brokerClusterName=demo
brokerIP1=10.96.0.1
brokerIP2=10.96.0.1
brokerId=0
brokerName=broker-a
brokerRole=ASYNC_MASTER
deleteWhen=04
deleteWhenTimeZone=UTC
diskMaxUsedSpaceRatio=75
fileReservedTime=72
flushDiskType=SYNC_FLUSH
httpPort=8080
httpTokenFile=/etc/ferromq-secret/token
listenPort=10911
mappedFileSizeCommitLog=67108864
namesrvAddr=demo-namesrv-headless.mq.svc:9876
shutdownTimeoutMillis=100000
storeCapacityBytes=2147483648
storePathCommitLog=/var/lib/ferromq/store/commitlog
storePathRootDir=/var/lib/ferromq/store
"
    );
}

#[test]
fn a_change_of_configuration_replaces_pods_and_nothing_else_does() {
    let template = |spec: Value| {
        let mut facts = facts(2);
        facts
            .addresses
            .insert("demo-0-1".to_owned(), "10.96.1.1".to_owned());
        let plan = build(&valid(spec), &facts);
        find(&plan, ObjectKind::StatefulSet, "demo-0")["spec"]["template"].clone()
    };
    let one = template(json!({}));
    assert_eq!(
        one,
        template(json!({"brokers": {"groups": 2}})),
        "a second group leaves the first alone"
    );
    assert_eq!(one, template(json!({"nameServers": {"replicas": 3}})));
    assert_eq!(
        one,
        template(json!({"retention": {"fileReservedTime": 24, "deleteWhen": "05"}})),
        "what a running broker takes replaces no pod"
    );
    assert_eq!(
        one,
        template(json!({"brokers": {"replicasPerGroup": 2}})),
        "nor does one broker more"
    );
    assert_ne!(
        one,
        template(json!({"config": {"mappedFileSizeCommitLog": "67108864", "maxMessageSize": "1024"}}))
    );
}

#[test]
fn replicas_follow_the_master_and_each_registers_its_own_address() {
    let mut facts = facts(1);
    facts
        .addresses
        .insert("demo-0-1".to_owned(), "10.96.1.1".to_owned());
    let spec = json!({"brokers": {"replicasPerGroup": 2, "replication": "Sync"}});
    let plan = build(&valid(spec), &facts);
    let map = find(&plan, ObjectKind::ConfigMap, "demo-0");
    let of = |pod: &str| map["data"][format!("{pod}.conf")].as_str().unwrap().to_owned();
    assert!(of("demo-0-0").contains("brokerId=0\n") && of("demo-0-0").contains("brokerRole=SYNC_MASTER\n"));
    assert!(of("demo-0-1").contains("brokerId=1\n") && of("demo-0-1").contains("brokerRole=SLAVE\n"));
    assert!(of("demo-0-1").contains("brokerIP1=10.96.1.1\n"));
    let set = find(&plan, ObjectKind::StatefulSet, "demo-0");
    assert_eq!(set["spec"]["replicas"], 2);
    assert_eq!(set["spec"]["updateStrategy"]["type"], "OnDelete");
}

#[test]
fn a_pod_template_of_the_user_is_merged_and_cannot_touch_our_selectors() {
    let spec = json!({"brokers": {"podTemplate": {
        "metadata": {"labels": {"team": "a", "ferromq.io/cluster": "other", "app.kubernetes.io/component": "x"}},
        "spec": {"priorityClassName": "high", "containers": [{"name": "side", "image": "s"}]},
    }}});
    let plan = build(&valid(spec), &facts(1));
    let set = find(&plan, ObjectKind::StatefulSet, "demo-0");
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    assert_eq!(
        (&labels["team"], &labels["ferromq.io/cluster"]),
        (&json!("a"), &json!("demo"))
    );
    for (label, value) in set["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&labels[label], value);
    }
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "high");
    assert_eq!(pod["containers"].as_array().unwrap().len(), 2);
    assert_eq!(pod["containers"][0]["name"], "broker");
}

#[test]
fn the_claim_template_of_a_living_set_is_kept() {
    let facts = Facts {
        template_sizes: BTreeMap::from([(0, "2Gi".to_owned())]),
        claimed_bytes: BTreeMap::from([(0, 3 << 30)]),
        ..facts(1)
    };
    let plan = build(&valid(json!({"storage": {"size": "3Gi"}})), &facts);
    let set = find(&plan, ObjectKind::StatefulSet, "demo-0");
    assert_eq!(
        set.pointer("/spec/volumeClaimTemplates/0/spec/resources/requests/storage")
            .unwrap(),
        "2Gi"
    );
    assert!(conf(&plan, 0).contains("storeCapacityBytes=3221225472\n"));
}

#[test]
fn retention_of_claims_follows_the_policy() {
    for policy in ["Retain", "Delete"] {
        let spec = json!({"storage": {"size": "2Gi", "retentionPolicy": policy}});
        let plan = build(&valid(spec), &facts(1));
        let set = find(&plan, ObjectKind::StatefulSet, "demo-0");
        assert_eq!(
            set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"],
            policy
        );
    }
}

/// A name server that starts waits for the brokers there are; one more broker is no reason to replace the servers.
#[test]
fn name_servers_expect_all_brokers_and_are_not_replaced_for_another_one() {
    let of = |groups: i32| {
        let plan = build(&valid(json!({"brokers": {"groups": groups}})), &facts(groups));
        let conf = find(&plan, ObjectKind::ConfigMap, "demo-namesrv")["data"]["namesrv.conf"].clone();
        let pod = find(&plan, ObjectKind::Deployment, "demo-namesrv")["spec"]["template"].clone();
        (conf.as_str().unwrap().to_owned(), pod)
    };
    let ((one, pod), (two, same)) = (of(1), of(2));
    assert!(one.contains("expectedBrokers=demo-0\n"), "{one}");
    assert!(two.contains("expectedBrokers=demo-0;demo-1\n"), "{two}");
    assert_eq!(pod, same);
}

#[test]
fn everything_goes_with_the_resource() {
    for object in build(&valid(json!({})), &facts(1)).objects {
        let owner = &object.value["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["uid"], &owner["controller"]),
            (&json!("u-1"), &json!(true)),
            "{}",
            object.name
        );
    }
}

#[test]
fn pods_meet_the_restricted_standard() {
    let plan = build(&valid(json!({})), &facts(1));
    for (kind, name) in [
        (ObjectKind::Deployment, "demo-namesrv"),
        (ObjectKind::StatefulSet, "demo-0"),
    ] {
        let pod = &find(&plan, kind, name)["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(pod["automountServiceAccountToken"], false);
        let container = &pod["containers"][0]["securityContext"];
        assert_eq!(container["readOnlyRootFilesystem"], true);
        assert_eq!(container["allowPrivilegeEscalation"], false);
        assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
    }
}

#[test]
fn accounts_and_certificates_are_mounted_and_named() {
    let spec = json!({"acl": {"secretName": "team"}, "tls": {"secretName": "pair", "mode": "Enforcing"}});
    let plan = build(&valid(spec.clone()), &facts(1));
    assert!(
        conf(&plan, 0).contains("\naclEnable=true\n")
            && conf(&plan, 0).contains("\nrocketmqHome=/etc/ferromq-home\n")
    );
    let pod = |plan: &Plan, kind, name: &str| find(plan, kind, name)["spec"]["template"]["spec"].clone();
    let broker = pod(&plan, ObjectKind::StatefulSet, "demo-0");
    let sources = &broker["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|v| v["name"] == "accounts")
        .unwrap()["projected"]["sources"];
    assert_eq!(sources[0]["secret"]["name"], "team");
    assert_eq!(sources[0]["secret"]["items"][0]["path"], "acl/plain_acl.yml");
    assert_eq!(sources[1]["secret"]["name"], "demo-account");
    let arguments = |pod: &Value| pod["containers"][0]["args"].to_string();
    assert!(arguments(&broker).contains("-Dtls.server.mode=enforcing"));
    assert!(arguments(&broker).contains("-Dtls.client.authServer=false"));
    // Name servers have certificates and no accounts.
    let names = pod(&plan, ObjectKind::Deployment, "demo-namesrv");
    assert!(arguments(&names).contains("-Dtls.server.keyPath=/etc/ferromq-tls/tls.key"));
    assert!(!names["volumes"].to_string().contains("accounts"));
    let trusted = Facts {
        trusted: true,
        ..facts(1)
    };
    let broker = pod(&build(&valid(spec), &trusted), ObjectKind::StatefulSet, "demo-0");
    assert!(arguments(&broker).contains("-Dtls.client.trustCertPath=/etc/ferromq-tls/ca.crt"));
    // Without them nothing is different from before.
    let without = pod(
        &build(&valid(json!({})), &facts(1)),
        ObjectKind::StatefulSet,
        "demo-0",
    );
    assert!(!without.to_string().contains("tls") && !without.to_string().contains("accounts"));
}
