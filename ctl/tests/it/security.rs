//! Commands against a broker that wants to know who they come from.

use crate::cluster::Cluster;

const ACCOUNTS: &str = "accounts:
- {accessKey: administrator, secretKey: the-admins-key, admin: true}
- {accessKey: reader-team, secretKey: the-readers-key, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
";

#[test]
fn requests_are_signed_by_the_account_that_is_named() {
    let cluster = Cluster::start_with(|settings, dir| {
        std::fs::create_dir_all(dir.join("conf/acl")).unwrap();
        std::fs::write(dir.join("conf/acl/plain_acl.yml"), ACCOUNTS).unwrap();
        settings.acl_enable = true;
        settings.rocketmq_home = dir.display().to_string();
    });
    let account = |name: &str, key: &str| {
        let file = cluster.dir.path().join(format!("{name}.yml"));
        std::fs::write(&file, format!("accessKey: {name}\nsecretKey: {key}\n")).unwrap();
        file.display().to_string()
    };
    let admin = account("administrator", "the-admins-key");
    let create = ["topic", "create", "Signed"];
    let unsigned = cluster.run(&create);
    assert_eq!(unsigned.code, 1, "{unsigned:?}");
    assert!(unsigned.err.contains("AclException"), "{unsigned:?}");
    for (name, key) in [
        ("reader-team", "the-readers-key"),
        ("administrator", "another-key"),
    ] {
        let refused = cluster.run(&[&create[..], &["--account", &account(name, key)]].concat());
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(!refused.err.contains(key), "{refused:?}");
    }
    std::fs::write(&admin, "accessKey: administrator\nsecretKey: the-admins-key\n").unwrap();
    cluster
        .run(&[&create[..], &["--account", &admin]].concat())
        .fine();
    cluster
        .run(&["--account", &admin, "message", "send", "Signed", "hello"])
        .fine();

    let broken = cluster.dir.path().join("broken.yml").display().to_string();
    std::fs::write(&broken, "nothing").unwrap();
    let wrong = cluster.run(&["--account", &broken, "topic", "list"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("accessKey: NAME"), "{wrong:?}");
}
