//! Light queues, and expressions with bits beside the consume queue: the official client's cases on one store that changes hands, Java's
//! broker first and last.

use crate::common::test;
use crate::support::cluster::{Broker, Kind, NameServer};
use crate::support::java::{self, Headers};

#[test]
fn light_queues_and_expressions_change_hands() {
    test(|dir| {
        let names = NameServer::start(Kind::Ours, dir)?;
        let settings = [
            Broker::SMALL_FILES,
            &[
                ("enableLmq", "true"),
                ("enableMultiDispatch", "true"),
                ("enablePropertyFilter", "true"),
                ("enableCalcFilterBitMap", "true"),
                ("enableConsumeQueueExt", "true"),
                ("mappedFileSizeConsumeQueueExt", "262144"),
            ],
        ]
        .concat();
        let mut broker = Broker::new("broker-a", dir, &names, &settings)?;
        let cases = "light-queues,sql-filter";
        for (round, kind) in [Kind::Java, Kind::Ours, Kind::Java].into_iter().enumerate() {
            broker.start(kind)?;
            java::suite("client", dir, &names.address(), cases, Headers::Json)?;
            broker.stop(kind)?;
            // Each round's group is there, and those of the rounds before, whoever wrote the file.
            let kept = std::fs::read_to_string(broker.store().join("config/consumerFilter.json"))?;
            let groups = kept.matches("n between 5 and 12").count();
            anyhow::ensure!(groups == round + 1, "{groups} groups after round {round}: {kept}");
        }
        Ok(())
    });
}
