//! Disks that lie, fail, fill up or lose power: what was acknowledged stays, what fails is told, reads go on.
#![allow(clippy::unwrap_used)]

mod common;
mod disk;

use std::{fs, os::unix::fs::FileExt, time::Duration};

use common::{LOG_FILE, all, config, dispatched, message, names, open, until};
use disk::{Disk, Fault, Op, Rng, What};
use ferromq_store::{
    FlushMode, Hooks, KeyQuery, OpenError, Progress, Put, PutError, PutStatus, Store, StoreConfig,
    WriteRefusal,
};
use fuser::Errno;

/// Small files on that disk; an append is acknowledged when it's safe.
fn on(disk: &Disk) -> StoreConfig {
    StoreConfig {
        flush_mode: FlushMode::Sync,
        flush_consume_queue_thorough_interval: 50,
        clean_resource_interval: 100,
        ..config(&disk.path())
    }
}

fn body(n: usize) -> Vec<u8> {
    vec![n as u8 | 1; 300 + n * 37 % 2_000]
}

fn put(store: &Store, n: usize) -> Result<Put, PutError> {
    let config = store.config();
    config.clock.set(common::T0 + n as i64 * 700);
    let key = format!("KEYS\u{1}k{n}");
    store.put(message(&format!("t{}", n % 2), (n % 3) as i32, &body(n), &key))
}

/// Puts message `n` and waits for its acknowledgement.
fn send(store: &Store, n: usize) -> Result<PutStatus, PutError> {
    Ok(put(store, n)?.ack.wait())
}

/// Sends message `n` as soon as the store takes some again.
fn resume(store: &Store, n: usize) {
    until("sends to resume", || {
        store.delete_expired_files();
        send(store, n).is_ok()
    });
}

/// Whether the messages of `sent` are all there, in their order, and found by their keys; others may be among them.
fn has(store: &Store, sent: &[usize]) {
    dispatched(store);
    in_queues(store, sent);
    until("the index", || sent.iter().all(|n| indexed(store, *n) > 0));
}

fn in_queues(store: &Store, sent: &[usize]) {
    for topic in 0..2 {
        for queue in 0..3 {
            let name = format!("t{topic}");
            let found = all(store, &name, queue);
            let mut at = 0;
            for n in sent
                .iter()
                .filter(|n| *n % 2 == topic && (*n % 3) as i32 == queue)
            {
                let place = found[at..].iter().position(|b| *b == body(*n));
                at += place.unwrap_or_else(|| panic!("message {n} of {name} {queue} is gone")) + 1;
            }
        }
    }
}

fn indexed(store: &Store, n: usize) -> usize {
    let query = KeyQuery {
        topic: &format!("t{}", n % 2),
        key: &format!("k{n}"),
        max_messages: 8,
        begin: 0,
        end: i64::MAX,
    };
    store.query(&query).records.len()
}

#[test]
fn the_disk_keeps_what_was_synced_and_may_lose_the_rest() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.path().join("f");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len(16_384).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    assert!(
        (0..40).any(|seed| disk.power_loss(seed).files().count() == 0),
        "its name isn't safe"
    );
    fs::File::open(disk.path()).unwrap().sync_all().unwrap();
    let map = memmap2::MmapOptions::new().map_raw(&file).unwrap();
    let mut seen = [false; 2];
    file.write_all_at(&[2; 4096], 8192).unwrap();
    for seed in 0..200 {
        let image = disk.power_loss(seed);
        let (_, bytes) = image.files().next().unwrap();
        assert!(bytes.len() == 16_384 && bytes[..4096] == [1; 4096]);
        seen[usize::from(bytes[8192] == 2)] = true;
    }
    assert_eq!(seen, [true, true]);
    drop(map);
    disk.fault(Fault::once(Op::Fsync, "f", Errno::EIO));
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert!((0..50).all(|seed| disk.power_loss(seed).files().next().unwrap().1[8192] == 0));
}

#[test]
fn a_failed_sync_fails_the_put_and_stops_writes_until_a_restart() {
    for op in [Op::Fsync, Op::Write] {
        let Some(disk) = Disk::new() else { return };
        let store = open(on(&disk));
        let mut sent: Vec<usize> = (0..40).collect();
        for n in &sent {
            assert_eq!(send(&store, *n).unwrap(), PutStatus::Ok);
        }
        dispatched(&store);
        disk.fault(Fault::once(op, "commitlog/", Errno::EIO));
        let failed = send(&store, 40);
        // A write that the disk refuses is known at once, and its message isn't in the log.
        assert!(
            match op {
                Op::Write => matches!(failed, Err(PutError::Unknown(_))),
                _ => matches!(failed, Ok(PutStatus::FlushFailed)),
            },
            "{op:?}: {failed:?}"
        );
        for _ in 0..3 {
            let refused = send(&store, 41);
            assert!(
                matches!(refused, Err(PutError::NotWritable(WriteRefusal::FlushFailed))),
                "{op:?}: {refused:?}"
            );
        }
        has(&store, &sent);
        assert!(!store.shutdown().unwrap().clean);
        drop(store);
        // The kernel still shows what never reached the disk, and thinks that it's there.
        let store = open(on(&disk));
        for n in 50..80 {
            assert_eq!(send(&store, n).unwrap(), PutStatus::Ok);
            sent.push(n);
        }
        let image = disk.power_loss(7);
        drop(store);
        let disk = Disk::with(&image);
        let store = open(on(&disk));
        has(&store, &sent);
        store.shutdown().unwrap();
    }
}

/// Appends go to memory first, and are copied and synced every millisecond.
fn pooled(disk: &Disk) -> StoreConfig {
    StoreConfig {
        flush_mode: FlushMode::Async,
        transient_store_pool: true,
        commit_interval: 1,
        commit_thorough_interval: 1,
        flush_interval_commit_log: 1,
        flush_commit_log_least_pages: 0,
        flush_commit_log_thorough_interval: 1,
        ..on(disk)
    }
}

/// Sends the messages and waits until they are on the disk.
fn synced(store: &Store, messages: std::ops::RangeInclusive<usize>) {
    for n in messages {
        let at = put(store, n).unwrap().physical_offset;
        until("the sync", || store.figures().log_flushed > at);
    }
}

#[test]
fn a_failing_disk_under_the_transient_pool_stops_writes_and_loses_nothing_synced() {
    for op in [Op::Fsync, Op::Write] {
        let Some(disk) = Disk::new() else { return };
        let store = open(pooled(&disk));
        synced(&store, 0..=59);
        let mut sent: Vec<usize> = (0..60).collect();
        disk.fault(Fault::once(op, "commitlog/", Errno::EIO));
        until("a refusal", || {
            matches!(
                send(&store, 60),
                Err(PutError::NotWritable(WriteRefusal::FlushFailed))
            )
        });
        has(&store, &sent);
        assert!(!store.shutdown().unwrap().clean);
        drop(store);
        let disk = Disk::with(&disk.power_loss(9));
        let store = open(pooled(&disk));
        has(&store, &sent);
        synced(&store, 100..=159);
        sent.extend(100..160);
        let image = disk.power_loss(11);
        drop(store);
        let disk = Disk::with(&image);
        let store = open(pooled(&disk));
        has(&store, &sent);
        assert!(store.shutdown().unwrap().clean);
    }
}

#[test]
fn a_full_disk_under_the_transient_pool_is_a_status_and_loses_nothing_taken() {
    for pages in (0..64).step_by(9) {
        let Some(disk) = Disk::new() else { return };
        let store = open(pooled(&disk));
        synced(&store, 0..=4);
        disk.leave(pages * 4096);
        let mut sent: Vec<usize> = (0..5).collect();
        let mut next = 5;
        for _ in 0..200 {
            match send(&store, next) {
                Ok(PutStatus::Ok) => sent.push(next),
                Err(PutError::CreateFile(_) | PutError::NotWritable(WriteRefusal::DiskFull)) => {}
                other => panic!("{pages} pages: {other:?}"),
            }
            next += 1;
        }
        assert!(sent.len() < 200, "{pages} pages: the disk was not full");
        disk.heal();
        resume(&store, next);
        sent.push(next);
        synced(&store, next + 1..=next + 1);
        has(&store, &sent);
        assert!(store.shutdown().unwrap().clean);
        drop(store);
        let store = open(pooled(&disk));
        has(&store, &sent);
        assert!(store.shutdown().unwrap().clean);
    }
}

#[test]
fn a_failed_sync_of_a_queue_or_of_the_index_is_not_forgotten() {
    for path in ["consumequeue/", "index/"] {
        let Some(disk) = Disk::new() else { return };
        let store = open(on(&disk));
        let mut sent = Vec::new();
        disk.fault(Fault {
            skip: 2,
            ..Fault::once(Op::Fsync, path, Errno::EIO)
        });
        let mut n = 0;
        // What is acknowledged meanwhile is in the log.
        while disk.struck(Op::Fsync) == 0 {
            if send(&store, n).is_ok_and(|s| s == PutStatus::Ok) {
                sent.push(n);
            }
            n += 1;
            assert!(n < 20_000);
        }
        for _ in 0..100 {
            if send(&store, n).is_ok_and(|s| s == PutStatus::Ok) {
                sent.push(n);
            }
            n += 1;
        }
        has(&store, &sent);
        let stopped = store.shutdown();
        assert!(!stopped.is_ok_and(|r| r.clean), "the next start has to look");
        for seed in 0..4 {
            let disk = Disk::with(&disk.power_loss(seed));
            let store = open(on(&disk));
            has(&store, &sent);
            store.shutdown().unwrap();
        }
    }
}

#[test]
fn wherever_the_disk_is_full_it_is_a_status_and_sends_resume() {
    let Some(disk) = Disk::new() else { return };
    drop(disk);
    let mut at_open = 0;
    for pages in (0..64).step_by(3) {
        let disk = Disk::new().unwrap();
        disk.leave(pages * 4096);
        let opened = Store::open(on(&disk), &Progress::new(), Hooks::default());
        let mut sent = Vec::new();
        let mut next = 0;
        let store = match opened {
            Ok(store) => match store.start() {
                Ok(()) => store,
                Err(error) => {
                    assert!(error.to_string().contains("space"), "{error}");
                    at_open += 1;
                    disk.heal();
                    drop(store);
                    open(on(&disk))
                }
            },
            Err(error) => {
                assert!(error.to_string().contains("space"), "{error}");
                at_open += 1;
                disk.heal();
                open(on(&disk))
            }
        };
        let mut refused = 0;
        for _ in 0..150 {
            match send(&store, next) {
                Ok(PutStatus::Ok) => sent.push(next),
                Ok(status) => panic!("{status:?}"),
                Err(PutError::CreateFile(_) | PutError::NotWritable(WriteRefusal::DiskFull)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            next += 1;
        }
        // Reads go on.
        if refused > 0 && store.figures().dispatch_behind == 0 {
            in_queues(&store, &sent);
        }
        disk.heal();
        resume(&store, next);
        sent.push(next);
        has(&store, &sent);
        for n in &sent {
            assert_eq!(indexed(&store, *n), 1, "{pages} pages");
        }
        let image = disk.power_loss(pages);
        drop(store);
        let disk = Disk::with(&image);
        let store = open(on(&disk));
        has(&store, &sent);
        assert!(store.shutdown().unwrap().clean);
    }
    assert!(at_open > 0);
}

#[test]
fn a_store_opens_on_a_full_disk_and_is_whole_when_there_is_room() {
    let Some(disk) = Disk::new() else { return };
    let store = open(on(&disk));
    let sent: Vec<usize> = (0..130).collect();
    for n in &sent {
        assert_eq!(send(&store, *n).unwrap(), PutStatus::Ok);
    }
    dispatched(&store);
    for (seed, clean) in [(1, false), (2, false), (3, false), (4, true)] {
        let disk = if clean {
            assert!(store.shutdown().unwrap().clean);
            Disk::with(&disk.power_loss(0))
        } else {
            Disk::with(&disk.power_loss(seed))
        };
        if seed == 3 {
            // Made, but not given its length when the disk was full.
            let log = disk.path().join("commitlog");
            let last = names(&log).last().unwrap().parse::<u64>().unwrap();
            fs::write(log.join(format!("{:020}", last + LOG_FILE)), b"").unwrap();
        }
        disk.leave(0);
        let store = open(on(&disk));
        disk.heal();
        resume(&store, 200);
        has(&store, &sent);
        has(&store, &[200]);
        store.shutdown().unwrap();
    }
}

#[test]
fn short_writes_are_gone_on_with() {
    let Some(disk) = Disk::new() else { return };
    for path in ["consumequeue/", "checkpoint", "config/", "lock"] {
        disk.fault(Fault {
            what: What::Short(7),
            ..Fault::always(Op::Write, path, Errno::EIO)
        });
    }
    let store = open(on(&disk));
    let sent: Vec<usize> = (0..60).collect();
    for n in &sent {
        assert_eq!(send(&store, *n).unwrap(), PutStatus::Ok);
    }
    has(&store, &sent);
    assert!(store.shutdown().unwrap().clean);
    assert!(disk.struck(Op::Write) > 10);
    let store = open(on(&disk));
    has(&store, &sent);
    store.shutdown().unwrap();
}

#[test]
fn a_slow_sync_is_told_and_the_message_is_there() {
    let Some(disk) = Disk::new() else { return };
    let store = open(StoreConfig {
        sync_flush_timeout: 50,
        ..on(&disk)
    });
    assert_eq!(send(&store, 0).unwrap(), PutStatus::Ok);
    disk.fault(Fault {
        what: What::Slow(Duration::from_millis(600)),
        ..Fault::once(Op::Fsync, "commitlog/", Errno::EIO)
    });
    assert_eq!(send(&store, 1).unwrap(), PutStatus::FlushDiskTimeout);
    until("the sync", || {
        store.figures().log_flushed == store.figures().log_max
    });
    assert_eq!(send(&store, 2).unwrap(), PutStatus::Ok);
    has(&store, &[0, 1, 2]);
    let image = disk.power_loss(3);
    drop(store);
    let disk = Disk::with(&image);
    has(&open(on(&disk)), &[0, 1, 2]);
}

#[test]
fn a_disk_without_fallocate_is_written_instead() {
    let Some(disk) = Disk::new() else { return };
    disk.without_fallocate();
    let store = open(on(&disk));
    let sent: Vec<usize> = (0..130).collect();
    for n in &sent {
        assert_eq!(send(&store, *n).unwrap(), PutStatus::Ok);
    }
    dispatched(&store);
    let image = disk.power_loss(5);
    drop(store);
    let disk = Disk::with(&image);
    disk.without_fallocate();
    let store = open(on(&disk));
    has(&store, &sent);
    assert!(store.shutdown().unwrap().clean);
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_no_signal() {
    let Some(disk) = Disk::new() else { return };
    let store = open(on(&disk));
    let sent: Vec<usize> = (0..130).collect();
    for n in &sent {
        assert_eq!(send(&store, *n).unwrap(), PutStatus::Ok);
    }
    dispatched(&store);
    assert!(store.shutdown().unwrap().clean);
    let disk = Disk::with(&disk.power_loss(1));
    let store = open(on(&disk));
    dispatched(&store);
    disk.fault(Fault::always(
        Op::Read,
        "commitlog/00000000000000000000",
        Errno::EIO,
    ));
    disk.forget_cached("commitlog/00000000000000000000");
    let request = ferromq_store::GetRequest {
        topic: "t0",
        queue_id: 0,
        offset: 0,
        max_messages: 5,
    };
    let read = store.get(&request, &ferromq_store::NoFilter);
    assert!(!read.is_ok_and(|r| r.count > 0));
    assert!(store.look_up(0).is_none());
    assert_eq!(indexed(&store, 0), 0);
    assert_eq!(
        send(&store, 200).unwrap(),
        PutStatus::Ok,
        "others aren't concerned"
    );
    disk.heal();
    store.shutdown().unwrap();
    drop(store);
    let store = open(on(&disk));
    has(&store, &sent);
    store.shutdown().unwrap();
}

#[test]
fn an_index_that_cannot_be_made_stops_nothing_and_fills_no_disk() {
    let Some(disk) = Disk::new() else { return };
    let store = open(on(&disk));
    disk.fault(Fault::always(Op::Fallocate, "index/", Errno::ENOMEM));
    let sent: Vec<usize> = (0..200).collect();
    for n in &sent {
        assert_eq!(send(&store, *n).unwrap(), PutStatus::Ok);
    }
    dispatched(&store);
    until("a second try", || disk.struck(Op::Fallocate) > 1);
    assert!(
        names(&disk.path().join("index")).len() <= 1,
        "{:?}",
        names(&disk.path().join("index"))
    );
    assert_eq!(send(&store, 200).unwrap(), PutStatus::Ok);
    disk.heal();
    until("the index", || (0..=200).all(|n| indexed(&store, n) == 1));
    assert!(store.shutdown().unwrap().clean);
}

/// A run that power ends at its change number `at`. Returns what was acknowledged, and whether it came to that.
fn run_until(disk: &Disk, at: u64, seed: u64, from: usize) -> (Vec<usize>, bool) {
    disk.lose_power_at(disk.changes() + at, seed);
    let mut sent = Vec::new();
    let Ok(store) = Store::open(on(disk), &Progress::new(), Hooks::default()) else {
        return (sent, disk.lost_power());
    };
    store.start().unwrap();
    for n in from..from + 90 {
        let status = send(&store, n);
        if disk.lost_power() {
            break;
        }
        assert_eq!(status.unwrap(), PutStatus::Ok);
        sent.push(n);
        if n % 8 == 0 {
            disk.write_back();
        }
    }
    if !disk.lost_power() {
        assert!(store.shutdown().unwrap().clean || disk.lost_power());
    }
    (sent, disk.lost_power())
}

#[test]
fn whenever_power_is_lost_nothing_acknowledged_is() {
    let rounds: u64 = std::env::var("POWER_LOSSES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(10);
    let Some(first) = Disk::new() else { return };
    run_until(&first, u64::MAX, 0, 0);
    let whole = first.changes();
    let mut rng = Rng::new(rounds);
    for round in 0..rounds {
        let seed = rng.next();
        let mut acked = Vec::new();
        let mut disk = Disk::new().unwrap();
        let mut steps = Vec::new();
        // The second and third loss come early: most often during recovery.
        for (step, span) in [whole, 40, 60, whole].into_iter().enumerate() {
            let at = rng.below(span);
            steps.push((at, seed + step as u64));
            let (sent, _) = run_until(&disk, at, seed + step as u64, step * 1_000);
            acked.extend(sent);
            disk = Disk::with(&disk.power_loss(seed));
            let copy = tempfile::tempdir().unwrap();
            disk_copy(&disk, copy.path());
            let store = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                open(StoreConfig {
                    root: copy.path().to_owned(),
                    ..on(&disk)
                })
            }));
            let store = store.unwrap_or_else(|_| panic!("round {round}, {steps:?}: it does not open"));
            let check = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                has(&store, &acked);
                let twice = acked.iter().find(|n| indexed(&store, **n) != 1);
                assert_eq!(twice, None, "found by its key more than once");
            }));
            if check.is_err() {
                let kept = copy.keep();
                panic!("round {round}, {steps:?}; kept {}", kept.display());
            }
            store.shutdown().unwrap();
        }
    }
}

fn disk_copy(disk: &Disk, to: &std::path::Path) {
    disk.power_loss(0).write_to(to);
}

#[test]
fn a_log_whose_end_cannot_be_read_is_not_cut() {
    let Some(disk) = Disk::new() else { return };
    let store = open(on(&disk));
    let sent: Vec<usize> = (0..130).collect();
    for n in &sent {
        assert_eq!(send(&store, *n).unwrap(), PutStatus::Ok);
    }
    let end = store.figures().log_max as u64;
    let image = disk.power_loss(0);
    drop(store);
    let disk = Disk::with(&image);
    let last = format!("commitlog/{:020}", end / LOG_FILE * LOG_FILE);
    disk.fault(Fault::always(Op::Read, &last, Errno::EIO));
    let error = Store::open(on(&disk), &Progress::new(), Hooks::default()).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    disk.heal();
    let store = open(on(&disk));
    has(&store, &sent);
    store.shutdown().unwrap();
}
