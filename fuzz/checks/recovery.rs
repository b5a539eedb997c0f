//! What has to hold for a store whose files anything may have happened to: it opens or says why not; it serves only what was
//! sent, in order; and it goes on.
//!
//! ```text
//! input     u8 which store: 0 stopped in order, 1 killed · edits of 8 bytes
//! edit      u8 file · u8 kind · u24 position · u8 length · u8 value · u8 more
//! ```

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io,
    net::SocketAddr,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use ferromq_protocol::record::{self, Check};
use ferromq_store::{Clock, GetRequest, Hooks, KeyQuery, NoFilter, Progress, PutMessage, Store, StoreConfig};

const T0: i64 = 1_700_000_000_000;
const LOG_FILE: u64 = 16 << 10;

fn config(root: &Path) -> StoreConfig {
    StoreConfig {
        root: root.to_owned(),
        commit_log_file_size: LOG_FILE,
        consume_queue_file_size: 400,
        max_hash_slot_num: 40,
        max_index_num: 30,
        max_message_size: 8 << 10,
        disk_max_used_space_ratio: 95,
        disk_space_clean_forcibly_ratio: 100,
        disk_space_warning_level_ratio: 100,
        delete_when: String::new(),
        clock: Clock::manual(T0),
        ..StoreConfig::default()
    }
}

fn host() -> SocketAddr {
    SocketAddr::from(([10, 1, 2, 3], 54_321))
}

fn body(n: usize) -> Vec<u8> {
    format!("{n} ").into_bytes().repeat(10 + n * 17 % 150)
}

/// Two stores with the same messages, one stopped in order and one killed.
struct Base {
    stores: [Files; 2],
    bodies: HashSet<Vec<u8>>,
}

/// Files by their paths in the store.
type Files = Vec<(PathBuf, Vec<u8>)>;

fn load(dir: &Path) -> io::Result<Files> {
    let mut found = Vec::new();
    files(dir, &mut found)?;
    let read = found.into_iter().map(|path| {
        let content = fs::read(&path)?;
        Ok((
            path.strip_prefix(dir).map(Path::to_owned).unwrap_or(path),
            content,
        ))
    });
    read.collect()
}

fn make_base() -> io::Result<Base> {
    let dir = tempfile::tempdir()?;
    let config = config(dir.path());
    let clock = config.clock.clone();
    let store = Store::open(config, &Progress::new(), Hooks::default()).expect("an empty directory opens");
    store.start().expect("and starts");
    for n in 0..70 {
        clock.set(T0 + n as i64 * 900);
        let properties = format!("KEYS\u{1}k{n}\u{2}TAGS\u{1}a{}", n % 3);
        store
            .put(message(n, &body(n), &properties))
            .expect("it takes messages");
    }
    while store.figures().dispatch_behind > 0 {
        std::thread::yield_now();
    }
    let killed = load(dir.path())?;
    store.shutdown().expect("it stops");
    Ok(Base {
        stores: [load(dir.path())?, killed],
        bodies: (0..70).map(body).collect(),
    })
}

fn message<'a>(n: usize, body: &'a [u8], properties: &'a str) -> PutMessage<'a> {
    PutMessage {
        topic: ["t", "u"][n % 2],
        queue_id: (n % 4 / 2) as i32,
        flag: 0,
        sys_flag: 0,
        born_timestamp: T0,
        born_host: host(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties,
        wait_store_ok: true,
    }
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|e| e.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Values that offsets and sizes go wrong at, and the two magic numbers.
const EDGES: [i64; 14] = [
    0,
    1,
    -1,
    20,
    91,
    400,
    LOG_FILE as i64,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
    0xdaa3_20a7,
    0xcbd4_3194,
    1 << 40,
];

fn edit(files: &[PathBuf], edit: [u8; 8]) -> io::Result<()> {
    let path = &files[usize::from(edit[0]) % files.len()];
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else {
        return Ok(());
    };
    let len = file.metadata()?.len();
    let at = u64::from(u32::from_be_bytes([0, edit[2], edit[3], edit[4]])) % (len + 1);
    let (count, value) = (u64::from(edit[5]), edit[6]);
    let put = |file: &File, at: u64, bytes: &[u8]| {
        let n = (bytes.len() as u64).min(len.saturating_sub(at)) as usize;
        file.write_all_at(&bytes[..n], at)
    };
    match edit[1] % 9 {
        0 => put(&file, at, &vec![value; count as usize]),
        1 => {
            let mut byte = [0];
            if file.read_at(&mut byte, at)? == 1 {
                put(&file, at, &[byte[0] ^ (value | 1)])?;
            }
            Ok(())
        }
        2 => file.set_len(at),
        3 => put(&file, at, &vec![0; count as usize * 64]),
        4 => fs::remove_file(path),
        5 => put(&file, at, &EDGES[usize::from(value) % EDGES.len()].to_be_bytes()),
        6 => put(
            &file,
            at,
            &(EDGES[usize::from(value) % EDGES.len()] as i32).to_be_bytes(),
        ),
        7 => {
            // Bytes from elsewhere in the file: stale records, units of another offset.
            let mut bytes = vec![0; count as usize * 8];
            let from = (u64::from(value) * 97) % (len + 1);
            let n = file.read_at(&mut bytes, from)?;
            put(&file, at, &bytes[..n])
        }
        _ => fs::write(
            path.with_file_name(format!("{:020}", u64::from(value) * 400)),
            vec![edit[7]; count as usize],
        ),
    }
}

/// Opens the store that `data` describes and looks at what it serves.
pub fn recovery(data: &[u8]) {
    static BASE: OnceLock<Base> = OnceLock::new();
    let base = BASE.get_or_init(|| make_base().expect("write to the temporary directory"));
    let Some((which, edits)) = data.split_first() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut paths = Vec::new();
    for (path, content) in &base.stores[usize::from(*which) % 2] {
        let path = dir.path().join(path);
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .expect("make a directory");
        fs::write(&path, content).expect("copy a file");
        paths.push(path);
    }
    for bytes in edits.as_chunks::<8>().0.iter().take(16) {
        edit(&paths, *bytes).expect("change the store");
    }
    let config = config(dir.path());
    let opened = Store::open(config.clone(), &Progress::new(), Hooks::default());
    let Ok(store) = opened else { return };
    if store.start().is_err() {
        return;
    }
    check(&store, base, *which % 2 == 1);
    store
        .put(message(1_000, b"on", ""))
        .expect("it takes messages again");
    drop(store);
    // What recovery left is opened again without complaint.
    let store = Store::open(config, &Progress::new(), Hooks::default()).expect("what was repaired opens");
    store.start().expect("and starts");
    drop(store.shutdown());
}

fn check(store: &Store, base: &Base, killed: bool) {
    for queue in store.queues() {
        let mut offset = queue.min_offset;
        // Damage may have left units without a message; each read moves on.
        for _ in 0..400 {
            if offset >= queue.max_offset {
                break;
            }
            let request = GetRequest {
                topic: &queue.topic,
                queue_id: queue.queue_id,
                offset,
                max_messages: 32,
            };
            let Ok(read) = store.get(&request, &NoFilter) else {
                break;
            };
            let mut last = offset - 1;
            for chunk in &read.chunks {
                for found in record::iter(chunk, Check::None) {
                    let Ok(found) = found else { break };
                    if killed {
                        // All of the log was read again, so nothing damaged is in it.
                        assert!(base.bodies.contains(found.body), "a body that nobody sent");
                        assert!(found.queue_offset > last, "offsets go back");
                    }
                    last = found.queue_offset;
                }
            }
            if read.next_offset <= offset {
                break;
            }
            offset = read.next_offset;
        }
    }
    for n in [0, 33, 69] {
        store.query(&KeyQuery {
            topic: ["t", "u"][n % 2],
            key: &format!("k{n}"),
            max_messages: 4,
            begin: 0,
            end: i64::MAX,
        });
    }
    for (topic, queue) in [("t", 0), ("u", 1)] {
        store.offset_by_time(topic, queue, T0 + 30_000);
        store.earliest_store_time(topic, queue);
    }
}
