//! The broker's pages: probes, metrics, `GET /status`, `PUT /writes`.
//!
//! They are served from before the store is opened until after it is closed. A broker that recovers is alive
//! and not ready. Readiness latches: once ready, no outage of name servers, replicas or clients makes the broker
//! unready, only its own stop. A slave is ready once it has had all that its master had.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ferromq_daemon::http::{App, HeaderMap, Method, Response, StatusCode};
use ferromq_daemon::metrics::{self as registry, Registry};
use ferromq_remoting::ServerFigures;
use ferromq_store::{BrokerRole, Figures, Progress, Stage};
use serde::{Deserialize, Serialize};

use crate::clock::now_ms;
use crate::core::Core;
use crate::expiring::Expiring;
use crate::metrics::{self, Kind, page};
use crate::overload::{MAX_LEASE, WriteGate};

/// The most rows about expiring messages in the status.
const EXPIRING_ROWS: usize = 100;

/// The state that the pages show.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) progress: Progress,
    pub(crate) gate: Arc<WriteGate>,
    pub(crate) identity: Labels,
    core: OnceLock<Arc<Core>>,
    serving: AtomicBool,
    stopping: AtomicBool,
    ready: AtomicBool,
    servers: OnceLock<Registry>,
}

/// What is known of the broker before its store is open.
#[derive(Debug)]
pub(crate) struct Labels {
    pub(crate) cluster: String,
    pub(crate) broker: String,
    pub(crate) id: i64,
    pub(crate) role: BrokerRole,
    /// File with the token for PUT /writes.
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    version: &'a str,
    stage: &'a str,
    recovery: Recovery,
    role: &'a str,
    cluster_name: &'a str,
    broker_name: &'a str,
    broker_id: i64,
    log: LogRange,
    dispatch_behind_bytes: i64,
    replicas: Vec<ReplicaRow>,
    /// Only a slave follows.
    following: Option<FollowingRow>,
    registered_at: Vec<String>,
    writes_stopped: WritesStopped,
    last_stop_clean: bool,
    /// Always there; empty when nothing is about to be lost.
    expiring_unconsumed: Vec<Expiring>,
    /// Once the store is open.
    disk: Option<DiskRow>,
}

/// What decides whether the disk holds messages as long as it should.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DiskRow {
    /// Used part of the disk, or of `storeCapacityBytes`, that is fuller: of the log or of the queues; none if unknown.
    used_ratio: Option<f64>,
    /// `diskMaxUsedSpaceRatio`.
    max_used_ratio: f64,
    /// `fileReservedTime`.
    reserved_hours: u64,
    /// Age of the oldest message; 0 without one.
    oldest_age_seconds: i64,
    /// Bytes of the log.
    log_bytes: i64,
    /// `storeCapacityBytes`; 0: the disk's own size counts.
    capacity_bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaRow {
    address: String,
    broker_id: Option<u32>,
    ack_offset: i64,
    behind_bytes: i64,
    in_sync: bool,
    silent_millis: u64,
    connected_millis: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FollowingRow {
    state: &'static str,
    master: Option<String>,
    connected: bool,
    caught_up: bool,
    caught_up_once: bool,
    master_end: Option<i64>,
    behind_bytes: Option<i64>,
    silent_millis: Option<u64>,
    error: Option<String>,
    tables_copied_millis: Option<u64>,
}

#[derive(Serialize)]
struct Recovery {
    abnormal: bool,
    done: u64,
    total: u64,
}

#[derive(Serialize)]
struct LogRange {
    min: i64,
    max: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WritesStopped {
    active: bool,
    lease_seconds_left: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WritesOrder {
    stop: bool,
    lease_seconds: Option<u64>,
}

impl Pages {
    pub(crate) fn new(progress: Progress, gate: Arc<WriteGate>, identity: Labels) -> Self {
        Self {
            progress,
            gate,
            identity,
            core: OnceLock::new(),
            serving: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            servers: OnceLock::new(),
        }
    }

    /// The servers run: their figures belong on the metrics page.
    pub(crate) fn watch(&self, figures: ServerFigures) {
        let mut registry = registry::registry();
        registry.register_collector(Box::new(figures));
        if self.servers.set(registry).is_err() {
            tracing::debug!("the figures of the servers are on the metrics page already");
        }
    }

    /// The store is open and clients are served.
    pub(crate) fn serve(&self, core: Arc<Core>) {
        if self.core.set(core).is_ok() {
            self.serving.store(true, Ordering::Release);
        }
    }

    /// The stop has begun.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    fn stage(&self) -> Stage {
        if self.stopping.load(Ordering::Acquire) {
            return Stage::Stopping;
        }
        match self.progress.stage() {
            // The store runs before the broker does.
            Stage::Running if !self.serving.load(Ordering::Acquire) => Stage::Starting,
            stage => stage,
        }
    }

    fn status(&self) -> Vec<u8> {
        let core = self.core.get();
        let figures = core.map(|core| core.store.figures());
        let left = self.gate.left(Instant::now());
        let status = Status {
            version: env!("CARGO_PKG_VERSION"),
            stage: self.stage().name(),
            recovery: Recovery {
                abnormal: self.progress.abnormal(),
                done: self.progress.done(),
                total: self.progress.total(),
            },
            role: match self.identity.role {
                BrokerRole::AsyncMaster => "ASYNC_MASTER",
                BrokerRole::SyncMaster => "SYNC_MASTER",
                BrokerRole::Slave => "SLAVE",
            },
            cluster_name: &self.identity.cluster,
            broker_name: &self.identity.broker,
            broker_id: self.identity.id,
            log: LogRange {
                min: figures.as_ref().map_or(0, |f| f.log_min),
                max: figures.as_ref().map_or(0, |f| f.log_max),
            },
            dispatch_behind_bytes: figures.as_ref().map_or(0, |f| f.dispatch_behind),
            replicas: core.map(|core| replicas(core)).unwrap_or_default(),
            following: core.and_then(|core| following(core)),
            registered_at: core
                .map(|core| core.registrar.registered_at())
                .unwrap_or_default(),
            writes_stopped: WritesStopped {
                active: left.is_some(),
                lease_seconds_left: left.map_or(0, |left| left.as_secs_f64().ceil() as u64),
            },
            last_stop_clean: figures
                .as_ref()
                .map_or_else(|| !self.progress.abnormal(), |f| f.last_stop_clean),
            expiring_unconsumed: core
                .map(|core| core.expiring.read().iter().take(EXPIRING_ROWS).cloned().collect())
                .unwrap_or_default(),
            disk: core
                .zip(figures.as_ref())
                .map(|(core, figures)| disk(core, figures)),
        };
        serde_json::to_vec(&status).unwrap_or_default()
    }

    fn writes(&self, headers: &HeaderMap, body: &[u8]) -> Response {
        if let Err(refusal) = self.authorized(headers) {
            return refusal;
        }
        let order: WritesOrder = match serde_json::from_slice(body) {
            Ok(order) => order,
            Err(error) => {
                let text = format!(
                    "the body is not {{\"stop\":true,\"leaseSeconds\":60}} or {{\"stop\":false}}: {error}\n"
                );
                return Response::text(StatusCode::BAD_REQUEST, text);
            }
        };
        if !order.stop {
            self.gate.resume();
            tracing::info!("writes are taken again: the stop was ended over HTTP");
            return Response::json(self.status());
        }
        let Some(lease) = order
            .lease_seconds
            .filter(|s| (1..=MAX_LEASE.as_secs()).contains(s))
        else {
            return Response::text(
                StatusCode::BAD_REQUEST,
                format!(
                    "leaseSeconds must be a number from 1 to {}\n",
                    MAX_LEASE.as_secs()
                ),
            );
        };
        self.gate.stop(Instant::now(), Duration::from_secs(lease));
        tracing::info!(
            lease_seconds = lease,
            "writes are stopped over HTTP until the lease lapses"
        );
        Response::json(self.status())
    }

    /// The token is read each time, so that a changed one holds at once.
    fn authorized(&self, headers: &HeaderMap) -> Result<(), Response> {
        let refuse = |status, text: &str| Err(Response::text(status, format!("{text}\n")));
        let Some(file) = &self.identity.token_file else {
            return refuse(
                StatusCode::FORBIDDEN,
                "nobody may do this: httpTokenFile is not set",
            );
        };
        let token = match std::fs::read_to_string(file) {
            Ok(token) if !token.trim().is_empty() => token,
            Ok(_) => {
                return refuse(
                    StatusCode::FORBIDDEN,
                    "nobody may do this: the file of httpTokenFile is empty",
                );
            }
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "cannot read the file of httpTokenFile");
                return refuse(
                    StatusCode::FORBIDDEN,
                    "nobody may do this: the file of httpTokenFile cannot be read",
                );
            }
        };
        let given = headers
            .get("authorization")
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.strip_prefix("Bearer "));
        match given {
            Some(given) if same(given.trim().as_bytes(), token.trim().as_bytes()) => Ok(()),
            Some(_) => refuse(StatusCode::FORBIDDEN, "the token is wrong"),
            None => refuse(
                StatusCode::UNAUTHORIZED,
                "send the header Authorization: Bearer TOKEN",
            ),
        }
    }
}

/// Compares in a time that does not tell where the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}

impl App for Pages {
    fn ready(&self) -> Result<(), String> {
        let stage = self.stage();
        if stage == Stage::Stopping {
            return Err("stopping".to_owned());
        }
        if self.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        if stage != Stage::Running {
            let (done, total) = (self.progress.done(), self.progress.total());
            return Err(format!("{}: {done} of {total} bytes", stage.name()));
        }
        let slave_waits = |core: &Core| core.following.as_ref().is_some_and(|f| !f.caught_up_once());
        match self.core.get() {
            Some(core) if slave_waits(core) => {
                Err("running, but not caught up with the master yet".to_owned())
            }
            Some(core) if !core.registrar.has_servers() || core.registrar.ever_registered() => {
                self.ready.store(true, Ordering::Release);
                Ok(())
            }
            _ => Err("running, but registered at no name server yet".to_owned()),
        }
    }

    fn metrics(&self) -> String {
        let ready = f64::from(u8::from(self.ready().is_ok()));
        let mut page = page(&[("ready", "Whether clients are served.", Kind::Gauge, ready)]);
        if let Some(core) = self.core.get() {
            page.push_str(&metrics::text(core));
            page.push_str(&replication_figures(core));
        }
        match self.servers.get() {
            // It ends the page.
            Some(servers) => page.push_str(&registry::page(servers)),
            None => page.push_str("# EOF\n"),
        }
        page
    }

    fn route(&self, method: &Method, path: &str, headers: &HeaderMap, body: &[u8]) -> Option<Response> {
        match (path, method) {
            ("/status", &Method::GET) => Some(Response::json(self.status())),
            ("/writes", &Method::PUT) => Some(self.writes(headers, body)),
            ("/status", _) => Some(Response::text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n")),
            ("/writes", _) => Some(Response::text(StatusCode::METHOD_NOT_ALLOWED, "only PUT\n")),
            _ => None,
        }
    }
}

fn disk(core: &Core, figures: &Figures) -> DiskRow {
    let settings = core.settings();
    let used = figures.log_disk_ratio.max(figures.queue_disk_ratio);
    let oldest = figures.earliest_store_time;
    DiskRow {
        used_ratio: (used >= 0.0).then_some((used * 1_000.0).round() / 1_000.0),
        max_used_ratio: f64::from(settings.disk_max_used_space_ratio) / 100.0,
        reserved_hours: settings.file_reserved_time,
        oldest_age_seconds: if oldest < 0 {
            0
        } else {
            now_ms().saturating_sub(oldest).max(0) / 1_000
        },
        log_bytes: figures.log_max - figures.log_min,
        capacity_bytes: settings.store_capacity_bytes,
    }
}

fn replicas(core: &Core) -> Vec<ReplicaRow> {
    let rows = core.store.replicas().into_iter().map(|r| ReplicaRow {
        address: r.address,
        broker_id: r.broker_id,
        ack_offset: r.ack_offset,
        behind_bytes: r.behind_bytes,
        in_sync: r.in_sync,
        silent_millis: millis(r.silent),
        connected_millis: millis(r.connected),
    });
    rows.collect()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn following(core: &Core) -> Option<FollowingRow> {
    let figures = core.following.as_ref()?.figures(core.store.figures().log_max);
    Some(FollowingRow {
        state: figures.state.name(),
        master: figures.master,
        connected: figures.connected,
        caught_up: figures.caught_up,
        caught_up_once: figures.caught_up_once,
        master_end: figures.master_end,
        behind_bytes: figures.behind_bytes,
        silent_millis: figures.silent.map(millis),
        error: figures.error,
        tables_copied_millis: core.tables_copied.lock().map(|at| millis(at.elapsed())),
    })
}

/// The figures of replication, which have labels or depend on the role.
fn replication_figures(core: &Core) -> String {
    use Kind::Gauge;
    use std::fmt::Write as _;
    if let Some(row) = following(core) {
        let seconds = |millis: Option<u64>| millis.map_or(-1.0, |m| m as f64 / 1_000.0);
        return page(&[
            (
                "master_connected",
                "Whether the master is connected.",
                Gauge,
                f64::from(u8::from(row.connected)),
            ),
            (
                "master_behind_bytes",
                "Bytes of the master's log that are not here yet, as far as is known; -1 before the master said anything.",
                Gauge,
                row.behind_bytes.map_or(-1.0, |b| b as f64),
            ),
            (
                "master_silent_seconds",
                "Time since the master's last word; -1 before the first.",
                Gauge,
                seconds(row.silent_millis),
            ),
            (
                "master_tables_age_seconds",
                "Time since all of the master's tables were copied; -1 before.",
                Gauge,
                seconds(row.tables_copied_millis),
            ),
        ]);
    }
    let rows = replicas(core);
    let in_sync = rows.iter().filter(|r| r.in_sync).count();
    let mut text = page(&[
        ("replicas", "Connected replicas.", Gauge, rows.len() as f64),
        (
            "replicas_in_sync",
            "Connected replicas that sends may wait for.",
            Gauge,
            in_sync as f64,
        ),
    ]);
    text.push_str(
        "# TYPE ferromq_broker_replica_behind_bytes gauge\n\
         # HELP ferromq_broker_replica_behind_bytes Bytes of the log that a replica lacks.\n",
    );
    for row in rows {
        let id = row.broker_id.map_or_else(String::new, |id| id.to_string());
        // Writing to a text can't fail.
        let _infallible = writeln!(
            text,
            "ferromq_broker_replica_behind_bytes{{replica=\"{}\",broker_id=\"{id}\"}} {}",
            row.address, row.behind_bytes
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(token_file: Option<PathBuf>) -> Pages {
        Pages::new(
            Progress::new(),
            Arc::new(WriteGate::new(Instant::now())),
            Labels {
                cluster: "C".into(),
                broker: "B".into(),
                id: 0,
                role: BrokerRole::AsyncMaster,
                token_file,
            },
        )
    }

    fn put(pages: &Pages, token: Option<&str>, body: &str) -> Response {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        pages
            .route(&Method::PUT, "/writes", &headers, body.as_bytes())
            .unwrap()
    }

    #[test]
    fn the_status_is_there_before_the_store() {
        let pages = pages(None);
        let answer = pages
            .route(&Method::GET, "/status", &HeaderMap::new(), b"")
            .unwrap();
        let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(status["stage"], "loading");
        assert_eq!(status["role"], "ASYNC_MASTER");
        assert_eq!(
            status["recovery"],
            serde_json::json!({"abnormal": false, "done": 0, "total": 0})
        );
        assert_eq!(
            status["writesStopped"],
            serde_json::json!({"active": false, "leaseSecondsLeft": 0})
        );
        assert!(pages.live().is_ok());
        assert!(pages.ready().unwrap_err().contains("loading"));
    }

    #[test]
    fn only_the_token_stops_writes_and_only_for_a_lease() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "secret\n").unwrap();
        let pages = pages(Some(file));
        let stop = r#"{"stop":true,"leaseSeconds":60}"#;
        assert_eq!(put(&pages, None, stop).status, StatusCode::UNAUTHORIZED);
        assert_eq!(put(&pages, Some("wrong"), stop).status, StatusCode::FORBIDDEN);
        assert!(pages.gate.left(Instant::now()).is_none());
        for bad in [
            "",
            "{}",
            r#"{"stop":true}"#,
            r#"{"stop":true,"leaseSeconds":0}"#,
            r#"{"stop":true,"leaseSeconds":3601}"#,
        ] {
            assert_eq!(
                put(&pages, Some("secret"), bad).status,
                StatusCode::BAD_REQUEST,
                "{bad}"
            );
        }
        let answer = put(&pages, Some("secret"), stop);
        assert_eq!(answer.status, StatusCode::OK);
        let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            status["writesStopped"],
            serde_json::json!({"active": true, "leaseSecondsLeft": 60})
        );
        assert_eq!(
            put(&pages, Some("secret"), r#"{"stop":false}"#).status,
            StatusCode::OK
        );
        assert!(pages.gate.left(Instant::now()).is_none());
    }

    #[test]
    fn without_a_token_file_nobody_may() {
        let pages = pages(None);
        assert_eq!(
            put(&pages, Some(""), r#"{"stop":true,"leaseSeconds":60}"#).status,
            StatusCode::FORBIDDEN
        );
    }
}
