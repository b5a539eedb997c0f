//! The rig itself: a cluster comes up, does what a cluster does, suffers faults and leaves nothing behind.
//!
//! One test, because there is one rig on a machine. Needs root and the tools of `e2e/rig/setup.sh`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ferromq_e2e::rig::{Rig, Up, leftovers};

const WORKLOAD: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-any}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  replicas: 3
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: web}}
      securityContext:
        {runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: web
          image: localhost/ferromq-rig/busybox:1
          command: [/bin/sh, -c, 'echo "$(hostname) started" >>/data/starts; exec httpd -f -p 8080 -h /data']
          resources: {limits: {memory: 64Mi, cpu: 500m}}
          readinessProbe: {httpGet: {path: /starts, port: 8080}, periodSeconds: 1}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {storageClassName: expandable, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
"#;

#[test]
fn a_cluster_works_and_leaves_nothing() {
    let rig = Rig::from_env().unwrap();
    assert!(
        rig.nodes().is_err(),
        "a rig is up, and this test would take it down: do so first with rig down"
    );
    assert_eq!(
        leftovers(rig.paths()).unwrap(),
        Vec::<String>::new(),
        "before the test"
    );
    let before = namespaces();
    let say = |text: &str| println!("{text}");
    // Whatever fails below, the machine is left clean.
    let result = std::panic::catch_unwind(|| {
        interrupted_start_is_cleaned(&rig);
        assert_eq!(rig.up(3, &say).unwrap(), Up::Started);
        assert_eq!(rig.up(3, &say).unwrap(), Up::AlreadyUp);
        assert!(rig.up(2, &say).unwrap_err().to_string().contains("3 nodes"));
        workload_runs_on_every_node(&rig);
        names_and_addresses_work_across_nodes(&rig);
        images_can_be_loaded(&rig);
        killed_container_starts_again_with_its_data(&rig);
        cut_node_is_seen_and_heals(&rig);
        stopped_node_boots_again(&rig);
    });
    if result.is_err() {
        println!("{}", rig.status().unwrap_or_default());
        println!(
            "{}",
            text(rig.kubectl().args(["get", "pods,pvc", "-A", "-o", "wide"]))
        );
    }
    rig.down(&say).unwrap();
    rig.down(&say).unwrap();
    assert_eq!(leftovers(rig.paths()).unwrap(), Vec::<String>::new());
    wait("the network namespaces to be gone", 20, || {
        namespaces().is_subset(&before)
    });
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn interrupted_start_is_cleaned(rig: &Rig) {
    let mut start = Command::new(env!("CARGO_BIN_EXE_rig"))
        .arg("up")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let etcd = rig.paths().state().join("run/etcd");
    wait("the start to be under way", 30, || etcd.exists());
    let second = rig.up(3, &|_| ()).unwrap_err();
    assert!(second.to_string().contains("another rig command"), "{second:#}");
    start.kill().unwrap();
    start.wait().unwrap();
    assert!(!leftovers(rig.paths()).unwrap().is_empty());
    rig.down(&|_| ()).unwrap();
}

fn workload_runs_on_every_node(rig: &Rig) {
    rig.apply(WORKLOAD).unwrap();
    kubectl(rig, &["rollout", "status", "statefulset/web", "--timeout=120s"]);
    let nodes = kubectl(
        rig,
        &[
            "get",
            "pods",
            "-l",
            "app=web",
            "-o",
            "jsonpath={.items[*].spec.nodeName}",
        ],
    );
    let nodes: BTreeSet<&str> = nodes.split(' ').collect();
    assert_eq!(nodes, BTreeSet::from(["ferromq-1", "ferromq-2", "ferromq-3"]));
}

fn names_and_addresses_work_across_nodes(rig: &Rig) {
    for pod in 0..3 {
        let name = format!("web-{pod}.web.default.svc.cluster.local");
        let answer = kubectl(rig, &["exec", "web-0", "--", "nslookup", &name]);
        assert!(answer.contains("10.244."), "{answer}");
    }
    // Every pod answers through the Service, from this machine's programs in the network of any node.
    for node in rig.nodes().unwrap() {
        let mut seen = BTreeSet::new();
        wait("all three pods to answer", 60, || {
            let mut curl = rig.command_on_network(node, "default", "curl").unwrap();
            let answer = text(curl.args(["-s", "--max-time", "3", "http://web-any/starts"]));
            seen.extend(answer.lines().map(str::to_owned));
            seen.len() == 3
        });
    }
    let mut lookup = rig
        .command_on_network(rig.nodes().unwrap()[0], "default", "getent")
        .unwrap();
    assert!(
        !lookup
            .args(["hosts", "www.example.com"])
            .output()
            .unwrap()
            .status
            .success(),
        "nothing leads outside"
    );
}

fn images_can_be_loaded(rig: &Rig) {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("image.tar");
    let made = Command::new(env!("CARGO_BIN_EXE_rig"))
        .args([
            "image",
            "--tag",
            "rig-test/loaded:1",
            "--allow-dynamic",
            "--binary",
        ])
        .arg(env!("CARGO_BIN_EXE_rig"))
        .arg("--out")
        .arg(&archive)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    assert_eq!(rig.load(&archive).unwrap(), ["docker.io/rig-test/loaded:1"]);
    for node in rig.nodes().unwrap() {
        let mut list = rig.command_inside(node, "ctr").unwrap();
        let list = text(list.args(["--namespace", "k8s.io", "images", "list", "-q"]));
        assert!(list.contains("docker.io/rig-test/loaded:1"), "{list}");
    }
}

fn killed_container_starts_again_with_its_data(rig: &Rig) {
    rig.signal_container("default", "web-1", "web", "SIGKILL")
        .unwrap();
    wait("web-1 to have started twice", 60, || {
        let starts = text(rig.kubectl().args(["exec", "web-1", "--", "cat", "/data/starts"]));
        starts == "web-1 started\nweb-1 started\n"
    });
}

fn cut_node_is_seen_and_heals(rig: &Rig) {
    let node = rig.node("2").unwrap();
    rig.partition(node).unwrap();
    wait("ferromq-2 to be missed", 90, || {
        ready(rig, "ferromq-2") == "Unknown"
    });
    rig.heal(node).unwrap();
    wait("ferromq-2 to be back", 90, || ready(rig, "ferromq-2") == "True");
}

fn stopped_node_boots_again(rig: &Rig) {
    let node = rig.node("ferromq-3").unwrap();
    let pod = kubectl(
        rig,
        &[
            "get",
            "pods",
            "-l",
            "app=web",
            "--field-selector=spec.nodeName=ferromq-3",
            "-o",
            "name",
        ],
    );
    rig.stop_node(node).unwrap();
    wait("ferromq-3 to be missed", 90, || {
        ready(rig, "ferromq-3") == "Unknown"
    });
    rig.start_node(node, &|_| ()).unwrap();
    wait("ferromq-3 to be back", 120, || ready(rig, "ferromq-3") == "True");
    wait("its pod to run again with its data", 180, || {
        let starts = text(
            rig.kubectl()
                .args(["exec", pod.trim(), "--", "cat", "/data/starts"]),
        );
        starts.lines().count() >= 2
    });
    assert_eq!(rig.up(3, &|_| ()).unwrap(), Up::AlreadyUp);
}

fn ready(rig: &Rig, node: &str) -> String {
    let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    text(rig.kubectl().args(["get", "node", node, "-o", path]))
}

/// Network namespaces in which some process is.
fn namespaces() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read_link(process.path().join("ns/net")).ok())
        .collect()
}

fn kubectl(rig: &Rig, args: &[&str]) -> String {
    let output = rig.kubectl().args(args).output().unwrap();
    assert!(
        output.status.success(),
        "kubectl {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn text(command: &mut Command) -> String {
    let Output { stdout, .. } = command.output().unwrap();
    String::from_utf8_lossy(&stdout).into_owned()
}

fn wait(what: &str, seconds: u64, mut there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !there() {
        assert!(Instant::now() < deadline, "waited {seconds} s for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
