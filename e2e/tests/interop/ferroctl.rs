//! ferroctl's commands, each against our broker and against Java's: the same exit code, and JSON of the same shape. Which
//! commands there are is read from the reference that is made from the program itself, so one without a case here fails.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::Context;
use serde_json::Value;

use crate::common::{pair_with, test};
use crate::support::cluster::{Broker, Kind, NameServer, binary};
use crate::support::process::Process;
use crate::support::wait_until;

/// What is compared beside the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    /// Names of all fields of the JSON, at every depth.
    Shape,
    /// The JSON is there on both sides; its fields are the servers' own: settings, figures.
    Json,
    /// Nothing: the command prints no JSON.
    Nothing,
    /// It fails with this exit code.
    Fails(i32),
}
use Compare::{Fails, Json, Nothing, Shape};

/// There is no such thing.
const NOT_FOUND: i32 = 3;

/// What the others need.
const FIRST: &[(&str, Compare)] = &[
    (
        "topic create T --cluster DefaultCluster --read-queues 4 --write-queues 4",
        Shape,
    ),
    ("group create G --cluster DefaultCluster", Shape),
    ("bench send --topic T --count 50 --run r", Json),
    (
        "bench receive --topic T --count 50 --run r --group G --from-start",
        Json,
    ),
];

/// In this order, on both sides, so that each finds what those before it made. `{broker}` is the broker's address, `{id}` and
/// `{unique}` are the ids of the message sent, `{dir}` is a directory of the side's own, `{store}` its store.
const LIVE: &[(&str, Compare)] = &[
    ("message send T hello --key K --tag A", Shape),
    ("topic list", Shape),
    ("topic get T", Shape),
    ("topic stats T", Shape),
    ("topic route T", Shape),
    ("topic clusters T", Shape),
    ("topic perm T 6 --cluster DefaultCluster", Shape),
    ("topic order set T broker-a:4", Shape),
    ("topic order get T", Shape),
    ("topic order delete T", Shape),
    ("topic allocate T one two", Shape),
    ("topic rates T", Shape),
    ("cluster list", Shape),
    ("broker status --broker {broker}", Json),
    ("broker config get --broker {broker}", Json),
    ("broker config set --broker {broker} fileReservedTime=48", Shape),
    ("broker clean queues --broker {broker}", Shape),
    ("broker clean topics --broker {broker}", Shape),
    ("broker clean log --broker {broker}", Shape),
    ("broker backlog {broker}", Shape),
    ("broker producers {broker}", Shape),
    ("broker ping broker-a --count 3", Shape),
    ("group list", Shape),
    ("group config G", Shape),
    ("group connections Watching", Shape),
    ("group connections G", Fails(NOT_FOUND)),
    ("group status Watching", Shape),
    ("group progress G", Shape),
    ("group progress", Shape),
    ("group reset G T --to 0 --yes", Shape),
    ("group clone-offsets G G2 --topic T --yes", Shape),
    ("message get {id}", Shape),
    ("message by-key T {unique}", Shape),
    ("message by-key T K", Shape),
    ("message at T 0 --broker broker-a --queue {queue}", Shape),
    ("message print T --count 2", Shape),
    ("message trace {unique}", Fails(NOT_FOUND)),
    ("namesrv config", Json),
    ("namesrv set clusterTest=false", Shape),
    ("namesrv kv-put N k v", Shape),
    ("namesrv kv-list N", Shape),
    ("namesrv kv-delete N k", Shape),
    ("export metadata --dir {dir}", Shape),
    ("export configs --dir {dir}", Shape),
    ("export metrics --dir {dir}", Shape),
    ("top --once", Shape),
    ("topicList", Shape),
    ("topicRoute -t T", Shape),
    ("topicStatus -t T", Shape),
    ("topicClusterList -t T", Shape),
    ("updateTopic -c DefaultCluster -t T2 -r 4 -w 4", Shape),
    ("updateTopicPerm -c DefaultCluster -t T2 -p 6", Shape),
    ("updateOrderConf -t T2 -m put -v broker-a:4", Shape),
    ("updateOrderConf -t T2 -m get", Shape),
    ("updateOrderConf -t T2 -m delete", Shape),
    ("allocateMQ -t T -i one,two", Shape),
    ("statsAll -t T", Shape),
    ("clusterList", Shape),
    ("clusterRT -a 3", Shape),
    ("brokerStatus -b {broker}", Json),
    ("getBrokerConfig -b {broker}", Json),
    ("updateBrokerConfig -b {broker} -k fileReservedTime -v 72", Shape),
    ("wipeWritePerm -b broker-a", Shape),
    ("addWritePerm -b broker-a", Shape),
    ("cleanExpiredCQ -b {broker}", Shape),
    ("cleanUnusedTopic -b {broker}", Shape),
    ("deleteExpiredCommitLog -b {broker}", Shape),
    ("brokerConsumeStats -b {broker}", Shape),
    ("sendMsgStatus -b broker-a -c 3", Shape),
    ("checkMsgSendRT -t T -a 3 -s 64", Shape),
    ("updateSubGroup -c DefaultCluster -g G3", Shape),
    ("getConsumerConfig -g G", Shape),
    ("consumerConnection -g Watching", Shape),
    ("consumerStatus -g Watching", Shape),
    ("consumerProgress -g G", Shape),
    ("producerConnection -g P -t T", Fails(NOT_FOUND)),
    ("producer -b {broker}", Shape),
    ("resetOffsetByTime -g G -t T -s now", Shape),
    ("skipAccumulatedMessage -g G -t T", Shape),
    ("cloneGroupOffset -s G -d G4 -t T", Shape),
    ("sendMessage -t T -p body -k K2 -c B", Shape),
    ("queryMsgById -i {id}", Shape),
    ("queryMsgByKey -t T -k K", Shape),
    ("queryMsgByUniqueKey -t T -i {unique}", Shape),
    ("queryMsgByOffset -t T -b broker-a -i {queue} -o 0", Shape),
    ("queryMsgTraceById -i {unique}", Fails(NOT_FOUND)),
    ("queryCq -t T -q {queue} -i 0 -c 2 -b {broker}", Shape),
    ("printMsg -t T", Shape),
    ("printMsgByQueue -t T -a broker-a -i {queue}", Shape),
    ("consumeMessage -t T -c 2", Shape),
    ("getNamesrvConfig", Json),
    ("updateNamesrvConfig -k clusterTest -v false", Shape),
    ("updateKvConfig -s N -k k -v v", Shape),
    ("deleteKvConfig -s N -k k", Shape),
    ("exportMetadata -c DefaultCluster -f {dir}", Shape),
    ("exportConfigs -c DefaultCluster -f {dir}", Shape),
    ("exportMetrics -c DefaultCluster -f {dir}", Shape),
    ("group delete G --cluster DefaultCluster --yes", Shape),
    ("deleteSubGroup -g G3 -c DefaultCluster", Shape),
    ("topic delete T --cluster DefaultCluster --yes", Shape),
    ("deleteTopic -t T2 -c DefaultCluster", Shape),
    ("topic get T", Fails(NOT_FOUND)),
    ("completion bash", Nothing),
];

/// What scripts read.
const READ: &[(&str, Compare)] = &[
    ("topic list", Shape),
    ("topic get T", Shape),
    ("topic stats T", Shape),
    ("topic route T", Shape),
    ("topic clusters T", Shape),
    ("topic allocate T one two", Shape),
    ("topic rates T", Shape),
    ("cluster list", Shape),
    ("broker backlog {broker}", Shape),
    ("broker ping broker-a --count 3", Shape),
    ("group list", Shape),
    ("group config G", Shape),
    ("group connections Watching", Shape),
    ("group status Watching", Shape),
    ("group progress G", Shape),
    ("message get {id}", Shape),
    ("message by-key T K", Shape),
    ("message print T --count 2", Shape),
    ("queryCq -t T -q {queue} -i 0 -c 2 -b {broker}", Shape),
    ("top --once", Shape),
];

/// With the account of an administrator, at brokers that ask for signatures.
const ACCOUNTS: &[(&str, Compare)] = &[
    (
        "acl set --broker {broker} --access-key someone --secret-key 12345678",
        Shape,
    ),
    ("acl list --broker {broker}", Shape),
    ("acl version --broker {broker}", Shape),
    ("acl white-addresses --broker {broker} 10.0.0.1", Shape),
    ("acl delete --broker {broker} someone --yes", Shape),
    ("updateAclConfig -b {broker} -a someone -s 12345678", Shape),
    ("getAccessConfigSubCommand -b {broker}", Shape),
    ("clusterAclConfigVersion -b {broker}", Shape),
    ("updateGlobalWhiteAddr -b {broker} -g 10.0.0.1", Shape),
    ("deleteAccessConfig -b {broker} -a someone", Shape),
    ("topic create T --cluster DefaultCluster", Shape),
    ("topic list", Shape),
];

/// On the stores that both leave.
const OFFLINE: &[(&str, Compare)] = &[
    ("store inspect {store}", Shape),
    ("store verify {store} --hash-slots 50000", Shape),
    ("store dump {store} --count 3", Shape),
    ("store recover-dry-run {store}", Shape),
];

/// Commands that need something else than a cluster of RocketMQ.
const ELSEWHERE: &[(&str, &str)] = &[("kube", "needs Kubernetes: the cluster tests run it")];

struct Side {
    namesrv: String,
    account: Option<PathBuf>,
    words: Vec<(&'static str, String)>,
}

impl Side {
    fn command(&self) -> anyhow::Result<Command> {
        let mut command = Command::new(binary("ferroctl")?);
        command.args(["-n", &self.namesrv, "-o", "json", "--timeout", "20"]);
        if let Some(account) = &self.account {
            command.arg("--account").arg(account);
        }
        Ok(command)
    }

    fn run(&self, line: &str) -> anyhow::Result<Output> {
        let mut line = line.to_owned();
        for (word, value) in &self.words {
            line = line.replace(word, value);
        }
        self.command()?
            .args(line.split(' '))
            .output()
            .with_context(|| format!("run ferroctl {line}"))
    }
}

/// The names of all fields, those of all elements of a list together.
fn shape(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = format!("{path}.{name}");
                into.insert(path.clone());
                shape(field, &path, into);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                shape(element, &format!("{path}[]"), into);
            }
        }
        _ => {}
    }
}

/// What differs between two answers, for people.
fn difference(compare: Compare, ours: &Output, javas: &Output) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if ours.status.code() != javas.status.code() {
        return Some(format!(
            "exit code {:?} and {:?}; {} | {}",
            ours.status.code(),
            javas.status.code(),
            text(&ours.stderr),
            text(&javas.stderr)
        ));
    }
    let wanted = if let Fails(code) = compare { code } else { 0 };
    if ours.status.code() != Some(wanted) {
        return Some(format!(
            "exit code {:?} on both sides: {} | {}",
            ours.status.code(),
            text(&ours.stderr),
            text(&javas.stderr)
        ));
    }
    if matches!(compare, Nothing | Fails(_)) {
        return None;
    }
    let read = |output: &Output| serde_json::from_slice::<Value>(&output.stdout);
    let (Ok(of_ours), Ok(of_javas)) = (read(ours), read(javas)) else {
        return Some(format!(
            "no JSON: {} | {}",
            text(&ours.stdout),
            text(&javas.stdout)
        ));
    };
    if compare == Json {
        return None;
    }
    let fields = |value: &Value| {
        let mut fields = BTreeSet::new();
        shape(value, "", &mut fields);
        fields
    };
    let (of_ours, of_javas) = (fields(&of_ours), fields(&of_javas));
    let more: Vec<_> = of_ours.symmetric_difference(&of_javas).collect();
    (!more.is_empty()).then(|| format!("fields of one side only: {more:?}"))
}

/// The commands of the reference: `topic list`, `queryMsgById` and so on.
fn commands() -> anyhow::Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ferroctl.md");
    let text = std::fs::read_to_string(path)?;
    let (modern, old) = text.split_once("## mqadmin's names").context("mqadmin's names")?;
    let modern = modern
        .lines()
        .filter_map(|line| line.strip_prefix("## ferroctl "));
    let old = old
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split('`').next());
    Ok(modern.chain(old).map(str::to_owned).collect())
}

fn begins_with(line: &str, command: &str) -> bool {
    line.strip_prefix(command)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[test]
fn every_command_has_a_case() {
    let missing: Vec<String> = commands()
        .unwrap()
        .into_iter()
        .filter(|command| {
            let mut lines = FIRST
                .iter()
                .chain(LIVE)
                .chain(ACCOUNTS)
                .chain(OFFLINE)
                .map(|(line, _)| *line);
            !lines.any(|line| begins_with(line, command))
                && !ELSEWHERE.iter().any(|(word, _)| begins_with(command, word))
        })
        .collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

/// An account file in Java's form.
const ADMIN: &str = "accounts:
- accessKey: admin-key
  secretKey: admin-secret
  admin: true
";

fn start(dir: &Path, kind: Kind, signed: bool) -> anyhow::Result<(Side, NameServer, Broker)> {
    std::fs::create_dir_all(dir.join("conf"))?;
    std::fs::write(dir.join("conf/plain_acl.yml"), ADMIN)?;
    let account = dir.join("account.yml");
    std::fs::write(&account, "accessKey: admin-key\nsecretKey: admin-secret\n")?;
    let mut settings = Broker::MIDDLE_FILES.to_vec();
    if signed {
        settings.push(("aclEnable", "true"));
    }
    let home = format!("-Drocketmq.home.dir={}", dir.display());
    let (names, broker) = pair_with(dir, kind, &settings, &[], &[home])?;
    let side = Side {
        namesrv: names.address(),
        account: signed.then_some(account),
        words: vec![
            ("{broker}", broker.address()),
            ("{dir}", dir.join("exported").display().to_string()),
            ("{store}", broker.store().display().to_string()),
        ],
    };
    Ok((side, names, broker))
}

/// Remembers where the message went.
fn remember(side: &mut Side, sent: &Output) -> anyhow::Result<()> {
    let sent: Value = serde_json::from_slice(&sent.stdout).context("the answer to a send")?;
    let field = |name: &str| match &sent[name] {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        _ => anyhow::bail!("{name} is not in {sent}"),
    };
    side.words.push(("{id}", field("offset_id")?));
    side.words.push(("{unique}", field("message_id")?));
    side.words.push(("{queue}", field("queue")?));
    Ok(())
}

/// A member of group Watching that reads topic T all the time.
fn watch(dir: &Path, side: &Side) -> anyhow::Result<Process> {
    let mut command = side.command()?;
    command.args("bench receive --topic T --group Watching --count 1000000 --idle 600".split(' '));
    Process::start("watching", dir, &mut command)
}

/// Fields of the JSON at our broker, a line a command.
fn fields(cases: &[(&str, Compare)], ours: &Side) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for (line, _) in cases.iter().filter(|(_, compare)| *compare == Shape) {
        let value = serde_json::from_slice(&ours.run(line)?.stdout).with_context(|| (*line).to_owned())?;
        let mut names = BTreeSet::new();
        shape(&value, "", &mut names);
        let names: Vec<String> = names.into_iter().collect();
        lines.push(format!("{line}: {}\n", names.join(" ")));
    }
    Ok(lines.concat())
}

fn differences(cases: &[(&str, Compare)], ours: &Side, javas: &Side) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (line, compare) in cases {
        let (one, other) = (ours.run(line)?, javas.run(line)?);
        wrong.extend(difference(*compare, &one, &other).map(|what| format!("{line}: {what}")));
    }
    Ok(wrong)
}

/// Programs read these fields: a change is meant, and seen. `UPDATE=1` writes them down.
fn changed(now: &str) -> anyhow::Result<Option<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/ferroctl-fields.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, now)?;
        return Ok(None);
    }
    let known = std::fs::read_to_string(path)?;
    let known: BTreeSet<&str> = known.lines().collect();
    let now: BTreeSet<&str> = now.lines().collect();
    let differ: Vec<_> = known.symmetric_difference(&now).collect();
    Ok((!differ.is_empty()).then(|| format!("fields of JSON changed (UPDATE=1 takes them): {differ:#?}")))
}

#[test]
fn every_command_does_the_same_at_our_broker_and_at_javas() {
    test(|dir| {
        let (mut ours, _our_names, mut our_broker) = start(&dir.join("ours"), Kind::Ours, false)?;
        let (mut javas, _java_names, mut java_broker) = start(&dir.join("javas"), Kind::Java, false)?;
        let mut wrong = differences(FIRST, &ours, &javas)?;
        for side in [&mut ours, &mut javas] {
            let sent = side.run("message send T hello --key K --tag A")?;
            remember(side, &sent)?;
        }
        let mut watching = [
            watch(&dir.join("ours"), &ours)?,
            watch(&dir.join("javas"), &javas)?,
        ];
        for side in [&ours, &javas] {
            wait_until("a member of group Watching", || {
                Ok(side.run("group connections Watching")?.status.success())
            })?;
        }
        // Before anything is deleted.
        let asked = fields(READ, &ours)?;
        wrong.extend(differences(LIVE, &ours, &javas)?);
        for member in &mut watching {
            member.kill()?;
        }
        our_broker.stop(Kind::Ours)?;
        java_broker.stop(Kind::Java)?;
        wrong.extend(differences(OFFLINE, &ours, &javas)?);
        wrong.extend(changed(&(asked + &fields(OFFLINE, &ours)?))?);
        anyhow::ensure!(wrong.is_empty(), "differences:\n{}", wrong.join("\n"));
        Ok(())
    });
}

#[test]
fn accounts_are_administered_alike_at_our_broker_and_at_javas() {
    test(|dir| {
        let (ours, _our_names, mut our_broker) = start(&dir.join("ours"), Kind::Ours, true)?;
        let (javas, _java_names, mut java_broker) = start(&dir.join("javas"), Kind::Java, true)?;
        let wrong = differences(ACCOUNTS, &ours, &javas)?;
        anyhow::ensure!(wrong.is_empty(), "differences:\n{}", wrong.join("\n"));
        let unsigned = Side {
            account: None,
            ..ours
        };
        let refused = unsigned.run(ACCOUNTS[1].0)?;
        anyhow::ensure!(
            refused.status.code() == Some(1),
            "an unsigned request: {refused:?}"
        );
        our_broker.stop(Kind::Ours)?;
        java_broker.stop(Kind::Java)
    });
}
