//! What the program says when it is used wrongly or has nobody to talk to.

use crate::cluster::ferroctl;

#[test]
fn exit_codes_tell_usage_and_reach_apart() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let cases: [(&str, &[&str], i32, &str); 7] = [
        ("", &["topic", "list"], 2, "NAMESRV_ADDR"),
        ("nonsense", &["topic", "list"], 2, "host:port"),
        (&address, &["topic", "list"], 4, "cannot connect"),
        (&address, &["topic"], 2, "Usage"),
        (&address, &["topic", "create", "T", "-p", "X"], 2, "RW, R, W"),
        (
            &address,
            &["broker", "status", "-b", &address],
            4,
            "cannot connect",
        ),
        (&address, &["message", "get", "xyz"], 2, "hexadecimal"),
    ];
    for (namesrv, args, code, words) in cases {
        let ran = ferroctl(namesrv, args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.err.contains(words), "{args:?}: {ran:?}");
        assert_eq!(ran.out, "", "nothing but data goes to standard output");
    }
}

#[test]
fn help_and_version_are_data() {
    let help = ferroctl("", &["--help"]).fine();
    for word in [
        "topic",
        "cluster",
        "broker",
        "group",
        "message",
        "bench",
        "NAMESRV_ADDR",
        "Exit codes",
    ] {
        assert!(help.out.contains(word), "{word} is missing: {}", help.out);
    }
    assert!(!help.out.contains("topicList"), "mqadmin's names are not shown");
    assert!(ferroctl("", &["--version"]).fine().out.starts_with("ferroctl "));
}
