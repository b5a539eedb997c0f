//! Peers that take no connection, hang, answer late, and messages whose flags lie.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferromq_client::admin::Admin;
use ferromq_client::{Client, ClientConfig, Delivery, Message, Outcome, ProducerConfig, PushConsumer};
use ferromq_protocol::code::request;
use ferromq_protocol::header::SendMessage;
use ferromq_protocol::{Command, compress, sysflag};
use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

use crate::consuming;
use crate::fake::{Cluster, route};
use crate::{wait_for, within};

/// An address that drops each new connection's first packet, as a firewall does: a listener whose queue is full.
struct BlackHole {
    addr: SocketAddr,
    _socket: Socket,
    _fill: Vec<std::net::TcpStream>,
}

impl BlackHole {
    fn dig() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket
            .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        socket.listen(0).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let mut fill = Vec::new();
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(300)) {
            fill.push(stream);
            assert!(fill.len() < 100, "the queue does not fill");
        }
        Self {
            addr,
            _socket: socket,
            _fill: fill,
        }
    }
}

#[tokio::test]
async fn a_name_server_that_takes_no_connection_costs_little() {
    let cluster = Cluster::start(&["a"], 1);
    let hole = BlackHole::dig();
    let list = format!("{};{}", hole.addr, cluster.names.running.address);
    // Were the first waited for alone, its time-out would end the call with an error.
    let admin = Admin::new(&ClientConfig::new(list.clone())).unwrap();
    within("the first route", admin.route("T")).await.unwrap();
    // Nor do its attempts to connect hold up the refreshes of the other.
    let mut config = ClientConfig::new(list);
    config.route_refresh = Duration::from_millis(20);
    let client = Client::start(config).unwrap();
    let queues = client.pull_consumer("G");
    within("the queues", queues.queues("T")).await.unwrap();
    let asked = || cluster.names.asked(request::GET_ROUTEINFO_BY_TOPIC).len();
    let before = asked();
    wait_for("ten refreshes", || asked() >= before + 10).await;
    client.shutdown().await;
}

/// One broker takes no connection, another takes requests and answers nothing: sends go to the third, whose heartbeats and
/// offsets come as ever.
#[tokio::test]
async fn brokers_that_hang_hold_up_nothing_that_goes_to_others() {
    let mut cluster = Cluster::start(&["a", "b", "c"], 1);
    let hole = BlackHole::dig();
    let mut data = route(&cluster.brokers, 1, 6);
    for broker in &mut data.broker_datas {
        if broker.broker_name == "c" {
            broker.broker_addrs.insert(0, hole.addr.to_string());
        }
    }
    cluster.names.set_route("T", data);
    let stopped = cluster.brokers.remove(1);
    stopped.stop_answering();
    let healthy = cluster.broker("a");
    let mut config = cluster.config();
    config.heartbeat = Duration::from_millis(50);
    let client = Client::start(config).unwrap();
    let taken = Arc::new(Mutex::new(0));
    let count = Arc::clone(&taken);
    let consumer = within(
        "the start",
        PushConsumer::start(&client, consuming::config("G"), move |delivery: Delivery| {
            *count.lock() += delivery.messages.len();
            async { Outcome::Done }
        }),
    )
    .await
    .unwrap();
    let producer = client.producer(ProducerConfig::new("PG"));
    for n in 0..20 {
        let sent = within("a send", producer.send(Message::new("T", n.to_string()))).await;
        assert_eq!(sent.unwrap().queue.broker_name, "a", "{n}");
    }
    wait_for("what was sent", || *taken.lock() >= 20).await;
    wait_for("the offset", || healthy.group_offset("G", "T", 0) == Some(20)).await;
    let before = healthy.heartbeats().len();
    wait_for("more heartbeats", || healthy.heartbeats().len() > before).await;
    within("the end", consumer.shutdown()).await.unwrap();
    within("the end", client.shutdown()).await;
    drop(stopped);
}

/// Links are not closed for it: that would make all members share their queues anew.
#[tokio::test]
async fn late_answers_to_heartbeats_close_no_link() {
    let cluster = Cluster::start(&["a"], 1);
    let broker = cluster.broker("a");
    broker.delay(request::HEART_BEAT, Duration::from_secs(4));
    let mut config = cluster.config();
    config.heartbeat = Duration::from_millis(20);
    let client = Client::start(config).unwrap();
    let producer = client.producer(ProducerConfig::new("PG"));
    within("a send", producer.send(Message::new("T", "x")))
        .await
        .unwrap();
    let connected = broker.connections();
    wait_for("three heartbeats", || broker.heartbeats().len() >= 3).await;
    within("a send", producer.send(Message::new("T", "x")))
        .await
        .unwrap();
    assert_eq!(
        broker.connections(),
        connected,
        "the link was closed and made anew"
    );
    client.shutdown().await;
}

/// Stores a message as a client would that flags its bodies wrongly.
async fn store_flagged(client: &ferromq_remoting::Client, addr: &str, body: Vec<u8>, sys_flag: i32) {
    let send = Command::request(request::SEND_MESSAGE_V2)
        .with_header(&SendMessage {
            producer_group: "PG",
            topic: "T",
            default_topic: "TBW102",
            default_topic_queue_nums: 1,
            queue_id: 0,
            sys_flag,
            born_timestamp: 1,
            properties: "KEYS\u{1}k\u{2}",
            ..SendMessage::default()
        })
        .with_body(body);
    let answer = client.call(addr, send, Duration::from_secs(30)).await.unwrap();
    assert_eq!(answer.code, 0);
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

#[tokio::test]
async fn a_wrongly_flagged_body_fails_by_itself_and_the_consumer_lives() {
    let cluster = Cluster::start(&["a"], 1);
    let broker = cluster.broker("a");
    let raw = ferromq_remoting::Client::new(
        ferromq_remoting::ClientConfig::default(),
        ferromq_remoting::Dispatch::none(),
    );
    let good = compress::compress(compress::Kind::Zlib, &[b'y'; 9_000]).unwrap();
    let bomb = compress::compress(compress::Kind::Zlib, &vec![0; 64 << 20]).unwrap();
    let mut cut = good.clone();
    cut.truncate(good.len() / 2);
    for (body, sys_flag) in [
        (b"plain".to_vec(), 0),
        (noise(8_192), sysflag::COMPRESSED),
        (cut, sysflag::COMPRESSED),
        (bomb, sysflag::COMPRESSED),
        (Vec::from(*b"x"), sysflag::COMPRESSED | 0x700),
        (good, sysflag::COMPRESSED),
        (b"last".to_vec(), 0),
    ] {
        store_flagged(&raw, &broker.address(), body, sys_flag).await;
    }
    let client = cluster.client();
    let read = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&read);
    // One that never looks whether the body is good: its panic costs that message only.
    let consumer = PushConsumer::start(&client, consuming::config("G"), move |delivery: Delivery| {
        let noted = Arc::clone(&noted);
        async move {
            for message in &delivery.messages {
                let body = message.body().unwrap();
                noted.lock().push((message.queue_offset, body.len()));
            }
            Outcome::Done
        }
    })
    .await
    .unwrap();
    wait_for("all to be dealt with", || {
        broker.group_offset("G", "T", 0) == Some(7)
    })
    .await;
    let mut read = read.lock().clone();
    read.sort_unstable();
    assert_eq!(read, [(0, 5), (5, 9_000), (6, 4)]);
    let mut back: Vec<_> = broker
        .asked(request::CONSUMER_SEND_MSG_BACK)
        .iter()
        .map(|back| back.ext.get("offset").unwrap().to_owned())
        .collect();
    back.sort();
    assert_eq!(
        back,
        ["1", "2", "3", "4"],
        "each goes to the retries, and from there to the dead letters"
    );
    assert_eq!(consumer.stats().failed, 4);
    client.shutdown().await;
}

/// Where no broker takes such a message back, a copy is sent: its flag must fit its bytes.
#[tokio::test]
async fn copies_of_messages_have_flags_that_fit_their_bytes() {
    let cluster = Cluster::start(&["a"], 1);
    cluster.names.set_route("%RETRY%G", route(&cluster.brokers, 1, 6));
    let broker = cluster.broker("a");
    broker.refuse(request::CONSUMER_SEND_MSG_BACK, 1);
    let raw = ferromq_remoting::Client::new(
        ferromq_remoting::ClientConfig::default(),
        ferromq_remoting::Dispatch::none(),
    );
    let text = vec![b'y'; 9_000];
    let packed = compress::compress(compress::Kind::Zlib, &text).unwrap();
    store_flagged(&raw, &broker.address(), packed, sysflag::COMPRESSED).await;
    store_flagged(&raw, &broker.address(), noise(8_192), 0).await;
    store_flagged(&raw, &broker.address(), noise(8_192), sysflag::COMPRESSED).await;
    let client = cluster.client();
    let listener = |_| async { Outcome::Retry };
    let _consumer = PushConsumer::start(&client, consuming::config("G"), listener)
        .await
        .unwrap();
    let copies = || -> Vec<Command> {
        let sends = broker.asked(request::SEND_MESSAGE_V2);
        let copies = sends.into_iter().filter(|s| s.ext.get("b") == Some("%RETRY%G"));
        copies.take(3).collect()
    };
    wait_for("the copies", || copies().len() == 3).await;
    let mut bodies: Vec<Vec<u8>> = copies()
        .iter()
        .map(|copy| {
            let flags: i32 = copy.ext.get("f").unwrap().parse().unwrap();
            match sysflag::compression(flags) {
                Some(kind) if flags & sysflag::COMPRESSED != 0 => {
                    compress::inflate(kind, &copy.body, 1 << 20).expect("flag and bytes agree")
                }
                _ => copy.body.to_vec(),
            }
        })
        .collect();
    let mut wanted = vec![text, noise(8_192), noise(8_192)];
    bodies.sort();
    wanted.sort();
    assert!(bodies == wanted, "a copy's body is not what was sent");
    client.shutdown().await;
}
