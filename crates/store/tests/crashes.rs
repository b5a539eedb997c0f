//! What is left after a stop that wasn't in order, or on a damaged disk.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
};

use common::{LOG_FILE, all, config, copy_dir, dispatched, message, names, open, put};
use ferromq_store::{FlushMode, Hooks, OpenError, Progress, Put, Store, StoreConfig};

fn moved(config: &StoreConfig, root: &Path) -> StoreConfig {
    StoreConfig {
        root: root.to_owned(),
        ..config.clone()
    }
}

/// The state of a running store, as a kill would leave it.
fn crash(config: &StoreConfig) -> (tempfile::TempDir, StoreConfig) {
    let copy = tempfile::tempdir().unwrap();
    copy_dir(&config.root, copy.path());
    let config = moved(config, copy.path());
    (copy, config)
}

fn fill(store: &Store, count: usize) -> Vec<Put> {
    (0..count)
        .map(|n| {
            put(
                store,
                &format!("t{}", n % 3),
                (n % 2) as i32,
                &vec![n as u8; 500 + n],
            )
        })
        .collect()
}

fn expected(count: usize, topic: usize, queue: usize) -> Vec<Vec<u8>> {
    (0..count)
        .filter(|n| n % 3 == topic && n % 2 == queue)
        .map(|n| vec![n as u8; 500 + n])
        .collect()
}

fn check(store: &Store, count: usize) {
    for topic in 0..3 {
        for queue in 0..2 {
            let found = all(store, &format!("t{topic}"), queue);
            assert!(
                found == expected(count, topic, queue as usize),
                "topic {topic}, queue {queue}: {}",
                found.len()
            );
        }
    }
}

#[test]
fn a_killed_store_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    fill(&store, 300);
    dispatched(&store);
    let (_copy, crashed) = crash(&config);
    store.shutdown().unwrap();
    let progress = Progress::new();
    let store = Store::open(crashed.clone(), &progress, Hooks::default()).unwrap();
    assert!(progress.abnormal());
    assert!(progress.total() > 0 && progress.done() == progress.total());
    store.start().unwrap();
    check(&store, 300);
    // A second crash, right after the first.
    let (_copy, crashed) = crash(&crashed);
    let again = open(crashed);
    check(&again, 300);
    again.shutdown().unwrap();
    store.shutdown().unwrap();
}

#[test]
fn a_handle_dropped_without_a_stop_is_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    fill(&store, 50);
    drop(store);
    assert!(config.root.join("abort").exists());
    let store = open(config);
    check(&store, 50);
    store.shutdown().unwrap();
}

fn write_log(config: &StoreConfig, at: u64, bytes: &[u8]) {
    let base = at / LOG_FILE * LOG_FILE;
    let path = config.commit_log_dir().join(format!("{base:020}"));
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, at - base)
        .unwrap();
}

#[test]
fn everything_before_the_damage_is_kept_and_nothing_behind_it_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    let puts = fill(&store, 200);
    let (_copy, crashed) = crash(&config);
    store.shutdown().unwrap();
    // A byte in the body of record 150.
    write_log(&crashed, puts[150].physical_offset as u64 + 100, &[0xee]);
    let store = open(crashed.clone());
    assert_eq!(store.figures().log_max, puts[150].physical_offset);
    check(&store, 150);
    assert!(store.look_up(puts[151].physical_offset).is_none());
    // A record of the same length ends where the stale one behind it began.
    let again = put(&store, "t0", 0, &vec![150; 650]);
    assert_eq!(
        (again.physical_offset, again.size),
        (puts[150].physical_offset, puts[150].size)
    );
    let (_copy, crashed) = crash(&crashed);
    store.shutdown().unwrap();
    let store = open(crashed);
    assert_eq!(store.figures().log_max, puts[151].physical_offset);
    check(&store, 151);
    store.shutdown().unwrap();
}

#[test]
fn a_torn_record_is_cut_after_an_orderly_stop_too() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    let puts = fill(&store, 60);
    store.shutdown().unwrap();
    write_log(&config, puts[50].physical_offset as u64 + 4, &[0; 4]);
    let store = open(config);
    check(&store, 50);
    for n in 50..60 {
        put(
            &store,
            &format!("t{}", n % 3),
            n % 2,
            &vec![n as u8; 500 + n as usize],
        );
    }
    dispatched(&store);
    check(&store, 60);
    store.shutdown().unwrap();
}

#[test]
fn a_record_in_the_wrong_place_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    let puts = fill(&store, 20);
    let end = store.figures().log_max;
    let stale = store.look_up(puts[3].physical_offset).unwrap();
    let (_copy, crashed) = crash(&config);
    store.shutdown().unwrap();
    write_log(&crashed, end as u64, &stale);
    let store = open(crashed);
    assert_eq!(store.figures().log_max, end);
    check(&store, 20);
    store.shutdown().unwrap();
}

#[test]
fn damaged_queues_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    fill(&store, 300);
    dispatched(&store);
    let units =
        |c: &StoreConfig, topic: &str, queue: i32| c.consume_queue_dir().join(topic).join(queue.to_string());
    assert!(store.shutdown().unwrap().clean);
    let damage = |config: &StoreConfig| {
        // A hole in the middle, a unit that points elsewhere at the end, a lost file, a lost queue.
        let file = |topic, queue, n: usize| {
            let dir = units(config, topic, queue);
            dir.join(&names(&dir)[n])
        };
        let open = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        open(file("t0", 0, 1)).write_all_at(&[0; 60], 100).unwrap();
        let last = names(&units(config, "t1", 0)).len() - 1;
        let f: File = open(file("t1", 0, last));
        let mut unit = [0; 20];
        f.read_exact_at(&mut unit, 0).unwrap();
        f.write_all_at(&unit, 180).unwrap();
        let last = names(&units(config, "t1", 1)).len() - 1;
        fs::remove_file(file("t1", 1, last)).unwrap();
        fs::remove_dir_all(units(config, "t2", 0)).unwrap();
    };
    damage(&config);
    fs::write(config.root.join("abort"), b"").unwrap();
    fs::remove_file(config.root.join("checkpoint")).unwrap();
    let store = open(config.clone());
    check(&store, 300);
    assert!(store.shutdown().unwrap().clean);
    // The unit at the end is noticed even if the store was stopped in order.
    let dir = units(&config, "t1", 0);
    let files = names(&dir);
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .open(dir.join(files.last().unwrap()))
        .unwrap();
    let mut content = vec![0; 400];
    f.read_exact_at(&mut content, 0).unwrap();
    let end = content.chunks(20).take_while(|u| u[8..12] != [0; 4]).count();
    f.write_all_at(&content[..20], (end as u64 - 1) * 20).unwrap();
    let store = open(config);
    check(&store, 300);
    store.shutdown().unwrap();
}

#[test]
fn queues_that_are_all_gone_are_made_again_from_the_whole_log() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    fill(&store, 300);
    dispatched(&store);
    // From here on the checkpoint says that everything up to here is in the queues.
    config.clock.set(common::T0 + 60_000);
    for n in 0..200 {
        put(&store, "later", 0, &[n; 700]);
    }
    dispatched(&store);
    store.shutdown().unwrap();
    let store = open(config.clone());
    dispatched(&store);
    let (_copy, killed) = crash(&config);
    fs::remove_dir_all(killed.consume_queue_dir()).unwrap();
    let store_again = open(killed.clone());
    check(&store_again, 300);
    store_again.shutdown().unwrap();
    fs::remove_dir_all(killed.consume_queue_dir()).unwrap();
    check(&open(killed), 300);
}

#[test]
fn an_index_that_may_be_incomplete_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    for n in 0..120 {
        config.clock.set(common::T0 + n * 1_000);
        store
            .put(message("t", 0, &[n as u8; 900], &format!("KEYS\u{1}k{n}")))
            .unwrap();
    }
    dispatched(&store);
    let (_copy, crashed) = crash(&config);
    store.shutdown().unwrap();
    let newest = names(&crashed.index_dir()).pop().unwrap();
    fs::write(crashed.index_dir().join(newest), b"").unwrap();
    let store = open(crashed);
    for n in 0..120 {
        let key = format!("k{n}");
        let query = ferromq_store::KeyQuery {
            topic: "t",
            key: &key,
            max_messages: 9,
            begin: 0,
            end: i64::MAX,
        };
        assert_eq!(store.query(&query).records.len(), 1, "{key}");
    }
    store.shutdown().unwrap();
}

#[test]
fn foreign_and_empty_files_do_not_keep_the_store_closed() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    fill(&store, 100);
    dispatched(&store);
    store.shutdown().unwrap();
    let log = config.commit_log_dir();
    fs::write(log.join("README"), b"hello").unwrap();
    fs::create_dir(log.join("lost+found")).unwrap();
    let next = names(&log)
        .iter()
        .filter_map(|n| n.parse::<u64>().ok())
        .max()
        .unwrap()
        + LOG_FILE;
    fs::write(log.join(format!("{next:020}")), b"").unwrap();
    fs::write(config.consume_queue_dir().join("stray"), b"").unwrap();
    fs::create_dir(config.consume_queue_dir().join("t0/not-a-queue")).unwrap();
    let queue = config.consume_queue_dir().join("t0/0");
    fs::write(queue.join("notes.txt"), b"").unwrap();
    let next = names(&queue)
        .iter()
        .filter_map(|n| n.parse::<u64>().ok())
        .max()
        .unwrap()
        + 400;
    fs::write(queue.join(format!("{next:020}")), [0; 7]).unwrap();
    fs::write(config.index_dir().join("tmp"), b"").unwrap();
    let store = open(config.clone());
    check(&store, 100);
    assert!(store.shutdown().unwrap().clean);
    assert!(log.join("README").exists());
    // A gap is no crash: somebody has to look.
    let first = names(&log).remove(0);
    let kept = fs::read(log.join(&first)).unwrap();
    fs::write(log.join(format!("{:020}", LOG_FILE * 9)), &kept).unwrap();
    let error = Store::open(config, &Progress::new(), Hooks::default()).unwrap_err();
    assert!(matches!(error, OpenError::Gap { .. }), "{error}");
}

#[test]
fn queues_without_a_log_are_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    fill(&store, 10);
    dispatched(&store);
    store.shutdown().unwrap();
    fs::remove_dir_all(config.commit_log_dir()).unwrap();
    let store = open(config);
    assert_eq!(store.queues(), []);
    assert_eq!(put(&store, "t0", 0, b"first").queue_offset, 0);
    store.shutdown().unwrap();
}

/// Not a test of its own: what the next one starts as another process.
#[test]
fn child_that_appends_until_killed() {
    let Ok(root) = std::env::var("FERROMQ_STORE_CHILD") else {
        return;
    };
    let store = open(StoreConfig {
        flush_mode: FlushMode::Sync,
        ..config(Path::new(&root))
    });
    for n in 0u64.. {
        let appended = put(&store, "t", (n % 4) as i32, &n.to_be_bytes());
        appended.ack.wait();
        println!("acked {n} {}", appended.queue_offset);
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    for round in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child_that_appends_until_killed",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("FERROMQ_STORE_CHILD", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acked = Vec::new();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut locked = false;
        for line in lines {
            let line = line.unwrap();
            // The harness puts its own words before the first line.
            let Some(at) = line.find("acked ") else { continue };
            let n: u64 = line[at + 6..].split(' ').next().unwrap().parse().unwrap();
            acked.push(n);
            if !locked {
                let second = Store::open(config(dir.path()), &Progress::new(), Hooks::default());
                assert!(
                    matches!(second, Err(OpenError::Locked { .. })),
                    "another process has it"
                );
                locked = true;
            }
            if acked.len() == 100 + round * 150 {
                child.kill().unwrap();
                break;
            }
        }
        child.wait().unwrap();
        let store = open(config(dir.path()));
        let queues: Vec<_> = (0..4).map(|q| all(&store, "t", q)).collect();
        for n in &acked {
            assert_eq!(queues[(n % 4) as usize][(n / 4) as usize], n.to_be_bytes(), "{n}");
        }
        store.shutdown().unwrap();
    }
}
