//! An operator that dies after any write of a roll, and one that starts in its place.
//!
//! The API server is the one in memory; beside it run a controller of StatefulSets that makes pods, a kubelet that has them
//! ready a moment later, and brokers that answer over HTTP on addresses of the loopback network.

use super::pass_tests::{Fault, RESOURCE, Server, World};
use super::*;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

const PODS: &str = "/api/v1/namespaces/mq/pods";
const SETS: &str = "/apis/apps/v1/namespaces/mq/statefulsets";
const CLAIMS: &str = "/api/v1/namespaces/mq/persistentvolumeclaims";

/// Whether each broker, by pod name, is up and takes writes.
type Brokers = Arc<Mutex<HashMap<String, Broker>>>;

#[derive(Debug, Clone, Copy, Default)]
struct Broker {
    runs: bool,
    stopped: bool,
}

/// The controllers and the node.
#[derive(Debug)]
pub(super) struct Machine {
    brokers: Brokers,
    /// Third number of the addresses `127.100.x.y`.
    net: u8,
    made: u64,
    /// Pods that were made, by name.
    births: BTreeMap<String, usize>,
    /// In which order pods were deleted.
    deleted: Vec<String>,
    /// What must never be.
    wrongs: Vec<String>,
}

impl Machine {
    fn address(&self, group: u8, ordinal: u8) -> IpAddr {
        IpAddr::from([127, 100, self.net, 16 * group + ordinal + 1])
    }

    /// Makes pods and claims that StatefulSets lack, and has everybody see what was written.
    pub(super) fn run(&mut self, objects: &mut BTreeMap<String, Value>) {
        let sets: Vec<Value> = objects
            .iter_mut()
            .filter(|(path, _)| path.starts_with(SETS) || path.contains("/deployments/"))
            .map(|(_, object)| {
                let replicas = object["spec"]["replicas"].clone();
                object["status"] = json!({"observedGeneration": object["metadata"]["generation"], "replicas": replicas,
                    "readyReplicas": replicas, "updatedReplicas": replicas});
                object.clone()
            })
            .filter(|object| object["kind"] == "StatefulSet")
            .collect();
        for set in sets {
            let name = set["metadata"]["name"].as_str().unwrap();
            let group: u8 = name.rsplit('-').next().unwrap().parse().unwrap();
            for ordinal in 0..set["spec"]["replicas"].as_u64().unwrap() as u8 {
                self.supply(objects, &set, group, ordinal);
            }
        }
    }

    fn supply(&mut self, objects: &mut BTreeMap<String, Value>, set: &Value, group: u8, ordinal: u8) {
        let name = names::broker("demo", i32::from(group), i32::from(ordinal));
        let template = &set["spec"]["template"];
        let claim = names::claim("demo", i32::from(group), i32::from(ordinal));
        objects.entry(format!("{CLAIMS}/{claim}")).or_insert_with(|| {
            let mut made = set["spec"]["volumeClaimTemplates"][0].clone();
            made["metadata"] = json!({"name": claim, "labels": template["metadata"]["labels"]});
            made["status"] = json!({"phase": "Bound"});
            made
        });
        let path = format!("{PODS}/{name}");
        if objects.contains_key(&path) {
            return;
        }
        self.made += 1;
        *self.births.entry(name.clone()).or_default() += 1;
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["uid"] = json!(format!("pod-{}", self.made));
        pod["status"] = json!({"phase": "Running", "podIP": self.address(group, ordinal)});
        objects.insert(path, pod);
        self.brokers.lock().insert(name, Broker::default());
    }

    /// A moment later: what was made runs.
    fn settle(&self, objects: &mut BTreeMap<String, Value>) -> bool {
        let mut news = false;
        for (path, pod) in objects
            .range_mut(PODS.to_owned()..)
            .take_while(|(p, _)| p.starts_with(PODS))
        {
            let name = path.rsplit('/').next().unwrap();
            if pod["status"]["conditions"].is_null() {
                pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
                self.brokers.lock().entry(name.to_owned()).or_default().runs = true;
                news = true;
            }
        }
        news
    }

    /// Looks whether a pod may go: all others run, it takes no writes any more, and replicas went before their master.
    pub(super) fn note_deletion(&mut self, path: &str, objects: &BTreeMap<String, Value>) {
        let Some(name) = path.strip_prefix(PODS).map(|name| name[1..].to_owned()) else {
            return;
        };
        let brokers = self.brokers.lock();
        for (other, broker) in brokers.iter().filter(|(other, _)| **other != name) {
            if !broker.runs {
                self.wrongs
                    .push(format!("{name} was deleted while {other} did not run"));
            }
        }
        if name.ends_with("-0") && !brokers[&name].stopped {
            self.wrongs
                .push(format!("{name} was deleted while it took writes"));
        }
        let set = format!("{SETS}/{}", &name[..name.len() - 2]);
        if objects[&set]["metadata"]["annotations"][names::GRANT_ANNOTATION].is_null() {
            self.wrongs.push(format!("{name} was deleted without a grant"));
        }
        self.deleted.push(name);
    }
}

/// Answers GET /status and PUT /writes as one broker.
async fn broker(listener: TcpListener, name: String, brokers: Brokers) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            return;
        };
        let mut seen = Vec::new();
        let mut piece = [0; 2_048];
        // Requests here are one or two packets: headers, then perhaps a short body.
        loop {
            let n = stream.read(&mut piece).await.unwrap_or(0);
            seen.extend_from_slice(&piece[..n]);
            let text = String::from_utf8_lossy(&seen);
            let whole = match text.split_once("\r\n\r\n") {
                Some((_, body)) => !text.starts_with("PUT") || body.ends_with('}'),
                None => false,
            };
            if n == 0 || whole {
                break;
            }
        }
        let text = String::from_utf8_lossy(&seen).into_owned();
        let state = {
            let mut brokers = brokers.lock();
            let state = brokers.entry(name.clone()).or_default();
            if text.starts_with("PUT") {
                state.stopped = text.contains("\"stop\":true");
            }
            *state
        };
        let mut parts = name.rsplit('-');
        let ordinal: i64 = parts.next().unwrap().parse().unwrap();
        let group = parts.next().unwrap();
        let following = (ordinal > 0).then(|| json!({"connected": true, "behindBytes": 0}));
        let report = json!({"stage": if state.runs { "running" } else { "starting" },
            "role": if ordinal == 0 { "ASYNC_MASTER" } else { "SLAVE" },
            "clusterName": "demo", "brokerName": format!("demo-{group}"), "brokerId": ordinal,
            "log": {"min": 0, "max": 100}, "dispatchBehindBytes": 0, "registeredAt": ["ns"], "lastStopClean": true,
            "following": following,
            "writesStopped": {"active": state.stopped, "leaseSecondsLeft": if state.stopped { 60 } else { 0 }}})
        .to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", report.len());
        // Whoever asked may be gone: the test kills it.
        stream.write_all(head.as_bytes()).await.ok();
        stream.write_all(report.as_bytes()).await.ok();
    }
}

/// A cluster of two groups with a replica each that is up.
struct Cluster {
    world: World,
    _serving: Vec<AbortOnDropHandle<()>>,
}

impl Cluster {
    async fn up() -> Self {
        static NET: AtomicU8 = AtomicU8::new(0);
        let world = World::new(json!({"image": "mq:1", "brokers": {"groups": 2, "replicasPerGroup": 2}}));
        let machine = Machine {
            brokers: Brokers::default(),
            net: NET.fetch_add(1, Ordering::Relaxed),
            made: 0,
            births: BTreeMap::new(),
            deleted: Vec::new(),
            wrongs: Vec::new(),
        };
        let mut serving = Vec::new();
        for (group, ordinal) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let at = (machine.address(group, ordinal), names::HTTP_PORT);
            let listener = TcpListener::bind(at).await.unwrap();
            let name = names::broker("demo", i32::from(group), i32::from(ordinal));
            let serve = broker(listener, name, machine.brokers.clone());
            #[expect(clippy::disallowed_methods, reason = "aborted with the handle")]
            serving.push(AbortOnDropHandle::new(tokio::spawn(serve)));
        }
        world.server.lock().machine = Some(machine);
        let mut cluster = Self {
            world,
            _serving: serving,
        };
        cluster.settle().await;
        cluster
    }

    /// Passes until there is nothing left to do; whatever fails takes the operator with it.
    async fn settle(&mut self) {
        for _ in 0..200 {
            let before = self.world.server.lock().writes;
            let ended = self.world.pass().await;
            let (news, writes) = {
                let mut server = self.world.server.lock();
                let Server { machine, objects, .. } = &mut *server;
                (machine.as_ref().unwrap().settle(objects), server.writes)
            };
            if ended.is_err() {
                self.world = World::before(self.world.server.clone());
            } else if !news && writes == before {
                return;
            }
        }
        panic!(
            "never settled: {}",
            self.world.server.lock().objects[RESOURCE]["status"]
        );
    }

    fn look<R>(&self, at: impl FnOnce(&Server, &Machine) -> R) -> R {
        let server = self.world.server.lock();
        at(&server, server.machine.as_ref().unwrap())
    }

    /// What was made, but for what differs from run to run.
    fn made(&self) -> BTreeMap<String, Value> {
        let mut made = self.look(|server, _| server.made());
        for object in made.values_mut() {
            for field in ["clusterIP", "clusterIPs"] {
                if object["spec"].get(field).is_some() {
                    object["spec"][field] = Value::Null;
                }
            }
        }
        made.retain(|path, _| !path.contains("/configmaps/"));
        made
    }
}

/// Does `change` to clusters that run, with a fault at every write there is; `after` looks at each at the end.
async fn with_every_fault(change: fn(&mut Value), after: fn(&Cluster, &str)) {
    let mut smooth = Cluster::up().await;
    let before = smooth.look(|server, _| server.writes);
    smooth.world.edit(change);
    smooth.settle().await;
    after(&smooth, "without a fault");
    let made = smooth.made();
    let writes = smooth.look(|server, _| server.writes) - before;
    assert!(writes > 4, "{writes} writes");
    for fault in [Fault::AnswerLost, Fault::Refused(500)] {
        for n in 1..=writes {
            let when = format!("{fault:?} at write {n} of {writes}");
            let mut cluster = Cluster::up().await;
            let before = cluster.look(|server, _| server.writes);
            cluster.world.server.lock().fault = Some((before + n, fault));
            cluster.world.edit(change);
            cluster.settle().await;
            after(&cluster, &when);
            let found = cluster.made();
            for (path, object) in &made {
                assert_eq!(found.get(path), Some(object), "{path}, {when}");
            }
            assert_eq!(found.len(), made.len(), "{when}");
        }
    }
}

fn each_was_restarted_once(cluster: &Cluster, when: &str) {
    cluster.look(|server, machine| {
        assert!(machine.wrongs.is_empty(), "{:?}, {when}", machine.wrongs);
        assert!(
            machine.births.values().all(|births| *births == 2),
            "{:?}, {when}",
            machine.births
        );
        let place = |name: &str| machine.deleted.iter().position(|d| d == name);
        for group in 0..2 {
            let (master, replica) = (format!("demo-{group}-0"), format!("demo-{group}-1"));
            assert!(place(&replica) < place(&master), "{:?}, {when}", machine.deleted);
        }
        let brokers = machine.brokers.lock();
        assert!(
            brokers.values().all(|b| b.runs && !b.stopped),
            "{brokers:?}, {when}"
        );
        for (path, object) in server.objects.iter().filter(|(path, _)| path.starts_with(SETS)) {
            let grant = &object["metadata"]["annotations"][names::GRANT_ANNOTATION];
            assert!(grant.is_null(), "{path} has a grant left: {grant}, {when}");
        }
    });
}

#[tokio::test]
async fn an_operator_that_dies_at_any_write_of_a_roll_is_gone_on_with() {
    with_every_fault(|spec| spec["image"] = json!("mq:2"), each_was_restarted_once).await;
}

#[tokio::test]
async fn an_operator_that_dies_at_any_write_of_a_resize_is_gone_on_with() {
    with_every_fault(
        |spec| {
            spec["storage"] = json!({"size": "15Gi"});
            spec["image"] = json!("mq:2");
        },
        |cluster, when| {
            each_was_restarted_once(cluster, when);
            cluster.look(|server, _| {
                let claims = server.objects.iter().filter(|(path, _)| path.starts_with(CLAIMS));
                let sizes: Vec<&Value> = claims
                    .map(|(_, claim)| &claim["spec"]["resources"]["requests"]["storage"])
                    .collect();
                assert_eq!(sizes, [&json!("15Gi"); 4], "{when}");
            });
        },
    )
    .await;
}

#[tokio::test]
async fn a_roll_that_is_reverted_while_the_operator_is_away_gives_writes_back_and_restarts_nothing_more() {
    for after in 1..=3 {
        let mut cluster = Cluster::up().await;
        let before = cluster.look(|server, _| server.writes);
        cluster.world.edit(|spec| spec["image"] = json!("mq:2"));
        // Until the operator dies at a write, with the roll under way.
        cluster.world.server.lock().fault = Some((before + 4 + after, Fault::AnswerLost));
        while cluster.world.pass().await.is_ok() {
            let mut server = cluster.world.server.lock();
            let Server { machine, objects, .. } = &mut *server;
            machine.as_ref().unwrap().settle(objects);
        }
        cluster.world.edit(|spec| spec["image"] = json!("mq:1"));
        cluster.world = World::before(cluster.world.server.clone());
        cluster.settle().await;
        cluster.look(|_, machine| {
            assert!(machine.wrongs.is_empty(), "{:?}", machine.wrongs);
            let brokers = machine.brokers.lock();
            assert!(brokers.values().all(|b| b.runs && !b.stopped), "{brokers:?}");
            // One that was taken out already comes back as it was, at most by one more restart.
            assert!(machine.deleted.len() <= 2, "{:?}", machine.deleted);
        });
    }
}
