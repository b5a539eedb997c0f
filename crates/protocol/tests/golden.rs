//! Reads what Java's own 4.9.7 classes wrote (`e2e/java/golden`, made by `e2e/java/run.sh golden`) and compares every
//! value; then writes it again and wants the same values, and where the form is fixed the same bytes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};
use ferromq_protocol::body::*;
use ferromq_protocol::header::*;
use ferromq_protocol::record::{self, Check, Entry};
use ferromq_protocol::{
    Command, DecodeHeader, EncodeHeader, Ext, SerializeType, batch, code, compress, crc, fastjson, frame,
    java_hash, message_id, properties, sysflag,
};
use serde_json::{Value, json};

/// The lines of a golden file.
fn lines(file: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/java/golden/").to_owned() + file;
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {path}: {e}"));
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{path}: {e}: {l}")))
        .collect();
    assert!(!lines.is_empty(), "{path} has lines");
    lines
}

fn from_hex(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex digits").as_bytes();
    hex.chunks(2)
        .map(|pair| {
            u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("two hex digits")
        })
        .collect()
}

fn bytes(line: &Value) -> Vec<u8> {
    from_hex(&line["hex"])
}

fn decode_frame(bytes: &[u8]) -> Command {
    let mut buf = BytesMut::from(bytes);
    let command = frame::decode(&mut buf, frame::MAX_FRAME)
        .expect("a good frame")
        .expect("a whole frame");
    assert!(buf.is_empty(), "the frame is used up");
    command
}

fn pairs(ext: &Ext) -> BTreeMap<String, String> {
    ext.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn expected_ext(line: &Value) -> BTreeMap<String, String> {
    let map = line["ext"].as_object().cloned().unwrap_or_default();
    map.into_iter()
        .map(|(k, v)| (k, v.as_str().expect("text").to_owned()))
        .collect()
}

#[test]
fn frames_are_read_as_java_reads_them() {
    for line in lines("frames.jsonl") {
        let name = &line["name"];
        let command = decode_frame(&bytes(&line));
        assert_eq!(json!(command.code), line["code"], "code of {name}");
        assert_eq!(
            json!(command.language.name()),
            line["language"],
            "language of {name}"
        );
        assert_eq!(json!(command.version), line["version"], "version of {name}");
        assert_eq!(json!(command.opaque), line["opaque"], "opaque of {name}");
        assert_eq!(json!(command.flag), line["flag"], "flag of {name}");
        assert_eq!(json!(command.remark), line["remark"], "remark of {name}");
        let form = match command.serialize {
            SerializeType::Json => "JSON",
            SerializeType::Binary => "ROCKETMQ",
        };
        assert_eq!(json!(form), line["serialize"], "form of {name}");
        assert_eq!(pairs(&command.ext), expected_ext(&line), "arguments of {name}");
        assert_eq!(
            command.body,
            Bytes::from(from_hex(&line["body"])),
            "body of {name}"
        );
    }
}

#[test]
fn frames_written_again_say_the_same() {
    for line in lines("frames.jsonl") {
        let command = decode_frame(&bytes(&line));
        let mut out = BytesMut::new();
        frame::encode(&command, &mut out);
        let again = decode_frame(&out);
        let name = &line["name"];
        assert_eq!(again.code, command.code, "code of {name}");
        assert_eq!(again.language, command.language, "language of {name}");
        assert_eq!(again.version, command.version, "version of {name}");
        assert_eq!(again.opaque, command.opaque, "opaque of {name}");
        assert_eq!(again.flag, command.flag, "flag of {name}");
        assert_eq!(again.remark, command.remark, "remark of {name}");
        assert_eq!(again.serialize, command.serialize, "form of {name}");
        assert_eq!(pairs(&again.ext), pairs(&command.ext), "arguments of {name}");
        assert_eq!(again.body, command.body, "body of {name}");
        if command.serialize == SerializeType::Binary {
            assert_eq!(out.len(), bytes(&line).len(), "length of {name}");
        }
    }
}

/// Reads the arguments as `H` and gives what `H` writes.
fn through<'a, H: DecodeHeader<'a> + EncodeHeader>(command: &'a Command, name: &Value) -> Ext {
    let header: H = command.header().unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut ext = Ext::default();
    header.encode(command.code, &mut ext);
    ext
}

/// The arguments of a frame after a way through our type for them.
fn typed(header: &str, command: &Command, name: &Value) -> Ext {
    use code::request as r;
    let Some(code) = header.strip_prefix("request-") else {
        return typed_response(header, command, name);
    };
    match code.parse().expect("a code") {
        r::SEND_MESSAGE
        | r::SEND_MESSAGE_V2
        | r::SEND_BATCH_MESSAGE
        | r::SEND_REPLY_MESSAGE
        | r::SEND_REPLY_MESSAGE_V2 => through::<SendMessage<'_>>(command, name),
        r::PUSH_REPLY_MESSAGE_TO_CLIENT => through::<PushReplyMessage<'_>>(command, name),
        r::PULL_MESSAGE => through::<PullMessage<'_>>(command, name),
        r::QUERY_MESSAGE => through::<QueryMessage<'_>>(command, name),
        r::QUERY_CONSUMER_OFFSET => through::<QueryConsumerOffset<'_>>(command, name),
        r::UPDATE_CONSUMER_OFFSET => through::<UpdateConsumerOffset<'_>>(command, name),
        r::UPDATE_AND_CREATE_TOPIC => through::<CreateTopic<'_>>(command, name),
        r::SEARCH_OFFSET_BY_TIMESTAMP => through::<SearchOffset<'_>>(command, name),
        r::GET_MAX_OFFSET | r::GET_MIN_OFFSET | r::GET_EARLIEST_MSG_STORETIME => {
            through::<QueueHeader<'_>>(command, name)
        }
        r::VIEW_MESSAGE_BY_ID => through::<ViewMessage>(command, name),
        r::UNREGISTER_CLIENT => through::<UnregisterClient<'_>>(command, name),
        r::CONSUMER_SEND_MSG_BACK => through::<ConsumerSendMsgBack<'_>>(command, name),
        r::END_TRANSACTION => through::<EndTransaction<'_>>(command, name),
        r::CHECK_TRANSACTION_STATE => through::<CheckTransactionState<'_>>(command, name),
        r::RESUME_CHECK_HALF_MESSAGE => through::<ResumeCheckHalfMessage<'_>>(command, name),
        r::GET_CONSUMER_LIST_BY_GROUP | r::NOTIFY_CONSUMER_IDS_CHANGED | r::GET_CONSUMER_CONNECTION_LIST => {
            through::<ConsumerGroupHeader<'_>>(command, name)
        }
        r::GET_PRODUCER_CONNECTION_LIST => through::<ProducerGroupHeader<'_>>(command, name),
        r::PUT_KV_CONFIG => through::<PutKvConfig<'_>>(command, name),
        r::GET_KV_CONFIG | r::DELETE_KV_CONFIG => through::<KvKey<'_>>(command, name),
        r::GET_KVLIST_BY_NAMESPACE => through::<KvNamespace<'_>>(command, name),
        r::REGISTER_BROKER => through::<RegisterBroker<'_>>(command, name),
        r::UNREGISTER_BROKER | r::QUERY_DATA_VERSION => through::<BrokerIdentity<'_>>(command, name),
        r::GET_ROUTEINFO_BY_TOPIC => through::<GetRouteInfo<'_>>(command, name),
        r::WIPE_WRITE_PERM_OF_BROKER | r::ADD_WRITE_PERM_OF_BROKER => {
            through::<BrokerNameHeader<'_>>(command, name)
        }
        r::DELETE_TOPIC_IN_NAMESRV => through::<DeleteTopicInNamesrv<'_>>(command, name),
        r::GET_TOPICS_BY_CLUSTER => through::<ClusterHeader<'_>>(command, name),
        r::GET_TOPIC_STATS_INFO | r::DELETE_TOPIC_IN_BROKER | r::QUERY_TOPIC_CONSUME_BY_WHO => {
            through::<TopicHeader<'_>>(command, name)
        }
        r::DELETE_SUBSCRIPTIONGROUP => through::<DeleteSubscriptionGroup<'_>>(command, name),
        r::GET_CONSUME_STATS => through::<GetConsumeStats<'_>>(command, name),
        r::RESET_CONSUMER_CLIENT_OFFSET | r::INVOKE_BROKER_TO_RESET_OFFSET => {
            through::<ResetOffset<'_>>(command, name)
        }
        r::GET_CONSUMER_STATUS_FROM_CLIENT | r::INVOKE_BROKER_TO_GET_CONSUMER_STATUS => {
            through::<GetConsumerStatus<'_>>(command, name)
        }
        r::QUERY_CONSUME_TIME_SPAN => through::<QueryConsumeTimeSpan<'_>>(command, name),
        r::GET_CONSUMER_RUNNING_INFO => through::<GetConsumerRunningInfo<'_>>(command, name),
        r::QUERY_CORRECTION_OFFSET => through::<QueryCorrectionOffset<'_>>(command, name),
        r::CONSUME_MESSAGE_DIRECTLY => through::<ConsumeMessageDirectly<'_>>(command, name),
        r::CLONE_GROUP_OFFSET => through::<CloneGroupOffset<'_>>(command, name),
        r::VIEW_BROKER_STATS_DATA => through::<ViewBrokerStats<'_>>(command, name),
        r::GET_BROKER_CONSUME_STATS => through::<GetBrokerConsumeStats>(command, name),
        r::QUERY_CONSUME_QUEUE => through::<QueryConsumeQueue<'_>>(command, name),
        r::UPDATE_AND_CREATE_ACL_CONFIG => through::<UpdateAclConfig<'_>>(command, name),
        r::DELETE_ACL_CONFIG => through::<DeleteAclConfig<'_>>(command, name),
        r::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG => through::<UpdateGlobalWhiteAddrs<'_>>(command, name),
        r::REGISTER_FILTER_SERVER => through::<RegisterFilterServer<'_>>(command, name),
        r::REGISTER_MESSAGE_FILTER_CLASS => through::<RegisterFilterClass<'_>>(command, name),
        r::GET_ALL_PRODUCER_INFO => Ext::default(),
        other => panic!("{name}: no type is known for request {other}"),
    }
}

fn typed_response(header: &str, command: &Command, name: &Value) -> Ext {
    match header.strip_prefix("response-").expect("a response") {
        "send" => through::<SendMessageResponse<'_>>(command, name),
        "pull" => through::<PullMessageResponse>(command, name),
        "queryMessage" => through::<QueryMessageResponse>(command, name),
        "queryConsumerOffset" | "searchOffset" | "maxOffset" | "minOffset" => {
            through::<OffsetResponse>(command, name)
        }
        "earliestStoreTime" => through::<TimestampResponse>(command, name),
        "brokerConfig" => through::<BrokerConfigResponse<'_>>(command, name),
        "registerBroker" => through::<RegisterBrokerResponse<'_>>(command, name),
        "queryDataVersion" => through::<QueryDataVersionResponse>(command, name),
        "getKvConfig" => through::<GetKvConfigResponse<'_>>(command, name),
        "wipeWritePerm" => through::<WipeWritePermResponse>(command, name),
        "addWritePerm" => through::<AddWritePermResponse>(command, name),
        "aclInfo" => through::<AclInfoResponse<'_>>(command, name),
        "registerFilterServer" => through::<RegisterFilterServerResponse<'_>>(command, name),
        // Those without arguments.
        "checkTransactionState"
        | "endTransaction"
        | "allTopicConfig"
        | "aclConfig"
        | "consumerList"
        | "unregisterClient"
        | "updateConsumerOffset"
        | "viewMessage" => Ext::default(),
        other => panic!("{name}: no type is known for response {other}"),
    }
}

/// Every argument that Java writes has its place in our type under the same name, and only mandatory ones must be there.
#[test]
fn typed_arguments_keep_everything_that_java_writes() {
    let mut wrong = Vec::new();
    for line in lines("frames.jsonl") {
        let header = line["header"].as_str().expect("text");
        // Java marks no argument of 321 as mandatory, but without a topic there is no queue to look at.
        let absurd = header == "request-321" && line["variant"] == "least";
        if !header.contains('-') || absurd {
            continue;
        }
        let command = decode_frame(&bytes(&line));
        let ours = pairs(&typed(header, &command, &line["name"]));
        let mut java = expected_ext(&line);
        // Told for a proxy's sake only; a broker knows its name.
        java.remove("n");
        java.remove("bname");
        let ours_left_out: Vec<_> = java.iter().filter(|(k, v)| ours.get(*k) != Some(v)).collect();
        if !ours_left_out.is_empty() {
            wrong.push(format!("{}: {ours_left_out:?}", line["name"]));
        }
        if line["variant"] == "full" && ours.len() > java.len() {
            let more: Vec<_> = ours.keys().filter(|k| !java.contains_key(*k)).collect();
            // A flag that Java's client adds beside its header class.
            if more != ["_UNIQUE_KEY_QUERY"] {
                wrong.push(format!("{}: Java does not know {more:?}", line["name"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn read<T: serde::de::DeserializeOwned>(line: &Value) -> T {
    fastjson::from_slice(&bytes(line)).unwrap_or_else(|e| panic!("{}: {e}", line["name"]))
}

/// What `T` writes is read again as the same.
fn again<T>(value: &T, name: &Value)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    for text in [fastjson::to_vec(value), fastjson::to_vec_java(value)] {
        let back: T = fastjson::from_slice(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(&back, value, "{name} written again");
    }
}

fn queue(topic: &Value, broker: &Value, id: &Value) -> MessageQueue {
    MessageQueue::new(
        topic.as_str().expect("text"),
        broker.as_str().expect("text"),
        i32::try_from(id.as_i64().expect("number")).expect("an id"),
    )
}

fn topics(table: &TopicConfigTable, lossy: bool) -> Value {
    let rows: Vec<Value> = table
        .topic_config_table
        .values()
        .map(|t| {
            json!({"topicName": t.topic_name, "readQueueNums": t.read_queue_nums, "writeQueueNums": t.write_queue_nums,
                "perm": t.perm, "order": t.order, "topicSysFlag": t.topic_sys_flag})
        })
        .map(|mut row| {
            if lossy {
                row["order"] = json!(null);
                row["topicSysFlag"] = json!(null);
            }
            row
        })
        .collect();
    json!(rows)
}

fn version(v: DataVersion) -> Value {
    json!({"counter": v.counter, "timestamp": v.timestamp})
}

fn broker(b: &BrokerData) -> Value {
    json!({"cluster": b.cluster, "brokerName": b.broker_name, "brokerAddrs": b.broker_addrs})
}

#[test]
fn registrations_mean_what_java_means() {
    let mut seen = 0;
    for line in lines("bodies.jsonl").iter().filter(|l| l["kind"] == "register") {
        seen += 1;
        let compressed = line["compressed"] == true;
        let body = RegisterBrokerBody::decode(&bytes(line), compressed)
            .unwrap_or_else(|e| panic!("{}: {e}", line["name"]));
        let mut value = line["value"].clone();
        if compressed {
            for row in value["topics"].as_array_mut().expect("topics") {
                row["order"] = json!(null);
                row["topicSysFlag"] = json!(null);
            }
        }
        let ours = json!({"dataVersion": version(body.topic_config_table.data_version),
            "topics": topics(&body.topic_config_table, compressed), "filterServers": body.filter_server_list});
        assert_eq!(ours, value, "{}", line["name"]);
        let back = RegisterBrokerBody::decode(&body.encode(compressed), compressed).expect("our own form");
        assert_eq!(back, body, "{} written again", line["name"]);
    }
    assert_eq!(seen, 2);
}

#[test]
fn bodies_mean_what_java_means() {
    for line in lines("bodies.jsonl") {
        let name = &line["name"];
        let ours = match name.as_str().expect("text") {
            "register" | "register-compressed" => continue,
            "heartbeat" => heartbeat(&line),
            "route" | "route-standard" => {
                let r: TopicRouteData = read(&line);
                again(&r, name);
                let queues: Vec<Value> = r
                    .queue_datas
                    .iter()
                    .map(|q| {
                        json!({"brokerName": q.broker_name, "readQueueNums": q.read_queue_nums,
                            "writeQueueNums": q.write_queue_nums, "perm": q.perm, "topicSysFlag": q.topic_sys_flag})
                    })
                    .collect();
                json!({"brokers": r.broker_datas.iter().map(broker).collect::<Vec<_>>(), "queues": queues,
                    "orderTopicConf": r.order_topic_conf})
            }
            "cluster-info" => {
                let c: ClusterInfo = read(&line);
                again(&c, name);
                json!({"brokers": c.broker_addr_table.values().map(broker).collect::<Vec<_>>(),
                    "clusters": c.cluster_addr_table})
            }
            "topic-table" => {
                let t: TopicConfigTable = read(&line);
                again(&t, name);
                json!({"dataVersion": version(t.data_version), "topics": topics(&t, false)})
            }
            "group-table" => {
                let t: SubscriptionGroupTable = read(&line);
                again(&t, name);
                let groups: Vec<Value> = t
                    .subscription_group_table
                    .values()
                    .map(|g| {
                        json!({"groupName": g.group_name, "retryMaxTimes": g.retry_max_times,
                            "retryQueueNums": g.retry_queue_nums, "consumeBroadcastEnable": g.consume_broadcast_enable,
                            "consumeEnable": g.consume_enable,
                            "whichBrokerWhenConsumeSlowly": g.which_broker_when_consume_slowly})
                    })
                    .collect();
                json!({"dataVersion": version(t.data_version), "groups": groups})
            }
            "consumer-offsets" => {
                let t: ConsumerOffsetTable = read(&line);
                again(&t, name);
                json!(t.offset_table)
            }
            "kv-table" => {
                let t: KvTable = read(&line);
                again(&t, name);
                json!(t.table)
            }
            "topic-list" => {
                let t: TopicList = read(&line);
                again(&t, name);
                json!({"topicList": t.topic_list, "brokerAddr": t.broker_addr})
            }
            _ => queue_maps(&line),
        };
        assert_eq!(ours, line["value"], "{name}");
    }
}

fn heartbeat(line: &Value) -> Value {
    let h: HeartbeatData = read(line);
    again(&h, &line["name"]);
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    let consumers: Vec<Value> = h
        .consumer_data_set
        .iter()
        .map(|c| {
            let subscriptions: Vec<Value> = c
                .subscription_data_set
                .iter()
                .map(|s| {
                    let mut codes = s.code_set.clone();
                    codes.sort_unstable();
                    json!({"topic": s.topic, "subString": s.sub_string, "subVersion": s.sub_version,
                        "tagsSet": sorted(&s.tags_set), "codeSet": codes, "expressionType": s.expression_type})
                })
                .collect();
            json!({"groupName": c.group_name, "consumeType": c.consume_type.map(ConsumeType::name),
                "messageModel": c.message_model.map(MessageModel::name),
                "consumeFromWhere": c.consume_from_where.map(ConsumeFromWhere::name), "subscriptions": subscriptions})
        })
        .collect();
    let producers: Vec<&String> = h.producer_data_set.iter().map(|p| &p.group_name).collect();
    json!({"clientID": h.client_id, "producers": producers, "consumers": consumers})
}

/// Bodies about queues and groups.
fn queue_maps(line: &Value) -> Value {
    let name = &line["name"];
    let row = |q: &MessageQueue, value: Value| json!([q.topic, q.broker_name, q.queue_id, value]);
    let place = |q: &MessageQueue| json!([q.topic, q.broker_name, q.queue_id]);
    match name.as_str().expect("text") {
        "topic-stats" => {
            let t: TopicStatsTable = read(line);
            again(&t, name);
            let rows = t.offset_table.iter().map(|(q, o)| {
                row(q, json!({"minOffset": o.min_offset, "maxOffset": o.max_offset, "lastUpdateTimestamp": o.last_update_timestamp}))
            });
            json!(rows.collect::<Vec<_>>())
        }
        "consume-stats" => {
            let t: ConsumeStats = read(line);
            again(&t, name);
            let rows = t.offset_table.iter().map(|(q, o)| {
                row(q, json!({"brokerOffset": o.broker_offset, "consumerOffset": o.consumer_offset, "lastTimestamp": o.last_timestamp}))
            });
            json!({"consumeTps": t.consume_tps, "queues": rows.collect::<Vec<_>>()})
        }
        "reset-offset" => {
            let t: ResetOffsetBody = read(line);
            again(&t, name);
            json!(
                t.offset_table
                    .iter()
                    .map(|(q, o)| row(q, json!(o)))
                    .collect::<Vec<_>>()
            )
        }
        "lock-request" => {
            let l: LockBatchRequestBody = read(line);
            again(&l, name);
            json!({"clientId": l.client_id, "consumerGroup": l.consumer_group,
                "queues": l.mq_set.iter().map(place).collect::<Vec<_>>()})
        }
        "lock-response" => {
            let l: LockBatchResponseBody = read(line);
            again(&l, name);
            json!({"queues": l.lock_ok_mq_set.iter().map(place).collect::<Vec<_>>()})
        }
        "consumer-connection" => {
            let c: ConsumerConnection = read(line);
            again(&c, name);
            let one = &c.connection_set[0];
            json!({"clientId": one.client_id, "clientAddr": one.client_addr, "language": one.language.name(),
                "version": one.version, "consumeType": c.consume_type.map(ConsumeType::name),
                "messageModel": c.message_model.map(MessageModel::name),
                "consumeFromWhere": c.consume_from_where.map(ConsumeFromWhere::name),
                "topic": c.subscription_table.keys().next()})
        }
        "consumer-ids" => {
            let c: ConsumerIdList = read(line);
            again(&c, name);
            json!({"consumerIdList": c.consumer_id_list})
        }
        "running-info" => {
            let i: ConsumerRunningInfo = read(line);
            again(&i, name);
            let q = &line["value"]["queue"];
            let p = &i.mq_table[&queue(&q[0], &q[1], &q[2])];
            json!({"queue": q, "commitOffset": p.commit_offset, "cachedMsgCount": p.cached_msg_count, "locked": p.locked})
        }
        other => panic!("no type is known for the body {other}"),
    }
}

/// Socket address of two values of a line.
fn address(host: &Value, port: &Value) -> SocketAddr {
    let ip: IpAddr = host.as_str().expect("text").parse().expect("an address");
    SocketAddr::new(ip, u16::try_from(port.as_u64().expect("number")).expect("a port"))
}

#[test]
fn records_mean_what_java_means_and_are_written_byte_for_byte() {
    let mut seen = 0;
    for line in lines("records.jsonl").iter().filter(|l| l["kind"] == "record") {
        seen += 1;
        let name = &line["name"];
        let raw = bytes(line);
        let Entry::Record(r) = record::parse(&raw, Check::Crc).unwrap_or_else(|e| panic!("{name}: {e}"))
        else {
            panic!("{name} is no record");
        };
        assert_eq!(
            json!({"topic": r.topic, "flag": r.flag, "sysFlag": r.sys_flag, "queueId": r.queue_id,
                "queueOffset": r.queue_offset, "physicalOffset": r.physical_offset, "born": r.born_timestamp,
                "stored": r.store_timestamp, "reconsumeTimes": r.reconsume_times,
                "prepared": r.prepared_transaction_offset, "bodyCrc": r.body_crc, "offsetId": r.offset_id()}),
            json!({"topic": line["topic"], "flag": line["flag"], "sysFlag": line["sysFlag"], "queueId": line["queueId"],
                "queueOffset": line["queueOffset"], "physicalOffset": line["physicalOffset"], "born": line["born"],
                "stored": line["stored"], "reconsumeTimes": line["reconsumeTimes"],
                "prepared": line["prepared"], "bodyCrc": line["bodyCrc"], "offsetId": line["offsetId"]}),
            "{name}"
        );
        assert_eq!(
            r.born_host,
            address(&line["bornHost"], &line["bornPort"]),
            "born host of {name}"
        );
        assert_eq!(
            r.store_host,
            address(&line["storeHost"], &line["storePort"]),
            "store host of {name}"
        );
        let body = if r.sys_flag & sysflag::COMPRESSED == 0 {
            r.body.to_vec()
        } else {
            compress::inflate(compress::Kind::Zlib, r.body, 1 << 20).expect("inflates")
        };
        assert_eq!(body, from_hex(&line["bodyHex"]), "body of {name}");
        let text = r.properties_text();
        let found: BTreeMap<&str, &str> = properties::iter(&text).collect();
        assert_eq!(json!(found), line["properties"], "properties of {name}");

        let mut written = Vec::new();
        r.to_draft().encode(&mut written);
        record::patch::queue_offset(&mut written, r.queue_offset);
        record::patch::physical_offset(&mut written, r.physical_offset);
        record::patch::store_timestamp(&mut written, r.store_timestamp);
        assert_eq!(written, raw, "{name} written again");
    }
    assert!(seen >= 8);
}

#[test]
fn batches_are_written_byte_for_byte() {
    for line in lines("records.jsonl").iter().filter(|l| l["kind"] == "batch") {
        let raw = bytes(line);
        let messages: Vec<_> = batch::iter(&raw).collect::<Result<_, _>>().expect("a good batch");
        let expected = line["messages"].as_array().expect("messages");
        assert_eq!(messages.len(), expected.len());
        for (ours, java) in messages.iter().zip(expected) {
            assert_eq!(ours.body, from_hex(&java["bodyHex"]));
            assert_eq!(json!(ours.flag), java["flag"]);
            let text = std::str::from_utf8(ours.properties).expect("text");
            let found: BTreeMap<&str, &str> = properties::iter(text).collect();
            assert_eq!(json!(found), java["properties"]);
        }
        let mut written = Vec::new();
        batch::encode(messages, &mut written);
        assert_eq!(written, raw);
    }
}

#[test]
fn texts_mean_what_java_means() {
    for line in lines("texts.jsonl") {
        let raw = bytes(&line);
        let text = std::str::from_utf8(&raw).expect("text");
        let name = &line["name"];
        match line["kind"].as_str().expect("text") {
            "hash" => {
                assert_eq!(
                    json!(java_hash::string_hash(text)),
                    line["hash"],
                    "hash of {name}"
                );
                assert_eq!(json!(crc::crc31(&raw)), line["crc"], "checksum of {name}");
            }
            "properties" => {
                let found: BTreeMap<&str, &str> = properties::iter(text).collect();
                assert_eq!(json!(found), line["properties"], "{name}");
            }
            "id" => {
                let host = address(&line["host"], &line["port"]);
                let offset = line["offset"].as_i64().expect("number");
                assert_eq!(message_id::offset_id(host, offset), text);
                assert_eq!(message_id::parse_offset_id(text), Some((host, offset)));
            }
            other => panic!("no kind {other}"),
        }
    }
}
