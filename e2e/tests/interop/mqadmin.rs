//! mqadmin beside itself: the official tools run the same commands against our name server and broker and against Java's,
//! both in the same state, and what they print is compared line by line.

use crate::common::{pair, test};
use crate::support::cluster::{Broker, Kind};
use crate::support::java;
use crate::support::process::Process;

#[test]
fn mqadmin_prints_the_same_on_ours_as_on_javas() {
    test(|dir| {
        let (ours, javas) = (dir.join("ours"), dir.join("javas"));
        for dir in [&ours, &javas] {
            std::fs::create_dir(dir)?;
        }
        let (our_names, mut our_broker) = pair(&ours, Kind::Ours, Kind::Ours, Broker::MIDDLE_FILES)?;
        let (java_names, mut java_broker) = pair(&javas, Kind::Java, Kind::Java, Broker::MIDDLE_FILES)?;
        let mut command = java::program("admin")?;
        // Some commands write files where they run.
        command
            .current_dir(dir)
            .args(["side-by-side", "--namesrv", &our_names.address()])
            .args(["--other", &java_names.address(), "--work-dir"])
            .arg(dir.join("admin-work"));
        let mut run = Process::start("side-by-side", dir, &mut command)?;
        let status = run.wait()?;
        let wrong: Vec<String> = run
            .output()
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|line| line["ok"] == false)
            .map(|line| {
                let detail = line["detail"].as_str().unwrap_or_default();
                format!("{}: {detail}", line["case"])
            })
            .collect();
        anyhow::ensure!(wrong.is_empty(), "outputs differ:\n{}", wrong.join("\n"));
        anyhow::ensure!(status.success(), "ended with {status}\n{}", run.tail());
        our_broker.stop(Kind::Ours)?;
        java_broker.stop(Kind::Java)
    });
}
