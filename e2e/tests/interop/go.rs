//! The official Go client: it sends in every way that it has and receives all of it by push, by tag, in order and by pull,
//! with name servers and brokers of ours and of Java's. Java's pair shows that the program wants nothing of our own making.

use std::path::Path;
use std::process::Command;

use crate::common::{pair, test};
use crate::support::cluster::{Broker, Kind, binary};
use crate::support::process::Process;
use crate::support::root;

fn client(dir: &Path, name_server: &str) -> anyhow::Result<()> {
    let build = Command::new(root().join("e2e/go/build.sh")).output()?;
    anyhow::ensure!(
        build.status.success(),
        "e2e/go/build.sh failed: {}",
        String::from_utf8_lossy(&build.stderr)
    );
    let made = Command::new(binary("ferroctl")?)
        .args(["-n", name_server, "topic", "create", "GoTopic"])
        .output()?;
    anyhow::ensure!(
        made.status.success(),
        "cannot make the topic: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut command = Command::new(root().join("target/e2e-go/client"));
    command.args(["-namesrv", name_server, "-topic", "GoTopic"]);
    let mut run = Process::start("go-client", dir, &mut command)?;
    let status = run.wait()?;
    anyhow::ensure!(
        status.success(),
        "the Go client ended with {status}\n{}",
        run.tail()
    );
    Ok(())
}

fn with(names: Kind, broker: Kind) {
    test(|dir| {
        let (names, mut running) = pair(dir, names, broker, Broker::MIDDLE_FILES)?;
        client(dir, &names.address())?;
        running.stop(broker)
    });
}

#[test]
fn the_go_client_with_our_broker_under_our_name_server() {
    with(Kind::Ours, Kind::Ours);
}

#[test]
fn the_go_client_with_our_broker_under_javas_name_server() {
    with(Kind::Java, Kind::Ours);
}

#[test]
fn the_go_client_with_javas_broker_under_our_name_server() {
    with(Kind::Ours, Kind::Java);
}
