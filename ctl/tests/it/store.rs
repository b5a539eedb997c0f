//! `ferroctl store` on the directory of a real broker.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use crate::cluster::{Cluster, ferroctl};

#[test]
fn a_store_is_told_checked_and_its_damage_found() {
    let cluster = Cluster::start();
    cluster.run(&["topic", "create", "T", "-c", "TestCluster"]).fine();
    cluster.run(&["bench", "send", "-t", "T", "--count", "50"]).fine();
    // A directory in use can be looked at: the log has all at once, the queues a moment later.
    let root = cluster.dir.path().join("store");
    let dir = root.to_str().unwrap();
    let seen = ferroctl("", &["store", "inspect", dir, "-o", "json"])
        .fine()
        .json();
    assert_eq!(seen["lastStop"], "unclean");
    assert!(!seen["log"].as_array().unwrap().is_empty(), "{seen}");

    let records = ferroctl("", &["store", "dump", dir, "--count", "1000", "-o", "json"])
        .fine()
        .json();
    let of_topic: Vec<_> = records
        .as_array()
        .unwrap()
        .iter()
        .filter(|r| r["topic"] == "T")
        .collect();
    assert_eq!(of_topic.len(), 50);

    let found = ferroctl("", &["store", "verify", dir, "-o", "json"])
        .fine()
        .json();
    assert_eq!(found["problemCount"], 0, "{found}");
    let plan = ferroctl("", &["store", "recover-dry-run", dir, "-o", "json"])
        .fine()
        .json();
    assert_eq!((&plan["abnormal"], &plan["end"]), (&true.into(), &found["end"]));

    let copy = tempfile::tempdir().unwrap();
    let log = copy.path().join("commitlog");
    std::fs::create_dir(&log).unwrap();
    let name = seen["log"][0]["name"].as_str().unwrap();
    std::fs::copy(root.join("commitlog").join(name), log.join(name)).unwrap();
    let broken = of_topic[40]["offset"].as_u64().unwrap();
    let file = OpenOptions::new().write(true).open(log.join(name)).unwrap();
    file.write_all_at(b"\xff\xff", broken + 88).unwrap();
    let dir = copy.path().to_str().unwrap();
    let ran = ferroctl("", &["store", "verify", dir, "-o", "json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(ran.json()["end"], broken);
    let plan = ferroctl("", &["store", "recover-dry-run", dir]).fine();
    assert!(plan.out.contains(&broken.to_string()), "{plan:?}");
    assert!(
        plan.out.lines().all(|line| line.chars().count() <= 80),
        "{plan:?}"
    );
}

#[test]
fn what_is_no_store_is_told_with_what_to_name() {
    let dir = tempfile::tempdir().unwrap();
    let ran = ferroctl("", &["store", "inspect", dir.path().to_str().unwrap()]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("storePathRootDir"), "{ran:?}");
}
