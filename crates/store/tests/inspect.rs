//! Looking at a store from outside: Java's sample stores and damaged ones, and that nothing is ever written.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    ops::ControlFlow,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use ferromq_store::inspect::{LastStop, Place, dry_run, inspect, records, verify};

const SLOTS: u32 = 200;

fn sample(kind: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/java-store")
        .join(format!("{kind}.tar.zst"));
    let tar = zstd::Decoder::new(File::open(path).unwrap()).unwrap();
    tar::Archive::new(tar).unpack(dir.path()).unwrap();
    let root = dir.path().join("store");
    (dir, root)
}

/// Every file with its content and time.
fn content(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(content(&path));
        } else {
            let time = fs::metadata(&path).unwrap().modified().unwrap();
            all.insert(path.clone(), (fs::read(&path).unwrap(), time));
        }
    }
    all
}

fn last_log_file(root: &Path) -> PathBuf {
    let mut files: Vec<_> = fs::read_dir(root.join("commitlog"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files.pop().unwrap()
}

#[test]
fn a_clean_store_of_javas_broker_has_no_problem() {
    let (_dir, root) = sample("clean");
    let before = content(&root);
    let seen = inspect(&root.clone().into()).unwrap();
    assert_eq!(seen.last_stop, LastStop::Clean);
    assert_eq!(seen.log_file_size, 1 << 20);
    assert!(!seen.queues.is_empty() && !seen.index.is_empty() && !seen.tables.is_empty());
    assert!(seen.checkpoint.log > 0);

    let found = verify(&root.clone().into(), SLOTS, &mut |_| {}).unwrap();
    assert_eq!(found.problems, []);
    assert!(
        found.records > 0 && found.units > 0 && found.entries > 0,
        "{found:?}"
    );
    let mut count = 0;
    let end = records(&root.clone().into(), None, &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((count, end), (found.records, found.end));

    let plan = dry_run(&root.clone().into(), &mut |_| {}).unwrap();
    assert!(!plan.abnormal);
    assert_eq!((plan.end, plan.why, plan.queues_cut), (found.end, None, vec![]));
    assert!(content(&root) == before, "something was written");
}

#[test]
fn a_store_of_a_killed_broker_is_told_as_such() {
    let (_dir, root) = sample("crash");
    let before = content(&root);
    assert_eq!(
        inspect(&root.clone().into()).unwrap().last_stop,
        LastStop::Unclean
    );
    let plan = dry_run(&root.clone().into(), &mut |_| {}).unwrap();
    assert!(plan.abnormal);
    assert!(content(&root) == before, "something was written");
}

#[test]
fn damage_is_named_where_recovery_would_cut() {
    let (_dir, root) = sample("clean");
    let whole = verify(&root.clone().into(), SLOTS, &mut |_| {}).unwrap();
    // The body of the last record but a few: it begins 88 bytes into the record.
    let mut starts = Vec::new();
    records(&root.clone().into(), None, &mut |record| {
        starts.push(record.physical_offset as u64);
        ControlFlow::Continue(())
    })
    .unwrap();
    let start = starts[starts.len() - 5];
    let path = last_log_file(&root);
    let base: u64 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
    assert!(start >= base, "the sample's last file has more than five records");
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 4], start - base + 88).unwrap();

    let found = verify(&root.clone().into(), SLOTS, &mut |_| {}).unwrap();
    assert_eq!((found.records, found.end), (whole.records - 5, start));
    let log: Vec<_> = found
        .problems
        .iter()
        .filter(|p| p.at.contains("commitlog"))
        .collect();
    assert_eq!(log.len(), 1, "{found:?}");
    assert!(log[0].at.contains(&start.to_string()), "{log:?}");

    let plan = dry_run(&root.clone().into(), &mut |_| {}).unwrap();
    assert_eq!(plan.end, start);
    assert!(plan.why.is_some());
    let units: u64 = plan.queues_cut.iter().map(|cut| cut.units).sum();
    assert!((1..=5).contains(&units), "{plan:?}");
}

#[test]
fn a_folder_that_is_no_store_is_an_error_that_says_what_to_name() {
    let dir = tempfile::tempdir().unwrap();
    let error = inspect(&dir.path().into()).unwrap_err().to_string();
    assert!(error.contains("storePathRootDir"), "{error}");
}

#[test]
fn a_log_over_several_directories_is_one_log() {
    let (_dir, root) = sample("clean");
    let whole = verify(&root.clone().into(), SLOTS, &mut |_| {}).unwrap();
    let names = common::names(&root.join("commitlog"));
    assert!(names.len() > 1, "{names:?}");
    // Every other file on a further disk.
    let other = root.join("other");
    fs::create_dir(&other).unwrap();
    for name in names.iter().skip(1).step_by(2) {
        fs::rename(root.join("commitlog").join(name), other.join(name)).unwrap();
    }
    let place = Place {
        log_dirs: vec![root.join("commitlog"), other],
        root: root.clone(),
    };
    let parted = verify(&place, SLOTS, &mut |_| {}).unwrap();
    assert_eq!(
        (parted.records, parted.end, parted.problem_count),
        (whole.records, whole.end, 0)
    );
    assert_eq!(inspect(&place).unwrap().log.len(), names.len());
    assert_eq!(dry_run(&place, &mut |_| {}).unwrap().end, whole.end);
    // With one of the directories only, files are missing.
    assert!(verify(&root.into(), SLOTS, &mut |_| {}).unwrap().problem_count > 0);
}
