//! Peers that send rubbish: their own connection ends, every other goes on.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use ferromq_protocol::command::{Command, SerializeType};
use ferromq_protocol::frame;
use ferromq_remoting::{Limits, ServerConfig};
use tokio::io::AsyncWriteExt;

use crate::support::{Peer, TestServer, echo_table, request, until};

fn json_frame(header: &[u8], claimed: usize) -> Vec<u8> {
    let mut out = BytesMut::new();
    out.put_u32(4 + header.len() as u32);
    out.put_u32(claimed as u32);
    out.put_slice(header);
    out.to_vec()
}

fn binary_frame(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut command = Command::request(1).with_ext("topic", "TopicTest");
    command.serialize = SerializeType::Binary;
    let mut out = BytesMut::new();
    frame::encode(&command, &mut out);
    let mut bytes = out.to_vec();
    change(&mut bytes);
    bytes
}

fn rubbish() -> Vec<(&'static str, Vec<u8>)> {
    let put = |at: usize, value: u32| {
        move |bytes: &mut [u8]| bytes[at..at + 4].copy_from_slice(&value.to_be_bytes())
    };
    // In a binary frame the remark length lies at 8 + 13, the ext length at 8 + 17.
    vec![
        ("zeros", vec![0; 64]),
        ("length 3", vec![0, 0, 0, 3, 0, 0, 0, 0]),
        ("negative length", vec![0xFF, 0xFF, 0xFF, 0xFF]),
        ("one byte above the cap", 16_777_213u32.to_be_bytes().to_vec()),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("TLS hello", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3]),
        ("unknown header form", json_frame(b"{}", 2 | 7 << 24)),
        ("header longer than the frame", json_frame(b"{}", 3)),
        ("empty header", json_frame(b"", 0)),
        ("no JSON", json_frame(b"{\"code\":1", 9)),
        ("JSON that is no object", json_frame(b"[1,2]", 5)),
        ("deep JSON", {
            let deep = "{\"extFields\":".repeat(50_000);
            json_frame(deep.as_bytes(), deep.len())
        }),
        ("remark length 0x7FFFFFFF", binary_frame(put(21, 0x7FFF_FFFF))),
        ("negative remark length", binary_frame(put(21, 0xFFFF_FFFF))),
        ("ext length beyond the header", binary_frame(put(25, 1000))),
        ("ext length 0x7FFFFFFF", binary_frame(put(25, 0x7FFF_FFFF))),
        ("ext entry beyond the ext", binary_frame(|b| b[29] = 0x7F)),
        ("binary header of 4 bytes", {
            let mut out = vec![0, 0, 0, 8, 1, 0, 0, 4];
            out.extend([0; 4]);
            out
        }),
    ]
}

#[tokio::test]
async fn rubbish_ends_its_own_connection_only() {
    let server = TestServer::echo();
    let mut good = Peer::connect(server.addr).await;
    let mut opaque = 0;
    for (what, bytes) in rubbish() {
        let mut bad = Peer::connect(server.addr).await;
        // A good request before it is still answered.
        bad.send(&[request(1, 77, b"first")]).await;
        assert_eq!(bad.next().await.unwrap().opaque, 77, "{what}");
        // The server may close before all is written.
        let written = bad.stream.write_all(&bytes).await;
        loop {
            match bad.next().await {
                None => break,
                Some(answer) => assert_eq!(answer.code, 1, "{what} was answered with success ({written:?})"),
            }
        }
        opaque += 1;
        assert_eq!(
            good.ask(request(1, opaque, b"still here")).await.opaque,
            opaque,
            "after {what}"
        );
    }
    assert_eq!(server.stats.bad_frames() as usize, rubbish().len());
    assert_eq!(server.stats.open(), 1);
    server.stop().await;
}

#[tokio::test]
async fn the_reason_is_kept() {
    let server = TestServer::echo();
    let mut bad = Peer::connect(server.addr).await;
    bad.stream.write_all(&[0xFF; 4]).await.unwrap();
    assert!(bad.next().await.is_none());
    let reason = server.seen.conns.lock()[0].close_reason().unwrap();
    assert!(reason.starts_with("malformed frame: "), "{reason}");
    server.stop().await;
}

#[tokio::test]
async fn a_frame_may_come_byte_by_byte() {
    let server = TestServer::echo();
    let mut peer = Peer::connect(server.addr).await;
    let mut out = BytesMut::new();
    frame::encode(&request(1, 3, b"slow but right"), &mut out);
    for byte in &out {
        peer.stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.next().await.unwrap().body.as_ref(), b"slow but right");
    server.stop().await;
}

#[tokio::test]
async fn a_frame_that_never_ends_is_given_up_although_bytes_trickle() {
    let limits = Limits {
        idle: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = TestServer::start(
        echo_table(),
        ServerConfig {
            limits,
            ..ServerConfig::default()
        },
    );
    let mut peer = Peer::connect(server.addr).await;
    peer.stream.write_all(&[0, 1, 0, 0, 0]).await.unwrap();
    until("given up", || {
        let trickled = peer.stream.try_write(&[0]);
        server.seen.closed.load(std::sync::atomic::Ordering::SeqCst) == 1 || trickled.is_err()
    })
    .await;
    let reason = server.seen.conns.lock()[0].close_reason().unwrap();
    assert!(reason.contains("incomplete"), "{reason}");
    server.stop().await;
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn lying_lengths_take_no_memory() {
    let server = TestServer::echo();
    let before = resident_kib();
    let mut liars = Vec::new();
    for _ in 0..200 {
        let mut liar = Peer::connect(server.addr).await;
        // Says 15 MiB, sends 1 KiB.
        let mut bytes = vec![0, 0xF0, 0, 0, 0, 0, 0, 100];
        bytes.resize(1024, b' ');
        liar.stream.write_all(&bytes).await.unwrap();
        liars.push(liar);
    }
    until("all read", || server.stats.bytes_in() == 200 * 1024).await;
    // 200 × 15 MiB would be 3 GB. Other tests of this process may run meanwhile: leave them room.
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 300 * 1024, "grew by {grown} KiB");
    assert_eq!(
        Peer::connect(server.addr)
            .await
            .ask(request(1, 1, b""))
            .await
            .code,
        0
    );
    server.stop().await;
}
