//! The cluster's configuration files and command lines, as functions of the plan. Kubernetes takes JSON wherever it
//! takes YAML.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::paths::Paths;
use super::plan::{API_PORT, DNS_SERVICE, Network, Node, POD_RANGE, SERVICE_RANGE};

/// Where a node sees its configuration.
pub(crate) const NODE_ETC: &str = "/run/rig/etc";
/// Where a node sees the tools.
pub(crate) const NODE_TOOLS: &str = "/run/rig/tools";
/// The CNI plugins of Debian.
const CNI_PLUGINS: &str = "/usr/lib/cni";
/// A node's containerd, as the node sees it.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// URL of the api server.
pub(crate) fn server(network: Network) -> String {
    format!("https://{}:{API_PORT}", network.switch())
}

/// A kubeconfig that needs no other file.
pub(crate) fn kubeconfig(network: Network, ca: &[u8], crt: &[u8], key: &[u8]) -> String {
    let name = "ferromq-rig";
    pretty(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server(network), "certificate-authority-data": BASE64.encode(ca)}}],
        "users": [{"name": name, "user": {
            "client-certificate-data": BASE64.encode(crt),
            "client-key-data": BASE64.encode(key),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }))
}

/// The kubelet's configuration.
pub(crate) fn kubelet(node: Node) -> String {
    pretty(&json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.cgroup()),
        "failCgroupV1": false,
        "failSwapOn": false,
        // Lowering one's own score needs a capability that not every machine gives to root.
        "oomScoreAdj": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": format!("{NODE_ETC}/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": format!("{NODE_ETC}/kubelet.crt"),
        "tlsPrivateKeyFile": format!("{NODE_ETC}/kubelet.key"),
        "clusterDNS": [DNS_SERVICE.to_string()],
        "clusterDomain": "cluster.local",
        "resolvConf": format!("{NODE_ETC}/resolv.conf"),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "serializeImagePulls": false,
        // The nodes share this machine's disk and memory, so what one sees full all see full.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s",
    }))
}

/// kube-proxy's configuration.
pub(crate) fn proxy(node: Node) -> String {
    pretty(&json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": format!("{NODE_ETC}/proxy.kubeconfig")},
        "mode": "iptables",
        "hostnameOverride": node.name(),
        "clusterCIDR": POD_RANGE,
        "oomScoreAdj": 0,
        // The table's size is the machine's own matter.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }))
}

/// The pods' network: a link of its own to each pod, so that every packet, also between two pods of a node, is routed
/// and thereby meets kube-proxy's rules.
pub(crate) fn cni(node: Node) -> String {
    pretty(&json!({
        "cniVersion": "0.4.0",
        "name": "rig",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/var/lib/cni/networks",
                    "ranges": [[{"subnet": node.pod_range()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    }))
}

/// containerd's configuration.
pub(crate) fn containerd(pause_image: &str) -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_unprivileged_ports = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{NODE_ETC}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"#
    )
}

/// A resolv.conf for programs that stand on a node without being pods.
pub(crate) fn cluster_resolv_conf(namespace: &str) -> String {
    let search = format!("{namespace}.svc.cluster.local svc.cluster.local cluster.local");
    format!("nameserver {DNS_SERVICE}\nsearch {search}\noptions ndots:5\n")
}

/// A resolv.conf that answers nothing, for pods that ask for the node's own: no name service exists outside.
pub(crate) fn no_resolv_conf(network: Network) -> String {
    format!("nameserver {}\noptions timeout:1 attempts:1\n", network.switch())
}

/// etcd's command line. The data are thrown away with the cluster, so nothing waits for the disk.
pub(crate) fn etcd_args(paths: &Paths) -> Vec<String> {
    vec![
        "etcd".into(),
        "--name=rig".into(),
        format!("--data-dir={}", paths.etcd().display()),
        "--listen-client-urls=http://127.0.0.1:2379".into(),
        "--advertise-client-urls=http://127.0.0.1:2379".into(),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
        "--initial-advertise-peer-urls=http://127.0.0.1:2380".into(),
        "--initial-cluster=rig=http://127.0.0.1:2380".into(),
        "--logger=zap".into(),
        "--unsafe-no-fsync".into(),
    ]
}

/// The api server's command line.
pub(crate) fn apiserver_args(paths: &Paths, network: Network) -> Vec<String> {
    let pki = paths.pki();
    let pki = |name: &str| pki.join(name).display().to_string();
    vec![
        program(paths, "kube-apiserver"),
        format!("--advertise-address={}", network.switch()),
        format!("--bind-address={}", network.switch()),
        format!("--secure-port={API_PORT}"),
        "--etcd-servers=http://127.0.0.1:2379".into(),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        // Webhooks are reached at their pods, for no kube-proxy runs beside the api server.
        "--enable-aggregator-routing=true".into(),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        format!("--kubelet-client-certificate={}", pki("admin.crt")),
        format!("--kubelet-client-key={}", pki("admin.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--cert-dir={}", pki("apiserver")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-key-file={}", pki("service-accounts.key")),
        format!(
            "--service-account-signing-key-file={}",
            pki("service-accounts.key")
        ),
        // A pod leaves a dead node after half a minute instead of five.
        "--default-not-ready-toleration-seconds=30".into(),
        "--default-unreachable-toleration-seconds=30".into(),
        "--profiling=false".into(),
    ]
}

/// The controller manager's command line.
pub(crate) fn controller_manager_args(paths: &Paths) -> Vec<String> {
    let pki = paths.pki();
    let pki = |name: &str| pki.join(name).display().to_string();
    vec![
        program(paths, "kube-controller-manager"),
        format!("--kubeconfig={}", pki("controller-manager.kubeconfig")),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        // The default of 20 requests a second makes its start alone take five seconds.
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
        "--use-service-account-credentials=true".into(),
        format!("--root-ca-file={}", pki("ca.crt")),
        format!(
            "--service-account-private-key-file={}",
            pki("service-accounts.key")
        ),
        format!("--cluster-signing-cert-file={}", pki("ca.crt")),
        format!("--cluster-signing-key-file={}", pki("ca.key")),
        "--allocate-node-cidrs=false".into(),
        "--node-monitor-period=2s".into(),
        "--node-monitor-grace-period=16s".into(),
        "--profiling=false".into(),
    ]
}

/// The scheduler's command line.
pub(crate) fn scheduler_args(paths: &Paths) -> Vec<String> {
    let pki = paths.pki();
    vec![
        program(paths, "kube-scheduler"),
        format!("--kubeconfig={}", pki.join("scheduler.kubeconfig").display()),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--profiling=false".into(),
    ]
}

/// The kubelet's command line, as the node sees it. It ends when its containerd does not answer, as it may while that
/// recovers its containers, and relies on being started again.
pub(crate) fn kubelet_args(node: Node) -> Vec<String> {
    let again = r#"until "$@"; do echo "kubelet ended; starting it again"; sleep 0.5; done"#;
    vec![
        "/bin/sh".into(),
        "-c".into(),
        again.into(),
        "kubelet".into(),
        node_program("kubernetes", "kubelet"),
        format!("--config={NODE_ETC}/kubelet.json"),
        format!("--kubeconfig={NODE_ETC}/kubelet.kubeconfig"),
        "--root-dir=/var/lib/kubelet".into(),
        format!("--hostname-override={}", node.name()),
        format!("--node-ip={}", node.address()),
        format!("--node-labels=topology.kubernetes.io/zone={}", node.zone()),
    ]
}

/// kube-proxy's command line, as the node sees it.
pub(crate) fn proxy_args() -> Vec<String> {
    vec![
        node_program("kubernetes", "kube-proxy"),
        format!("--config={NODE_ETC}/proxy.json"),
    ]
}

/// containerd's command line, as the node sees it.
pub(crate) fn containerd_args() -> Vec<String> {
    vec![
        "containerd".into(),
        format!("--config={NODE_ETC}/containerd.toml"),
    ]
}

/// The environment of everything that the rig leaves running. Nothing is inherited: a proxy variable, for one, would
/// send cluster traffic elsewhere.
pub(crate) fn environment() -> Vec<(String, String)> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    [("PATH", path), ("HOME", "/root"), ("LANG", "C.UTF-8")]
        .map(|(key, value)| (key.into(), value.into()))
        .to_vec()
}

/// The addons' manifest with its blanks filled in.
pub(crate) fn addons(images: &super::images::Names, nodes: usize) -> String {
    let replicas = nodes.min(2).to_string();
    let dns = DNS_SERVICE.to_string();
    let blanks = [
        ("${DNS_ADDRESS}", dns.as_str()),
        ("${DNS_REPLICAS}", &replicas),
        ("${COREDNS_IMAGE}", &images.coredns),
        ("${LOCAL_PATH_PROVISIONER_IMAGE}", &images.local_path_provisioner),
        ("${BUSYBOX_IMAGE}", &images.busybox),
        ("${VOLUME_FOLDER}", super::plan::VOLUME_FOLDER),
    ];
    let template = include_str!("../../rig/manifests/addons.yaml").to_owned();
    blanks
        .iter()
        .fold(template, |text, (blank, value)| text.replace(blank, value))
}

fn program(paths: &Paths, name: &str) -> String {
    paths.tool("kubernetes", name).display().to_string()
}

fn node_program(tool: &str, program: &str) -> String {
    Path::new(NODE_TOOLS)
        .join(Paths::tool_folder(tool))
        .join(program)
        .display()
        .to_string()
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::images::Names;

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_node_has_its_own_addresses_and_cgroup() {
        let nodes = Node::all(Network::CANDIDATES[0], 3).unwrap();
        assert_eq!(parse(&kubelet(nodes[1]))["cgroupRoot"], "/ferromq-rig/ferromq-2");
        assert_eq!(
            parse(&cni(nodes[2]))["plugins"][0]["ipam"]["ranges"][0][0]["subnet"],
            "10.244.3.0/24"
        );
        assert_eq!(parse(&proxy(nodes[0]))["hostnameOverride"], "ferromq-1");
        let args = kubelet_args(nodes[0]);
        assert!(args.contains(&"--node-ip=198.51.100.11".to_owned()));
        assert!(args.contains(&"--node-labels=topology.kubernetes.io/zone=zone-a".to_owned()));
    }

    #[test]
    fn a_kubeconfig_carries_its_credentials() {
        let config = parse(&kubeconfig(Network::CANDIDATES[0], b"ca", b"crt", b"key"));
        assert_eq!(
            config["clusters"][0]["cluster"]["server"],
            "https://198.51.100.1:6443"
        );
        assert_eq!(
            config["users"][0]["user"]["client-key-data"],
            BASE64.encode("key")
        );
        assert_eq!(config["current-context"], config["contexts"][0]["name"]);
    }

    #[test]
    fn the_addons_have_no_blank_left() {
        let text = addons(&Names::current(), 3);
        assert!(!text.contains("${"), "{text}");
        assert!(text.contains("clusterIP: 10.96.0.10") && text.contains("replicas: 2"));
        assert!(addons(&Names::current(), 1).contains("replicas: 1"));
    }

    #[test]
    fn nothing_of_the_callers_environment_is_handed_on() {
        let names: Vec<_> = environment().into_iter().map(|(key, _)| key).collect();
        assert_eq!(names, ["PATH", "HOME", "LANG"]);
    }
}
