//! Services: addresses that outlive pods.
//!
//! Ports equal listen ports, because a broker registers one address with its own port, and clients reach the port
//! below and replicas the port above it. HTTP stands on the headless Services only.

use super::super::validate::{Group, ValidCluster};
use super::{ObjectKind, Wanted, wanted};
use crate::names::{self, Component};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Service for clients and headless Service for brokers.
pub(super) fn namesrv(cluster: &ValidCluster) -> Vec<Wanted> {
    let component = Component::NameServer;
    let selector = names::selector(&cluster.name, component);
    let remoting = port("remoting", names::NAMESRV_PORT);
    let both = vec![remoting.clone(), port("http", names::HTTP_PORT)];
    vec![
        service(
            cluster,
            names::namesrv(&cluster.name),
            component,
            &selector,
            &[remoting],
        ),
        headless(
            cluster,
            names::namesrv_headless(&cluster.name),
            component,
            &selector,
            &both,
        ),
    ]
}

/// Headless Service, Service per broker, and the master's Service.
pub(super) fn group(cluster: &ValidCluster, group: &Group) -> Vec<Wanted> {
    let component = Component::Broker(group.index);
    let all = names::selector(&cluster.name, component);
    let ports = broker_ports();
    let mut with_http = ports.clone();
    with_http.push(port("http", names::HTTP_PORT));
    let mut out = vec![headless(
        cluster,
        names::group_headless(&cluster.name, group.index),
        component,
        &all,
        &with_http,
    )];
    for ordinal in 0..cluster.replicas {
        let pod = names::broker(&cluster.name, group.index, ordinal);
        let selector = of_pod(&all, &pod);
        out.push(service(cluster, pod, component, &selector, &ports));
    }
    let master = names::broker(&cluster.name, group.index, 0);
    let name = names::master(&cluster.name, group.index);
    out.push(service(cluster, name, component, &of_pod(&all, &master), &ports));
    out
}

fn of_pod(all: &BTreeMap<String, String>, pod: &str) -> BTreeMap<String, String> {
    let mut selector = all.clone();
    selector.insert("statefulset.kubernetes.io/pod-name".to_owned(), pod.to_owned());
    selector
}

fn broker_ports() -> Vec<Value> {
    vec![
        port("remoting", names::BROKER_PORT),
        port("fast", names::FAST_PORT),
        port("ha", names::HA_PORT),
    ]
}

fn port(name: &str, number: u16) -> Value {
    json!({"name": name, "port": number, "targetPort": number, "protocol": "TCP"})
}

fn service(
    cluster: &ValidCluster,
    name: String,
    component: Component,
    selector: &BTreeMap<String, String>,
    ports: &[Value],
) -> Wanted {
    let body = json!({"spec": {"type": "ClusterIP", "selector": selector, "ports": ports}});
    wanted(cluster, ObjectKind::Service, name, component, body)
}

fn headless(
    cluster: &ValidCluster,
    name: String,
    component: Component,
    selector: &BTreeMap<String, String>,
    ports: &[Value],
) -> Wanted {
    let body = json!({"spec": {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": selector,
        "ports": ports,
    }});
    wanted(cluster, ObjectKind::Service, name, component, body)
}
