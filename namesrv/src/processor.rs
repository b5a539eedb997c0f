//! The request codes of the name server.
//!
//! Route look-ups and registrations run on the connection's task, in order per connection; what touches the
//! disk runs on a lane of one thread. An unknown code is answered 3 (Java's name server stays silent and lets
//! the client time out).

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferromq_daemon::logging::{self, Format};
use ferromq_daemon::{Properties, durable};
use ferromq_protocol::body::{DataVersion, RegisterBrokerBody, TopicConfigTable};
use ferromq_protocol::code::{request as code, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::crc::crc31;
use ferromq_protocol::fastjson;
use ferromq_protocol::header;
use ferromq_remoting::{Conn, ConnEvents, Dispatch, Handler, Lane, Outcome, RequestContext, Run};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use crate::config::NamesrvSettings;
use crate::kv_config::{KvConfig, ORDER_TOPIC_CONFIG};
use crate::other_environment::OtherEnvironment;
use crate::route_table::{Registered, Registration, RouteTable, UnitTopics};
use crate::server::StartError;

/// From this version on (3.0.11) the body of a registration is a whole one; before it is the topic table.
const WHOLE_BODY_SINCE: i32 = 37;
/// Bodies from this size on are read with other tasks moved out of the way.
const HEAVY_BODY: usize = 128 * 1024;

/// All state of a name server.
pub(crate) struct Core {
    pub(crate) table: RwLock<RouteTable>,
    pub(crate) kv: KvConfig,
    pub(crate) settings: RwLock<NamesrvSettings>,
    pub(crate) started: Instant,
    /// Where routes are asked for that are not known here.
    other: Option<OtherEnvironment>,
    /// Connections that brokers registered over.
    channels: Mutex<HashMap<u64, Conn>>,
    log: Option<logging::Handle>,
}

/// A request that is answered with an error.
struct Refused {
    code: i32,
    remark: String,
}

impl<E: Display> From<E> for Refused {
    fn from(error: E) -> Self {
        Self {
            code: response::SYSTEM_ERROR,
            remark: error.to_string(),
        }
    }
}

fn refuse<T>(code: i32, remark: impl Into<String>) -> Result<T, Refused> {
    Err(Refused {
        code,
        remark: remark.into(),
    })
}

/// Codes that run on the connection's task.
const INLINE: [i32; 16] = [
    code::GET_KV_CONFIG,
    code::REGISTER_BROKER,
    code::UNREGISTER_BROKER,
    code::GET_ROUTEINFO_BY_TOPIC,
    code::GET_BROKER_CLUSTER_INFO,
    code::WIPE_WRITE_PERM_OF_BROKER,
    code::ADD_WRITE_PERM_OF_BROKER,
    code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    code::DELETE_TOPIC_IN_NAMESRV,
    code::GET_KVLIST_BY_NAMESPACE,
    code::GET_TOPICS_BY_CLUSTER,
    code::GET_SYSTEM_TOPIC_LIST_FROM_NS,
    code::GET_UNIT_TOPIC_LIST,
    code::GET_HAS_UNIT_SUB_TOPIC_LIST,
    code::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    code::QUERY_DATA_VERSION,
];

/// Codes that may wait for the disk.
const ON_DISK: [i32; 4] = [
    code::PUT_KV_CONFIG,
    code::DELETE_KV_CONFIG,
    code::UPDATE_NAMESRV_CONFIG,
    code::GET_NAMESRV_CONFIG,
];

/// The dispatch table of a name server.
pub(crate) fn dispatch(core: &Arc<Core>) -> Arc<Dispatch> {
    let mut table = Dispatch::builder();
    let disk = table.lane(Lane {
        name: "namesrv-disk",
        workers: 1,
        queue: 1000,
        max_wait: Duration::from_secs(10),
    });
    let handler: Arc<dyn Handler> = Arc::new(Requests(Arc::clone(core)));
    for code in INLINE {
        table.on(code, Run::Inline, Arc::clone(&handler));
    }
    for code in ON_DISK {
        table.on(code, Run::On(disk), Arc::clone(&handler));
    }
    table.build()
}

struct Requests(Arc<Core>);

impl Handler for Requests {
    fn handle(&self, cx: &RequestContext, request: Command) -> Outcome {
        let refused = match self.0.answer(cx, &request) {
            Ok(answer) => return answer.into(),
            Err(refused) => refused,
        };
        let answer = request.reply(refused.code).with_remark(refused.remark);
        match &self.0.other {
            Some(other) if no_route(&request, &answer) && OtherEnvironment::takes(&request) => {
                let topic = request.ext.get("topic").unwrap_or_default().to_owned();
                let asked = other.clone().route(request, topic, answer);
                Outcome::Later(Box::pin(async move { asked.await.into() }))
            }
            _ => answer.into(),
        }
    }
}

fn no_route(request: &Command, answer: &Command) -> bool {
    request.code == code::GET_ROUTEINFO_BY_TOPIC && answer.code == response::TOPIC_NOT_EXIST
}

/// Forgets brokers whose connection closed, at once.
pub(crate) struct Channels(pub(crate) Arc<Core>);

impl ConnEvents for Channels {
    fn closed(&self, conn: &Conn) {
        if self.0.channels.lock().remove(&conn.id()).is_none() {
            return;
        }
        for addr in self.0.table.write().channel_closed(conn.id()) {
            tracing::warn!(broker = %addr, peer = %conn.peer(), "a broker's connection closed; it was taken out of the routes");
        }
    }
}

impl Core {
    pub(crate) fn new(settings: NamesrvSettings, log: Option<logging::Handle>) -> Result<Self, StartError> {
        let kv = KvConfig::load(PathBuf::from(&settings.kv_config_path)).map_err(StartError::KvConfig)?;
        let other = OtherEnvironment::new(&settings).map_err(StartError::OtherEnvironment)?;
        Ok(Self {
            other,
            table: RwLock::default(),
            kv,
            settings: RwLock::new(settings),
            started: Instant::now(),
            channels: Mutex::default(),
            log,
        })
    }

    /// The clock of the route table.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Takes out brokers that gave no sign of life, and closes their connections.
    pub(crate) fn expire(&self) {
        let gone = self.table.write().expire(self.now());
        for (addr, channel) in gone {
            tracing::warn!(broker = %addr, "a broker gave no sign of life for too long; it was taken out of the routes");
            if let Some(conn) = self.channels.lock().get(&channel) {
                conn.close("its broker gave no sign of life");
            }
        }
    }

    fn answer(&self, cx: &RequestContext, request: &Command) -> Result<Command, Refused> {
        let ok = || request.reply(response::SUCCESS);
        let json = |body: Vec<u8>| Ok(ok().with_body(body));
        match request.code {
            code::REGISTER_BROKER => self.register(cx, request),
            code::UNREGISTER_BROKER => {
                let h: header::BrokerIdentity<'_> = request.header()?;
                self.table
                    .write()
                    .unregister(h.broker_name, h.broker_addr, h.broker_id);
                tracing::info!(
                    broker = h.broker_name,
                    id = h.broker_id,
                    addr = h.broker_addr,
                    "a broker unregistered"
                );
                Ok(ok())
            }
            code::QUERY_DATA_VERSION => self.query_data_version(request),
            code::GET_ROUTEINFO_BY_TOPIC => self.route(request),
            code::GET_BROKER_CLUSTER_INFO => json(fastjson::to_vec(&self.table.read().cluster_info())),
            code::WIPE_WRITE_PERM_OF_BROKER => {
                let h: header::BrokerNameHeader<'_> = request.header()?;
                let wipe_topic_count = self.table.write().wipe_write_perm(h.broker_name);
                tracing::info!(broker = h.broker_name, topics = wipe_topic_count, peer = %cx.conn.peer(), "took the write permission");
                Ok(ok().with_header(&header::WipeWritePermResponse { wipe_topic_count }))
            }
            code::ADD_WRITE_PERM_OF_BROKER => {
                let h: header::BrokerNameHeader<'_> = request.header()?;
                let add_topic_count = self.table.write().add_write_perm(h.broker_name);
                tracing::info!(broker = h.broker_name, topics = add_topic_count, peer = %cx.conn.peer(), "gave the write permission");
                Ok(ok().with_header(&header::AddWritePermResponse { add_topic_count }))
            }
            code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => {
                json(fastjson::to_vec(&self.table.read().all_topics()))
            }
            code::DELETE_TOPIC_IN_NAMESRV => {
                let h: header::DeleteTopicInNamesrv<'_> = request.header()?;
                let cluster = h.cluster_name.filter(|c| !c.is_empty());
                self.table.write().delete_topic(h.topic, cluster);
                tracing::info!(topic = h.topic, cluster, peer = %cx.conn.peer(), "deleted a topic");
                Ok(ok())
            }
            code::GET_TOPICS_BY_CLUSTER => {
                let h: header::ClusterHeader<'_> = request.header()?;
                json(fastjson::to_vec(&self.table.read().topics_of_cluster(h.cluster)))
            }
            code::GET_SYSTEM_TOPIC_LIST_FROM_NS => json(fastjson::to_vec(&self.table.read().system_topics())),
            code::GET_UNIT_TOPIC_LIST => json(self.unit_topics(UnitTopics::Unit)),
            code::GET_HAS_UNIT_SUB_TOPIC_LIST => json(self.unit_topics(UnitTopics::UnitSub)),
            code::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => json(self.unit_topics(UnitTopics::UnitSubNotUnit)),
            code::PUT_KV_CONFIG => {
                let h: header::PutKvConfig<'_> = request.header()?;
                self.kv.put(h.namespace, h.key, h.value)?;
                self.kv_changed(h.namespace, h.key);
                Ok(ok())
            }
            code::GET_KV_CONFIG => {
                let h: header::KvKey<'_> = request.header()?;
                let Some(value) = self.kv.get(h.namespace, h.key) else {
                    let remark = format!("No config item, Namespace: {} Key: {}", h.namespace, h.key);
                    return refuse(response::QUERY_NOT_FOUND, remark);
                };
                Ok(ok().with_header(&header::GetKvConfigResponse { value: Some(&value) }))
            }
            code::DELETE_KV_CONFIG => {
                let h: header::KvKey<'_> = request.header()?;
                self.kv.delete(h.namespace, h.key)?;
                self.kv_changed(h.namespace, h.key);
                Ok(ok())
            }
            code::GET_KVLIST_BY_NAMESPACE => {
                let h: header::KvNamespace<'_> = request.header()?;
                let Some(table) = self.kv.namespace(h.namespace) else {
                    return refuse(
                        response::QUERY_NOT_FOUND,
                        format!("No config item, Namespace: {}", h.namespace),
                    );
                };
                json(fastjson::to_vec(&table))
            }
            code::GET_NAMESRV_CONFIG => {
                json(self.settings.read().to_properties().to_plain_text().into_bytes())
            }
            code::UPDATE_NAMESRV_CONFIG => self.update_config(cx, request),
            other => refuse(
                response::REQUEST_CODE_NOT_SUPPORTED,
                format!(" request type {other} not supported"),
            ),
        }
    }

    fn unit_topics(&self, which: UnitTopics) -> Vec<u8> {
        fastjson::to_vec(&self.table.read().unit_topics(which))
    }

    fn register(&self, cx: &RequestContext, request: &Command) -> Result<Command, Refused> {
        let h: header::RegisterBroker<'_> = request.header()?;
        for (field, value) in [
            ("brokerName", h.broker_name),
            ("brokerAddr", h.broker_addr),
            ("clusterName", h.cluster_name),
        ] {
            if value.trim().is_empty() {
                return refuse(
                    response::SYSTEM_ERROR,
                    format!("{field} is empty: a broker cannot register without it"),
                );
            }
        }
        if h.body_crc32 != 0 && crc31(&request.body) != h.body_crc32 {
            return refuse(response::SYSTEM_ERROR, "crc32 not match");
        }
        let who = Registration {
            cluster: h.cluster_name,
            broker_name: h.broker_name,
            broker_addr: h.broker_addr,
            broker_id: h.broker_id,
            ha_addr: h.ha_server_addr,
            channel: cx.conn.id(),
            now: self.now(),
        };
        self.channels.lock().entry(cx.conn.id()).or_insert_with(|| {
            tracing::info!(broker = h.broker_name, id = h.broker_id, addr = h.broker_addr, cluster = h.cluster_name, peer = %cx.conn.peer(), "a broker registered");
            cx.conn.clone()
        });
        let registered = out_of_the_way(request.body.len(), || self.take(&who, request, h.compressed))?;
        let answer = request
            .reply(response::SUCCESS)
            .with_header(&header::RegisterBrokerResponse {
                ha_server_addr: registered.ha_addr.as_deref(),
                master_addr: registered.master_addr.as_deref(),
            });
        Ok(match self.kv.namespace(ORDER_TOPIC_CONFIG) {
            Some(orders) => answer.with_body(fastjson::to_vec(&orders)),
            None => answer,
        })
    }

    /// Reads a registration's body, unless it is what the broker told before, and takes it.
    fn take(
        &self,
        who: &Registration<'_>,
        request: &Command,
        compressed: bool,
    ) -> Result<Registered, Refused> {
        let digest = {
            let table = self.table.read();
            let digest = table.digest(
                who,
                (compressed, request.version >= WHOLE_BODY_SINCE),
                &request.body,
            );
            if let Some(registered) = table.register_again(who, digest) {
                return Ok(registered);
            }
            digest
        };
        let body = read_body(request, compressed)?;
        Ok(self.table.write().register_told(who, &body, digest))
    }

    fn query_data_version(&self, request: &Command) -> Result<Command, Refused> {
        let h: header::BrokerIdentity<'_> = request.header()?;
        let asked: DataVersion = if request.body.is_empty() {
            DataVersion::default()
        } else {
            fastjson::from_slice(&request.body)?
        };
        let (changed, known) = self.table.read().query_data_version(
            h.broker_name,
            h.broker_addr,
            h.broker_id,
            asked,
            self.now(),
        );
        let answer = request
            .reply(response::SUCCESS)
            .with_header(&header::QueryDataVersionResponse { changed });
        Ok(match known {
            Some(version) => answer.with_body(fastjson::to_vec(&version)),
            None => answer,
        })
    }

    fn route(&self, request: &Command) -> Result<Command, Refused> {
        let h: header::GetRouteInfo<'_> = request.header()?;
        let order_conf = || {
            // Java's name server of a test cluster sends it whatever the setting says.
            let wanted = self.settings.read().order_message_enable || self.other.is_some();
            wanted.then(|| self.kv.get(ORDER_TOPIC_CONFIG, h.topic)).flatten()
        };
        let route = self.table.read().route(h.topic, order_conf);
        let Some(route) = route else {
            let remark = format!(
                "No topic route info in name server for the topic: {}\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
                h.topic
            );
            return refuse(response::TOPIC_NOT_EXIST, remark);
        };
        Ok(request.reply(response::SUCCESS).with_body(route))
    }

    fn kv_changed(&self, namespace: &str, key: &str) {
        tracing::info!(namespace, key, "key-value configuration changed");
        if namespace == ORDER_TOPIC_CONFIG {
            self.table.write().forget_route(key);
        }
    }

    /// 318: known keys change, unknown ones are skipped; ports and the like from the next start on.
    fn update_config(&self, cx: &RequestContext, request: &Command) -> Result<Command, Refused> {
        let text = std::str::from_utf8(&request.body).map_err(|_| "the body is not UTF-8 text")?;
        let given = Properties::parse(text)?;
        let mut settings = self.settings.write();
        if let Some((key, _)) = given.iter().find(|(key, _)| settings.is_black_listed(key)) {
            tracing::warn!(key, peer = %cx.conn.peer(), "refused to change a key of the black list");
            return refuse(response::NO_PERMISSION, "Can not update config in black list.");
        }
        let mut next = settings.clone();
        next.apply(&given)?;
        let format = Format::from_name(&next.log_format).ok_or_else(|| {
            format!(
                "logFormat={} is not possible: it must be text or json",
                next.log_format
            )
        })?;
        if let Some(log) = &self.log {
            log.set_level(&next.log_level)?;
            log.set_format(format);
        }
        let reroute = next.order_message_enable != settings.order_message_enable;
        let saved = durable::save(
            &PathBuf::from(&next.config_store_path),
            next.to_properties().to_text().as_bytes(),
        );
        *settings = next;
        drop(settings);
        if reroute {
            self.table.write().forget_all_routes();
        }
        tracing::info!(peer = %cx.conn.peer(), keys = given.len(), "settings changed");
        let answer = request.reply(response::SUCCESS);
        Ok(match saved {
            Ok(()) => answer,
            // A settings file from a ConfigMap cannot be written: the change holds until the next start.
            Err(error) => {
                tracing::warn!(%error, "changed settings hold until the next start only");
                answer.with_remark(format!("in effect until the next start only: {error}"))
            }
        })
    }
}

fn read_body(request: &Command, compressed: bool) -> Result<RegisterBrokerBody, Refused> {
    if request.version >= WHOLE_BODY_SINCE {
        return Ok(RegisterBrokerBody::decode(&request.body, compressed)?);
    }
    let topic_config_table: TopicConfigTable = if request.body.is_empty() {
        TopicConfigTable::default()
    } else {
        fastjson::from_slice(&request.body)?
    };
    Ok(RegisterBrokerBody {
        filter_server_list: None,
        topic_config_table,
    })
}

/// Runs `work`; when it is heavy and the runtime has other threads, other tasks of this one move there first.
fn out_of_the_way<T>(size: usize, work: impl FnOnce() -> T) -> T {
    let many = || Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    if size >= HEAVY_BODY && many() {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
