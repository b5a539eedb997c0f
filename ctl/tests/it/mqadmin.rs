//! mqadmin's names and the modern ones, each against a real name server and broker.

use crate::cluster::{Cluster, wait_for};

/// Output for people fits 80 columns unless a value of the user's is longer.
fn table(cluster: &Cluster, line: &str) -> String {
    let args: Vec<&str> = line.split_whitespace().collect();
    let ran = cluster.run(&args).fine();
    for line in ran.out.lines() {
        assert!(line.chars().count() <= 80, "{args:?}: {line}");
    }
    ran.out
}

fn refused(cluster: &Cluster, line: &str, code: i32, words: &str) {
    let args: Vec<&str> = line.split_whitespace().collect();
    let ran = cluster.run(&args);
    assert_eq!(ran.code, code, "{line}: {ran:?}");
    assert!(ran.err.contains(words), "{line}: {ran:?}");
}

#[test]
fn topics_queues_and_messages() {
    let cluster = Cluster::start();
    table(&cluster, "updateTopic -t T -c TestCluster -r 4 -w 4");
    table(&cluster, "updateTopicPerm -t T -c TestCluster -p 4");
    assert_eq!(cluster.json(&["topic", "get", "T"])[0]["perm"], "R");
    table(&cluster, "topic perm T RW -c TestCluster");
    assert!(table(&cluster, "topicClusterList -t T").contains("TestCluster"));
    assert!(table(&cluster, "allocateMQ -t T -i 10.0.0.1,10.0.0.2").contains("broker-a/3"));
    refused(&cluster, "topic perm Absent RW -c TestCluster", 3, "Absent");

    table(&cluster, "updateOrderConf -t T -m put -v broker-a:4");
    assert!(table(&cluster, "updateOrderConf -t T -m get").contains("broker-a:4"));
    table(&cluster, "updateOrderConf -t T -m delete");
    refused(&cluster, "topic order get T", 3, "no order configuration");

    table(
        &cluster,
        "sendMessage -t T -p hello -k key -c tag -i 2 -b broker-a",
    );
    table(&cluster, "sendMessage -t T -p again -i 2 -b broker-a");
    assert!(table(&cluster, "queryMsgByOffset -t T -b broker-a -i 2 -o 0").contains("hello"));
    refused(&cluster, "message at T -b broker-a -i 2 9", 3, "0 to 1");
    let printed = table(&cluster, "printMsg -t T -d true");
    assert!(
        printed.contains("hello") && printed.contains("again"),
        "{printed}"
    );
    let tagged = table(&cluster, "printMsgByQueue -t T -a broker-a -i 2 -s tag -d true");
    assert!(tagged.contains("hello") && !tagged.contains("again"), "{tagged}");
    let one = cluster.json(&["message", "print", "T", "--from", "1", "-i", "2"]);
    assert_eq!(one.as_array().map(Vec::len), Some(1), "{one}");
    assert!(table(&cluster, "consumeMessage -t T -b broker-a -i 2 -o 0 -c 1").contains("hello"));
    let id = one[0]["message_id"].as_str().unwrap().to_owned();
    wait_for("the message to be indexed", || {
        cluster.run(&["queryMsgByUniqueKey", "-t", "T", "-i", &id]).code == 0
    });
    assert!(table(&cluster, "sendMsgStatus -b broker-a -c 3").contains("stored"));
    assert!(table(&cluster, "checkMsgSendRT -t T -a 3 -s 100").contains("stored"));
    assert!(table(&cluster, "clusterRT -a 2 -c TestCluster").contains("broker-a"));
    assert!(table(&cluster, "statsAll -t T").contains('T'));
    for what in ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"] {
        table(&cluster, &format!("{what} -c TestCluster"));
    }
}

#[test]
fn groups_offsets_and_clients() {
    let cluster = Cluster::start();
    table(&cluster, "updateTopic -t T -c TestCluster -r 1 -w 1");
    table(&cluster, "updateSubGroup -c TestCluster -g G");
    assert!(table(&cluster, "getConsumerConfig -g G").contains("16"));
    refused(&cluster, "getConsumerConfig -g Absent", 3, "Absent");
    cluster.run(&["bench", "send", "-t", "T", "--count", "20"]).fine();
    cluster
        .run(&[
            "bench",
            "receive",
            "-t",
            "T",
            "-g",
            "G",
            "--count",
            "20",
            "--from-start",
        ])
        .fine();
    let consumer_offset = |group: &str| {
        let progress = cluster.run(&["-o", "json", "group", "progress", group, "-t", "T"]);
        (progress.code == 0).then(|| progress.json()[0]["consumer_offset"].as_i64())?
    };
    assert_eq!(consumer_offset("G"), Some(20));
    // Nobody is connected: the offsets are stored.
    let reset = table(&cluster, "resetOffsetByTime -g G -t T -s 0");
    assert!(reset.contains("none connected"), "{reset}");
    assert_eq!(consumer_offset("G"), Some(0));
    table(&cluster, "skipAccumulatedMessage -g G -t T");
    assert_eq!(consumer_offset("G"), Some(20));
    table(&cluster, "group reset G T --to 0 --no-force --yes");
    assert_eq!(consumer_offset("G"), Some(0), "without force offsets go back");
    table(&cluster, "group reset G T --to end --no-force --yes");
    assert_eq!(consumer_offset("G"), Some(0), "but never forward");
    table(&cluster, "skipAccumulatedMessage -g G -t T");
    table(&cluster, "cloneGroupOffset -s G -d H -t T");
    assert_eq!(consumer_offset("H"), Some(20));
    let look = table(&cluster, "top --once");
    assert!(look.contains("broker-a") && look.contains("BEHIND"), "{look}");
    let look = cluster.json(&["top", "--once"]);
    assert_eq!(look["topics"][0]["topic"], "T", "{look}");
    refused(&cluster, "group reset G T --to 0", 2, "--yes");
    refused(&cluster, "consumerConnection -g G", 3, "connected");
    refused(&cluster, "consumerStatus -g G", 3, "connected");
    refused(&cluster, "producerConnection -g P -t T", 3, "connected");
    let broker = &cluster.broker_address;
    assert!(table(&cluster, &format!("brokerConsumeStats -b {broker}")).contains("BEHIND"));
    table(&cluster, &format!("producer -b {broker}"));
}

#[test]
fn name_servers_and_exports() {
    let cluster = Cluster::start();
    assert!(cluster.json(&["getNamesrvConfig"])["listenPort"].is_string());
    table(&cluster, "updateKvConfig -s NS -k key -v value");
    assert!(table(&cluster, "namesrv kv-list NS").contains("value"));
    table(&cluster, "deleteKvConfig -s NS -k key");
    assert!(!table(&cluster, "namesrv kv-list NS").contains("value"));
    let dir = cluster.dir.path().join("export");
    for (what, file, word) in [
        ("exportMetadata", "metadata.json", "topicConfigTable"),
        ("exportConfigs", "configs.json", "brokerConfigs"),
        ("exportMetrics", "metrics.json", "runtime"),
    ] {
        cluster
            .run(&[what, "-c", "TestCluster", "-f", dir.to_str().unwrap()])
            .fine();
        let text = std::fs::read_to_string(dir.join(file)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(json.to_string().contains(word), "{what}: {json}");
    }
}
