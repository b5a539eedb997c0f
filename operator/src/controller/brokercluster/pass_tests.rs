//! Whole passes against an API server in memory, with faults between any two writes.

use super::roll_crash_tests::Machine;
use super::*;
use crate::access::Access;
use crate::context::Directory;
use crate::metrics::Metrics;
use crate::settings::{Dial, Settings};
use ferromq_client::ClientConfig;
use http_body_util::BodyExt;
use hyper::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::task::TaskTracker;

/// What goes wrong at a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The write is refused with this code.
    Refused(u16),
    /// The write happens, but its answer is lost: as when the operator dies just after it.
    AnswerLost,
}

/// The API server: objects by path.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) objects: BTreeMap<String, Value>,
    pub(super) writes: usize,
    pub(super) fault: Option<(usize, Fault)>,
    list_fails: bool,
    next: u64,
    /// What runs in the cluster beside, if anything.
    pub(super) machine: Option<Machine>,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, query: &str, body: &Value) -> (u16, Value) {
        if *method == Method::GET {
            return self.read(path, query);
        }
        if path.contains("/events") {
            // What is said is not what is made.
            return (201, body.clone());
        }
        self.writes += 1;
        let fault = self.fault.filter(|(n, _)| *n == self.writes).map(|(_, f)| f);
        if let Some(Fault::Refused(code)) = fault {
            return failure(code);
        }
        let answer = match *method {
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                self.store(&format!("{path}/{name}"), body.clone(), false)
            }
            Method::PATCH => match path.strip_suffix("/status") {
                Some(path) => {
                    let mut whole = self.objects[path].clone();
                    whole["status"] = body["status"].clone();
                    self.store(path, whole, false)
                }
                None if query.contains("force=true") => self.store(path, body.clone(), true),
                None => {
                    let mut whole = self.objects[path].clone();
                    merge(&mut whole, body);
                    self.store(path, whole, false)
                }
            },
            Method::DELETE => self.delete(path, body),
            _ => failure(405),
        };
        if let Some(machine) = &mut self.machine {
            machine.run(&mut self.objects);
        }
        if fault == Some(Fault::AnswerLost) {
            failure(500)
        } else {
            answer
        }
    }

    fn read(&self, path: &str, query: &str) -> (u16, Value) {
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        let Some(kind) = path
            .strip_prefix("/")
            .and_then(|p| p.rsplit('/').next())
            .filter(|k| k.ends_with('s'))
        else {
            return failure(404);
        };
        if !query.contains("labelSelector") {
            return failure(404);
        }
        if self.list_fails {
            return failure(500);
        }
        let below = format!("{path}/");
        let items: Vec<&Value> = self
            .objects
            .range(below.clone()..)
            .take_while(|(k, _)| k.starts_with(&below))
            .map(|(_, v)| v)
            .collect();
        (
            200,
            json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {}, "items": items}),
        )
    }

    fn delete(&mut self, path: &str, options: &Value) -> (u16, Value) {
        let Some(object) = self.objects.get(path) else {
            return failure(404);
        };
        let wanted = &options["preconditions"]["uid"];
        if !wanted.is_null() && *wanted != object["metadata"]["uid"] {
            return failure(409);
        }
        if let Some(machine) = &mut self.machine {
            machine.note_deletion(path, &self.objects);
        }
        (200, self.objects.remove(path).unwrap_or_default())
    }

    /// Stores as the real one does: what others filled in stays, versions and generations move with changes.
    fn store(&mut self, path: &str, mut fresh: Value, applied: bool) -> (u16, Value) {
        let old = self.objects.get(path).cloned().unwrap_or_default();
        self.next += 1;
        if fresh["kind"] == "Service" && fresh["spec"]["clusterIP"].is_null() {
            let known = old["spec"]["clusterIP"].clone();
            fresh["spec"]["clusterIP"] = if known.is_null() {
                json!(format!("10.96.0.{}", self.next))
            } else {
                known
            };
        }
        if fresh["status"].is_null() && !old["status"].is_null() {
            fresh["status"] = old["status"].clone();
        }
        // A field of another manager's outlives an apply; a merge has it as it should be.
        let grant = &old["metadata"]["annotations"][names::GRANT_ANNOTATION];
        if applied && !grant.is_null() {
            fresh["metadata"]["annotations"][names::GRANT_ANNOTATION] = grant.clone();
        }
        fresh["metadata"]["uid"] = if old["metadata"]["uid"].is_null() {
            json!(format!("uid-{}", self.next))
        } else {
            old["metadata"]["uid"].clone()
        };
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        fresh["metadata"]["generation"] = json!(generation + i64::from(old["spec"] != fresh["spec"]));
        fresh["metadata"]["resourceVersion"] = json!(self.next.to_string());
        self.objects.insert(path.to_owned(), fresh.clone());
        (200, fresh)
    }

    /// All that the operator made, without what differs from run to run.
    pub(super) fn made(&self) -> BTreeMap<String, Value> {
        let mut made = self.objects.clone();
        for object in made.values_mut() {
            for field in ["uid", "resourceVersion", "generation"] {
                object["metadata"][field] = Value::Null;
            }
            // Secrets hold random bytes, conditions times.
            object["data"]["token"] = Value::Null;
            object["status"] = Value::Null;
        }
        made
    }
}

/// A JSON merge patch.
fn merge(base: &mut Value, patch: &Value) {
    let (Value::Object(old), Value::Object(new)) = (&mut *base, patch) else {
        *base = patch.clone();
        return;
    };
    for (key, value) in new {
        if value.is_null() {
            old.remove(key);
        } else {
            merge(old.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn failure(code: u16) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Unknown" };
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": "as the test asked", "code": code}),
    )
}

pub(super) const RESOURCE: &str = "/apis/ferromq.io/v1alpha1/namespaces/mq/brokerclusters/demo";

pub(super) struct World {
    pub(super) server: Arc<Mutex<Server>>,
    cx: Context,
}

impl World {
    pub(super) fn new(spec: Value) -> Self {
        let mut first = Server::default();
        let resource = serde_json::to_value(validate::tests::cluster(spec)).unwrap();
        first.objects.insert(RESOURCE.to_owned(), resource);
        Self::before(Arc::new(Mutex::new(first)))
    }

    /// An operator that has just been started.
    pub(super) fn before(server: Arc<Mutex<Server>>) -> Self {
        let behind = Arc::clone(&server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&behind);
            async move {
                let (head, body) = request.into_parts();
                let bytes = body.collect().await?.to_bytes();
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let (code, answer) = server.lock().answer(
                    &head.method,
                    head.uri.path(),
                    head.uri.query().unwrap_or_default(),
                    &body,
                );
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, tower::BoxError>(response.unwrap())
            }
        });
        let settings = Settings {
            watch_namespace: String::new(),
            resync_seconds: 30,
            retry_seconds: 1,
            broker_timeout_milliseconds: 100,
            concurrency: 1,
            route_refresh_seconds: 1,
            lease_seconds: 0,
            own_namespace: "mq".to_owned(),
            identity: "test".to_owned(),
            dial: Dial::PodIps,
            http_port: 0,
            log_level: "info".to_owned(),
            log_format: "text".to_owned(),
        };
        let cx = Context {
            client: kube::Client::new(service, "mq"),
            by_name: false,
            access: Access::new(&ClientConfig::new("")).unwrap(),
            metrics: Metrics::default(),
            directory: Directory::default(),
            passes: TaskTracker::new(),
            identity: "test".to_owned(),
            said: crate::events::Said::default(),
            settings,
        };
        Self { server, cx }
    }

    pub(super) async fn pass(&self) -> Result<Action, Error> {
        let resource: BrokerCluster =
            serde_json::from_value(self.server.lock().objects[RESOURCE].clone()).unwrap();
        Box::pin(reconcile(&resource, &self.cx)).await
    }

    /// Passes until one ends well and writes nothing.
    async fn settle(&self) {
        for _ in 0..50 {
            let before = self.server.lock().writes;
            let ended = self.pass().await;
            if ended.is_ok() && self.server.lock().writes == before {
                return;
            }
        }
        panic!("never settled");
    }

    /// What was made, and with how many writes.
    fn seen(&self) -> (BTreeMap<String, Value>, usize) {
        let server = self.server.lock();
        (server.made(), server.writes)
    }

    pub(super) fn edit(&self, change: impl Fn(&mut Value)) {
        let mut server = self.server.lock();
        let mut resource = server.objects[RESOURCE].clone();
        change(&mut resource["spec"]);
        server.store(RESOURCE, resource, false);
    }
}

#[tokio::test]
async fn one_pass_makes_all_and_the_next_writes_nothing() {
    let world = World::new(json!({"brokers": {"groups": 2}}));
    world.pass().await.unwrap();
    let made: Vec<String> = world
        .server
        .lock()
        .objects
        .keys()
        .map(|k| k.rsplit('/').next().unwrap().to_owned())
        .collect();
    for name in ["demo-0", "demo-1", "demo-namesrv", "demo-http", "demo-1-master"] {
        assert!(made.iter().any(|m| m == name), "{name} in {made:?}");
    }
    let writes = world.server.lock().writes;
    for _ in 0..3 {
        world.pass().await.unwrap();
    }
    assert_eq!(world.server.lock().writes, writes);
}

#[tokio::test]
async fn a_fault_at_any_write_ends_in_the_same_state() {
    let smooth = World::new(json!({"brokers": {"groups": 2}}));
    smooth.settle().await;
    let (made, writes) = smooth.seen();
    for fault in [Fault::Refused(500), Fault::Refused(403), Fault::AnswerLost] {
        for n in 1..=writes {
            let world = World::new(json!({"brokers": {"groups": 2}}));
            world.server.lock().fault = Some((n, fault));
            world.settle().await;
            // Addresses are given out in the order of the writes, which a fault may shift: compare what was asked.
            let found = world.server.lock().made();
            assert_eq!(
                found.keys().collect::<Vec<_>>(),
                made.keys().collect::<Vec<_>>(),
                "{fault:?} at write {n}"
            );
        }
    }
}

#[tokio::test]
async fn the_token_outlives_every_pass() {
    let world = World::new(json!({}));
    world.server.lock().fault = Some((3, Fault::AnswerLost));
    world.pass().await.unwrap_err();
    let token = |w: &World| {
        w.server.lock().objects["/api/v1/namespaces/mq/secrets/demo-http"]["data"]["token"].clone()
    };
    let first = token(&world);
    assert!(first.as_str().is_some_and(|t| t.len() > 40));
    world.settle().await;
    assert_eq!(token(&world), first);
}

#[tokio::test]
async fn a_list_that_fails_is_not_an_empty_world() {
    let world = World::new(json!({}));
    world.settle().await;
    let (made, writes) = world.seen();
    world.server.lock().list_fails = true;
    world.pass().await.unwrap_err();
    let server = world.server.lock();
    assert_eq!((server.made(), server.writes), (made, writes));
}

#[tokio::test]
async fn what_others_changed_is_put_right_and_what_others_own_is_left() {
    let world = World::new(json!({}));
    world.settle().await;
    let path = "/api/v1/namespaces/mq/services/demo-0-master";
    let before = world.server.lock().objects[path]["spec"].clone();
    world.server.lock().objects.get_mut(path).unwrap()["spec"]["ports"][0]["targetPort"] = json!(1);
    world.settle().await;
    assert_eq!(world.server.lock().objects[path]["spec"], before);

    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "demo-1-master", "uid": "x"}, "spec": {"type": "ExternalName"}});
    let path = "/api/v1/namespaces/mq/services/demo-1-master";
    world
        .server
        .lock()
        .objects
        .insert(path.to_owned(), foreign.clone());
    world.edit(|spec| spec["brokers"]["groups"] = json!(2));
    world.pass().await.unwrap();
    let server = world.server.lock();
    assert_eq!(server.objects[path], foreign);
    let ready = &server.objects[RESOURCE]["status"]["conditions"][0];
    assert_eq!(
        (&ready["reason"], &ready["status"]),
        (&json!("ApplyRefused"), &json!("False"))
    );
    assert!(
        ready["message"].as_str().unwrap().contains("demo-1-master"),
        "{ready}"
    );
}

#[tokio::test]
async fn a_new_group_leaves_the_old_ones_untouched() {
    let world = World::new(json!({}));
    world.settle().await;
    let old = world.server.lock().objects["/apis/apps/v1/namespaces/mq/statefulsets/demo-0"].clone();
    world.edit(|spec| spec["brokers"]["groups"] = json!(2));
    world.settle().await;
    let server = world.server.lock();
    assert_eq!(
        server.objects["/apis/apps/v1/namespaces/mq/statefulsets/demo-0"],
        old
    );
    assert!(
        server
            .objects
            .contains_key("/apis/apps/v1/namespaces/mq/statefulsets/demo-1")
    );
}

#[tokio::test]
async fn a_senseless_spec_writes_a_status_and_nothing_else() {
    let world = World::new(json!({"retention": {"timeZone": "Mars/Olympus"}}));
    world.settle().await;
    let server = world.server.lock();
    assert_eq!((server.objects.len(), server.writes), (1, 1));
    assert!(
        server.objects[RESOURCE]["status"]["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .contains("Mars/Olympus")
    );
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_told_and_changes_nothing() {
    let world = World::new(json!({}));
    world.settle().await;
    let objects = |world: &World| {
        let (mut made, writes) = world.seen();
        made.remove(RESOURCE);
        (made, writes)
    };
    let (made, writes) = objects(&world);
    world.edit(|spec| spec["acl"] = json!({"secretName": "team"}));
    world.pass().await.unwrap();
    let message = |world: &World| {
        world.server.lock().objects[RESOURCE]["status"]["conditions"][0]["message"].to_string()
    };
    assert!(
        message(&world).contains("spec.acl.secretName names Secret team"),
        "{}",
        message(&world)
    );
    // One write: the status.
    assert!(
        objects(&world) == (made, writes + 1),
        "more than the status was written"
    );
    let accounts = |text: &str| {
        use k8s_openapi::ByteString;
        let data = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "team", "uid": "s"}, "data": {"plain_acl.yml": data}});
        let path = "/api/v1/namespaces/mq/secrets/team".to_owned();
        world.server.lock().objects.insert(path, secret);
    };
    accounts("accounts: none");
    world.pass().await.unwrap();
    assert!(
        message(&world).contains("has no list accounts"),
        "{}",
        message(&world)
    );
    accounts("accounts:\n- accessKey: team\n  secretKey: 12345678\n");
    world.settle().await;
    let server = world.server.lock();
    assert!(
        server
            .objects
            .contains_key("/api/v1/namespaces/mq/secrets/demo-account")
    );
    let map = server.objects["/api/v1/namespaces/mq/configmaps/demo-0"].to_string();
    assert!(map.contains("aclEnable=true"), "{map}");
}

#[tokio::test]
async fn a_paused_cluster_gets_a_status_and_no_secret() {
    let world = World::new(json!({"paused": true}));
    world.settle().await;
    {
        let server = world.server.lock();
        assert_eq!((server.objects.len(), server.writes), (1, 1));
    }
    // Nor does it matter what others made of the Secrets that it names.
    world.edit(|spec| spec["acl"] = json!({"secretName": "team"}));
    world.settle().await;
    let server = world.server.lock();
    assert_eq!(server.objects.len(), 1);
    let ready = &server.objects[RESOURCE]["status"]["conditions"][0];
    assert!(!ready.to_string().contains("Secret"), "{ready}");
}
