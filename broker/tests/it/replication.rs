//! Master and slave, each a broker of its own.

use ferromq_broker::BrokerSettings;
use ferromq_namesrv::NamesrvSettings;
use ferromq_protocol::body::DelayOffsetTable;
use ferromq_protocol::code::request;
use ferromq_protocol::header::{
    DeleteSubscriptionGroup, EndTransaction, OffsetResponse, PullMessage, QueryConsumerOffset, TopicHeader,
};
use ferromq_protocol::sysflag::pull as flag;
use ferromq_protocol::{Command, fastjson};

use tokio_util::task::TaskTracker;

use crate::admin::create;
use crate::offsets::update;
use crate::process::{Process, get};
use crate::support::{LONG, Peer, Rig, eventually, free_port, send_command};

/// Makes the settings those of a slave that is quick to notice things.
fn slave(settings: &mut BrokerSettings) {
    "SLAVE".clone_into(&mut settings.broker_role);
    settings.broker_id = 1;
    settings.ha_send_heartbeat_interval = 50;
    settings.complete().unwrap();
}

async fn offset(peer: &Peer) -> i64 {
    let query = Command::request(request::QUERY_CONSUMER_OFFSET).with_header(&QueryConsumerOffset {
        consumer_group: "CG",
        topic: "T",
        queue_id: 0,
    });
    let answer = peer.call(query).await;
    match answer.code {
        0 => answer.header::<OffsetResponse>().unwrap().offset,
        _ => -1,
    }
}

async fn status(port: u16) -> serde_json::Value {
    let page = tokio::task::spawn_blocking(move || get(port, "/status"));
    serde_json::from_str(&page.await.unwrap().unwrap().1).unwrap()
}

async fn ready(port: u16) -> bool {
    let page = tokio::task::spawn_blocking(move || get(port, "/readyz"));
    page.await.unwrap().is_some_and(|(code, _)| code == 200)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_copies_the_log_and_the_tables_and_serves_reads_only() {
    let (master_pages, slave_pages) = (free_port(), free_port());
    let master = Rig::start_with(|s| s.http_port = master_pages).await;
    master.peer.ok(create("T", 3, 6)).await;
    for n in 0..20 {
        master.peer.send("T", 0, &format!("message {n}")).await;
    }
    master
        .peer
        .ok(send_command("T", 1, "later", "DELAY\u{1}1\u{2}"))
        .await;
    master.peer.ok(update(7)).await;
    let address = format!("127.0.0.1:{}", master.port + 1);
    let follower = Rig::start_with(|s| {
        slave(s);
        s.http_port = slave_pages;
        s.ha_master_address = address;
    })
    .await;
    let peer = &follower.peer;
    eventually("the slave is ready", async || ready(slave_pages).await).await;
    eventually("topic and offsets are copied", async || offset(peer).await == 7).await;
    let bodies = peer.drain("T", 0, 0, 20).await;
    assert_eq!(bodies[19], "message 19");
    assert_eq!(bodies, master.peer.drain("T", 0, 0, 20).await);

    // The delayed message is delivered by the master, once, and the slave knows how far that is.
    assert_eq!(peer.drain("T", 1, 0, 1).await, ["later"]);
    let delays = follower.dir.path().join("config/delayOffset.json");
    eventually("delay offsets are copied", async || {
        let table = std::fs::read(&delays).ok();
        let table = table.and_then(|text| fastjson::from_slice::<DelayOffsetTable>(&text).ok());
        table.is_some_and(|table| table.offset_table.get(&1) == Some(&1))
    })
    .await;

    // Progress is merged by its maximum, and a pull moves none here.
    peer.ok(update(9)).await;
    master.peer.ok(update(8)).await;
    let commit = Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
        consumer_group: "CG",
        topic: "T",
        queue_id: 0,
        queue_offset: 0,
        max_msg_nums: 1,
        sys_flag: flag::SUBSCRIPTION | flag::COMMIT_OFFSET,
        commit_offset: 15,
        suspend_timeout_millis: 0,
        subscription: Some("*"),
        sub_version: 0,
        expression_type: None,
    });
    peer.ok(commit).await;
    master.peer.ok(create("U", 1, 6)).await;
    eventually("a later topic", async || peer.pull_code("U").await != 17).await;
    assert_eq!(offset(peer).await, 9);

    // What a slave answers to those who want to change something.
    assert_eq!(peer.call(send_command("T", 0, "x", "")).await.code, 14);
    assert_eq!(peer.call(create("V", 1, 6)).await.code, 1);
    let gone = Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&TopicHeader { topic: "T" });
    assert_eq!(peer.call(gone).await.code, 1);
    let group = Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        .with_body(br#"{"groupName":"G"}"#.as_slice());
    assert_eq!(peer.call(group).await.code, 1);
    let no_group =
        Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_header(&DeleteSubscriptionGroup {
            group_name: "CG",
            remove_offset: true,
        });
    assert_eq!(peer.call(no_group).await.code, 1);
    let decision = Command::request(request::END_TRANSACTION).with_header(&EndTransaction {
        producer_group: "PG",
        tran_state_table_offset: 0,
        commit_log_offset: 0,
        commit_or_rollback: 8,
        from_transaction_check: false,
        msg_id: "",
        transaction_id: None,
    });
    assert_eq!(peer.call(decision).await.code, 11);

    pages_tell_the_roles_and_the_lag(master.port, master_pages, slave_pages).await;
    follower.stop().await;
    master.stop().await;
}

async fn pages_tell_the_roles_and_the_lag(master_port: u16, master_pages: u16, slave_pages: u16) {
    let (of_master, of_slave) = (status(master_pages).await, status(slave_pages).await);
    assert_eq!(
        (&of_master["role"], &of_slave["role"]),
        (&"ASYNC_MASTER".into(), &"SLAVE".into())
    );
    assert_eq!(of_slave["replicas"], serde_json::json!([]));
    let row = &of_master["replicas"][0];
    assert_eq!(row["behindBytes"], 0);
    assert_eq!(row["ackOffset"], of_master["log"]["max"]);
    assert!(row["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(
        (&row["brokerId"], &row["inSync"]),
        (&serde_json::json!(1), &serde_json::json!(true))
    );
    assert!(row["silentMillis"].is_u64() && row["connectedMillis"].is_u64());
    assert!(of_master["following"].is_null());
    let row = &of_slave["following"];
    assert_eq!(row["state"], "following", "{row}");
    assert_eq!(row["master"], format!("127.0.0.1:{}", master_port + 1));
    for is_so in ["connected", "caughtUp", "caughtUpOnce"] {
        assert_eq!(row[is_so], true, "{is_so}: {row}");
    }
    assert_eq!(row["masterEnd"], of_master["log"]["max"]);
    assert_eq!(row["behindBytes"], 0);
    assert!(row["silentMillis"].is_u64() && row["tablesCopiedMillis"].is_u64());
    assert!(row["error"].is_null());
    let page = |port: u16| tokio::task::spawn_blocking(move || get(port, "/metrics").unwrap().1);
    let (of_master, of_slave) = (
        page(master_pages).await.unwrap(),
        page(slave_pages).await.unwrap(),
    );
    for line in [
        "ferromq_broker_replicas 1",
        "ferromq_broker_replicas_in_sync 1",
        "broker_id=\"1\"} 0",
    ] {
        assert!(of_master.contains(line), "{line}: {of_master}");
    }
    for line in [
        "ferromq_broker_master_connected 1",
        "ferromq_broker_master_behind_bytes 0",
    ] {
        assert!(of_slave.contains(line), "{line}: {of_slave}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_finds_its_master_at_the_name_server_and_is_promoted_by_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let names = ferromq_namesrv::start(NamesrvSettings {
        listen_port: 0,
        bind_address: "127.0.0.1".to_owned(),
        kv_config_path: dir.path().join("kv.json").display().to_string(),
        config_store_path: dir.path().join("namesrv.properties").display().to_string(),
        ..NamesrvSettings::default()
    })
    .await
    .unwrap();
    let list = names.local_addr().to_string();
    let master = Rig::start_with(|s| {
        s.namesrv_addr.clone_from(&list);
        s.broker_role = "SYNC_MASTER".to_owned();
    })
    .await;
    // Without a slave the message is stored and the answer says what is missing.
    assert_eq!(master.peer.call(send_command("T", 0, "0", "")).await.code, 11);
    let mut follower = Rig::start_with(|s| {
        slave(s);
        s.namesrv_addr.clone_from(&list);
    })
    .await;
    eventually("the slave counts", async || {
        master.peer.call(send_command("T", 0, "1", "")).await.code == 0
    })
    .await;
    for n in 0..100 {
        master.peer.send("T", 0, &format!("acknowledged {n}")).await;
    }
    // A delayed message that the master has delivered already.
    let delayed = send_command("Delayed", 0, "once", "DELAY\u{1}1\u{2}");
    assert_eq!(master.peer.call(delayed).await.code, 0);
    let saved = follower.dir.path().join("config/delayOffset.json");
    eventually("its delivery is known to the slave", async || {
        std::fs::read_to_string(&saved).is_ok_and(|text| text.contains(r#""1":1"#) || text.contains("1:1"))
    })
    .await;
    let count = master.peer.max_offset("T", 0).await;
    eventually("the topic is copied", async || {
        follower.peer.pull_code("T").await == 0
    })
    .await;
    master.stop().await;
    // Reads go on while the master is away; then the slave becomes one.
    let bodies = follower.peer.drain("T", 0, 0, count as usize).await;
    follower.restart().await;
    let promoted = &follower.peer;
    assert_eq!(promoted.send("T", 0, "of the new master").await.offset, count);
    let after = promoted.drain("T", 0, 0, count as usize + 1).await;
    assert_eq!(after[..count as usize], bodies);
    // It is not delivered again: the next one is the second of its queue.
    let delayed = send_command("Delayed", 0, "next", "DELAY\u{1}1\u{2}");
    assert_eq!(promoted.call(delayed).await.code, 0);
    assert_eq!(promoted.drain("Delayed", 0, 0, 2).await, ["once", "next"]);
    follower.stop().await;
    names.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_synchronous_master_acknowledged_is_on_the_slave_after_kill_9() {
    let (dir_a, dir_b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (port_a, port_b) = (free_port(), free_port());
    let mut master = Process::start(dir_a.path(), port_a, "brokerRole=SYNC_MASTER\n", &[]);
    master.started();
    let more = format!(
        "brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=127.0.0.1:{}\nhaSendHeartbeatInterval=50\n",
        port_a + 1
    );
    let mut slave = Process::start(dir_b.path(), port_b, &more, &[]);
    slave.started();
    let setup = Peer::new(format!("127.0.0.1:{port_a}"));
    eventually("the slave counts", async || {
        setup.call(send_command("T", 3, "first", "")).await.code == 0
    })
    .await;
    let reader = Peer::new(format!("127.0.0.1:{port_b}"));
    eventually("the topic is copied", async || reader.pull_code("T").await != 17).await;

    let (told, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    let tasks = TaskTracker::new();
    let senders: Vec<_> = (0..3)
        .map(|queue| {
            let told = told.clone();
            tasks.spawn(async move {
                let peer = Peer::new(format!("127.0.0.1:{port_a}"));
                for n in 0.. {
                    let body = format!("{n:06}").repeat(1 + n % 400);
                    let send = send_command("T", queue, &body, "");
                    match peer.client.call(&peer.addr, send, LONG).await {
                        Ok(answer) if answer.code == 0 => told.send((queue, body)).unwrap(),
                        // Not acknowledged: it may or may not be there.
                        Ok(_) => {}
                        Err(_) => return,
                    }
                }
            })
        })
        .collect();
    drop(told);
    let mut all: [Vec<String>; 3] = Default::default();
    let mut killed = false;
    while let Some((queue, body)) = acknowledged.recv().await {
        all[queue as usize].push(body);
        if !killed && all.iter().map(Vec::len).sum::<usize>() >= 3_000 {
            master.signal("-KILL");
            killed = true;
        }
    }
    assert!(killed);
    for sender in senders {
        sender.await.unwrap();
    }
    for (queue, sent) in all.iter().enumerate() {
        let queue = queue as i32;
        // Its queues follow its log at once, but not in the same moment.
        eventually("the slave's queue", async || {
            reader.max_offset("T", queue).await >= sent.len() as i64
        })
        .await;
        let count = reader.max_offset("T", queue).await as usize;
        let found = reader.drain("T", queue, 0, count).await;
        let mut rest = found.iter();
        for body in sent {
            assert!(
                rest.any(|f| f == body),
                "queue {queue} lacks an acknowledged message"
            );
        }
    }
    drop(slave);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_far_behind_are_sent_to_the_slave_and_from_there_back() {
    let master = Rig::start_with(|s| {
        s.slave_read_enable = true;
        // All but the very last message is thought to be out of memory.
        s.access_message_in_memory_max_ratio = 0;
    })
    .await;
    let address = format!("127.0.0.1:{}", master.port + 1);
    let follower = Rig::start_with(|s| {
        slave(s);
        s.slave_read_enable = true;
        s.ha_master_address = address;
    })
    .await;
    for n in 0..10 {
        master.peer.send("T", 0, &format!("message {n}")).await;
    }
    eventually("the slave has all", async || {
        follower.peer.pull_code("T").await == 0 && follower.peer.max_offset("T", 0).await == 10
    })
    .await;
    let behind = master.peer.pull("T", 0, 0).await;
    assert_eq!((behind.code, behind.header.suggest_which_broker_id), (0, 1));
    // The slave has it in memory, and sends the consumer back for what comes next.
    let read = follower.peer.pull("T", 0, 0).await;
    assert_eq!((read.code, read.header.suggest_which_broker_id), (0, 0));
    assert_eq!(read.bodies[0], "message 0");
    assert_eq!(behind.bodies[0], "message 0");
    // Without slaveReadEnable nobody is sent there, and the slave serves who comes all the same.
    let change =
        Command::request(request::UPDATE_BROKER_CONFIG).with_body(b"slaveReadEnable=false".as_slice());
    for side in [&master, &follower] {
        side.peer.ok(change.clone()).await;
        let pulled = side.peer.pull("T", 0, 0).await;
        assert_eq!((pulled.code, pulled.header.suggest_which_broker_id), (0, 0));
    }
    follower.stop().await;
    master.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_made_at_the_slave_comes_back_to_the_master() {
    let mut master = Rig::start().await;
    let address = format!("127.0.0.1:{}", master.port + 1);
    let follower = Rig::start_with(|s| {
        slave(s);
        s.ha_master_address = address;
    })
    .await;
    for n in 0..20 {
        master.peer.send("T", 0, &format!("message {n}")).await;
    }
    master.peer.ok(update(4)).await;
    eventually("offsets are copied", async || offset(&follower.peer).await == 4).await;
    eventually("the log is copied", async || {
        follower.peer.max_offset("T", 0).await == 20
    })
    .await;
    master.stop_in_place().await;
    // The consumer goes on at the slave.
    assert_eq!(follower.peer.drain("T", 0, 4, 11).await[10], "message 14");
    follower.peer.ok(update(15)).await;
    master.start_again().await;
    eventually("the master knows", async || offset(&master.peer).await == 15).await;
    // What was told once is not told again: someone who sets progress back at the master is not overruled.
    master.peer.ok(create("U", 1, 6)).await;
    eventually("another copy", async || follower.peer.pull_code("U").await != 17).await;
    master.peer.ok(update(2)).await;
    master.peer.ok(create("V", 1, 6)).await;
    eventually("another copy", async || follower.peer.pull_code("V").await != 17).await;
    master.peer.ok(create("W", 1, 6)).await;
    eventually("another copy", async || follower.peer.pull_code("W").await != 17).await;
    assert_eq!(offset(&master.peer).await, 2);
    follower.stop().await;
    master.stop().await;
}
