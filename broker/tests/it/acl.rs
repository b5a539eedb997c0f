//! Access control over connections: who passes, live changes, and the administrators' codes.

use std::path::Path;
use std::sync::Arc;

use ferromq_broker::BrokerSettings;
use ferromq_protocol::acl::{Credentials, sign};
use ferromq_protocol::body::{AclConfig, TopicConfigTable};
use ferromq_protocol::code::request;
use ferromq_protocol::header::{
    AclInfoResponse, DeleteAclConfig, QueryMessage, UpdateAclConfig, UpdateGlobalWhiteAddrs,
};
use ferromq_protocol::{Command, fastjson};
use ferromq_remoting::{Client, ClientConfig, Dispatch, HookRefusal, RpcHook};

use crate::admin::create;
use crate::support::{Peer, Rig, eventually, pull_command, send_command};

const FILE: &str = "
accounts:
- {accessKey: admin-key, secretKey: admin-secret, admin: true}
- accessKey: client-key
  secretKey: client-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [T=PUB|SUB, ReadOnly=SUB]
  groupPerms: [CG=SUB]
";

struct Sign(Credentials);

impl RpcHook for Sign {
    fn before(&self, _: &str, request: &mut Command) -> Result<(), HookRefusal> {
        sign(request, &self.0);
        Ok(())
    }
}

fn signed(rig: &Rig, key: &str, secret: &str) -> Peer {
    let mut peer = Peer::new(rig.peer.addr.clone());
    let config = ClientConfig {
        hooks: vec![Arc::new(Sign(Credentials::new(key, secret)))],
        ..ClientConfig::default()
    };
    peer.client = Client::new(config, Dispatch::none());
    peer
}

fn write(root: &Path, text: &str) {
    std::fs::create_dir_all(root.join("conf")).unwrap();
    std::fs::write(root.join("conf/plain_acl.yml"), text).unwrap();
}

async fn start(text: &str) -> Rig {
    let text = text.to_owned();
    Rig::start_with(move |settings: &mut BrokerSettings| {
        settings.acl_enable = true;
        write(Path::new(&settings.store_path_root_dir), &text);
    })
    .await
}

async fn refusal(peer: &Peer, command: Command) -> String {
    let answer = peer.call(command).await;
    assert_eq!(answer.code, 1, "{:?}", answer.remark);
    answer.remark.unwrap_or_default()
}

fn batch_command(topic: &str) -> Command {
    crate::send::batch_command(topic, &["in a batch"], b"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_may_may() {
    let rig = start(FILE).await;
    let admin = signed(&rig, "admin-key", "admin-secret");
    let client = signed(&rig, "client-key", "client-secret");
    assert!(
        refusal(&rig.peer, send_command("T", 0, "x", ""))
            .await
            .contains("No accessKey")
    );
    for topic in ["T", "ReadOnly", "Other"] {
        assert!(
            refusal(&client, create(topic, 4, 6))
                .await
                .contains("Need admin permission")
        );
        admin.ok(create(topic, 4, 6)).await;
    }
    client.send("T", 0, "x").await;
    assert_eq!(client.drain("T", 0, 0, 1).await, ["x"]);
    client.ok(batch_command("T")).await;
    for refused in [
        send_command("ReadOnly", 0, "x", ""),
        send_command("Other", 0, "x", ""),
        batch_command("Other"),
        pull_command("Other", 0, 0, 0),
    ] {
        let said = refusal(&client, refused).await;
        assert!(said.contains("No default permission for topic:"), "{said}");
    }
    // A trace of what it does may always be sent.
    client.send("RMQ_SYS_TRACE_TOPIC", 0, "trace").await;
    for wrong in [
        signed(&rig, "client-key", "another-secret"),
        signed(&rig, "nobody-key", "client-secret"),
    ] {
        let said = refusal(&wrong, send_command("T", 0, "x", "")).await;
        assert!(!said.contains("secret"), "{said}");
    }
    // Whatever is asked, somebody without an account gets nothing.
    for code in 10..=330 {
        let answer = rig.peer.call(Command::request(code)).await;
        assert_eq!(answer.code, 1, "{code}");
        assert!(answer.remark.unwrap().contains("No accessKey"), "{code}");
        assert!(answer.body.is_empty());
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_by_unique_key_is_taken_as_stock_clients_sign_it() {
    let rig = start(FILE).await;
    let client = signed(&rig, "client-key", "client-secret");
    signed(&rig, "admin-key", "admin-secret")
        .ok(create("T", 1, 6))
        .await;
    client
        .ok(send_command("T", 0, "x", "UNIQ_KEY\u{1}0A0B\u{2}"))
        .await;
    let query = Command::request(request::QUERY_MESSAGE).with_header(&QueryMessage {
        topic: "T",
        key: "0A0B",
        max_num: 32,
        begin_timestamp: 0,
        end_timestamp: i64::MAX,
        unique_key: true,
    });
    eventually("the message is indexed", || async {
        client.call(query.clone()).await.code == 0
    })
    .await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_change_while_it_runs() {
    let rig = start(FILE).await;
    let admin = signed(&rig, "admin-key", "admin-secret");
    let new = signed(&rig, "another-key", "another-secret");
    assert!(
        refusal(&new, send_command("T", 0, "x", ""))
            .await
            .contains("No acl config")
    );
    let change = Command::request(request::UPDATE_AND_CREATE_ACL_CONFIG).with_header(&UpdateAclConfig {
        access_key: "another-key",
        secret_key: Some("another-secret"),
        white_remote_address: None,
        admin: false,
        default_topic_perm: Some("PUB|SUB"),
        default_group_perm: None,
        topic_perms: None,
        group_perms: None,
    });
    assert!(refusal(&new, change.clone()).await.contains("No acl config"));
    admin.ok(change).await;
    new.send("T", 0, "x").await;

    let config: AclConfig = fastjson::from_slice(
        &admin
            .ok(Command::request(request::GET_BROKER_CLUSTER_ACL_CONFIG))
            .await
            .body,
    )
    .unwrap();
    assert_eq!(config.plain_access_configs.len(), 3);
    assert!(
        refusal(&new, Command::request(request::GET_BROKER_CLUSTER_ACL_CONFIG))
            .await
            .contains("admin")
    );
    let info = admin
        .ok(Command::request(request::GET_BROKER_CLUSTER_ACL_INFO))
        .await;
    let info: AclInfoResponse<'_> = info.header().unwrap();
    assert!(info.version.contains("\"counter\":1"), "{}", info.version);
    assert!(info.all_acl_file_version.unwrap().contains("plain_acl.yml"));

    let delete = Command::request(request::DELETE_ACL_CONFIG).with_header(&DeleteAclConfig {
        access_key: "another-key",
    });
    admin.ok(delete.clone()).await;
    assert_eq!(admin.call(delete).await.code, 210);
    assert!(
        refusal(&new, send_command("T", 0, "x", ""))
            .await
            .contains("No acl config")
    );
    // The global white list lets everybody in from there.
    let white = |list| {
        Command::request(request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG).with_header(&UpdateGlobalWhiteAddrs {
            global_white_addrs: list,
            acl_file_full_path: None,
        })
    };
    assert_eq!(admin.call(white("127.0.0.300")).await.code, 211);
    admin.ok(white("127.0.0.*")).await;
    rig.peer.send("T", 0, "x").await;

    // Whoever edits the file is followed too.
    write(rig.dir.path(), FILE);
    eventually("the edited file counts", || async {
        rig.peer.call(send_command("T", 0, "x", "")).await.code == 1
    })
    .await;
    write(rig.dir.path(), "accounts: [");
    write(rig.dir.path(), &FILE.replace("admin-secret", "changed-secret"));
    let changed = signed(&rig, "admin-key", "changed-secret");
    eventually("the changed secret counts", || async {
        changed
            .call(Command::request(request::GET_ALL_TOPIC_CONFIG))
            .await
            .code
            == 0
    })
    .await;
    let answer = changed.ok(Command::request(request::GET_ALL_TOPIC_CONFIG)).await;
    let topics: TopicConfigTable = fastjson::from_slice(&answer.body).unwrap();
    assert!(topics.topic_config_table.contains_key("T"));
    rig.stop().await;
}

/// Accounts that nobody touches keep their rights in every instant, while others come and go by requests and by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_loses_access_while_other_accounts_change() {
    let rig = start(FILE).await;
    let admin = signed(&rig, "admin-key", "admin-secret");
    let client = signed(&rig, "client-key", "client-secret");
    admin.ok(create("T", 1, 6)).await;
    let folder = rig.dir.path().join("conf/acl");
    std::fs::create_dir_all(&folder).unwrap();
    let done = tokio_util::sync::CancellationToken::new();
    let using = async {
        let mut sent = 0;
        while !done.is_cancelled() {
            client.send("T", 0, "x").await;
            sent += 1;
            let stranger = rig.peer.call(send_command("T", 0, "x", "")).await;
            assert_eq!(stranger.code, 1, "a stranger got in");
        }
        sent
    };
    let changing = async {
        for n in 0..40 {
            let key = format!("passing-{n}");
            let change =
                Command::request(request::UPDATE_AND_CREATE_ACL_CONFIG).with_header(&UpdateAclConfig {
                    access_key: &key,
                    secret_key: Some("passing-secret"),
                    white_remote_address: None,
                    admin: false,
                    default_topic_perm: Some("SUB"),
                    default_group_perm: None,
                    topic_perms: None,
                    group_perms: None,
                });
            admin.ok(change).await;
            let by_hand = format!("accounts:\n- accessKey: by-hand-{n}\n  secretKey: hand-secret\n");
            std::fs::write(
                folder.join("more.yml"),
                if n % 3 == 0 { "accounts: [" } else { &by_hand },
            )
            .unwrap();
            if n % 2 == 0 {
                let delete = Command::request(request::DELETE_ACL_CONFIG)
                    .with_header(&DeleteAclConfig { access_key: &key });
                admin.ok(delete).await;
            }
        }
        let hand = signed(&rig, "by-hand-38", "hand-secret");
        eventually("the last file by hand counts", || async {
            let answer = hand.call(pull_command("T", 0, 0, 0)).await;
            answer
                .remark
                .unwrap_or_default()
                .contains("No default permission")
        })
        .await;
        done.cancel();
    };
    let (sent, ()) = tokio::join!(using, changing);
    assert!(sent > 0);
    let text = std::fs::read_to_string(rig.dir.path().join("conf/plain_acl.yml")).unwrap();
    assert_eq!(text.matches("passing-secret").count(), 20);
    assert!(text.contains("  topicPerms: [T=PUB|SUB, ReadOnly=SUB]"), "{text}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_access_control_its_codes_say_so() {
    let rig = Rig::start().await;
    for code in [52, 54] {
        let answer = rig.peer.call(Command::request(code)).await;
        assert_eq!(answer.code, 1);
        assert!(answer.remark.unwrap().contains("aclEnable"), "{code}");
    }
    rig.stop().await;
}
