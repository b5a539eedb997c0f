//! Light queues: the official client's case on one store that changes hands, Java's broker first and last.

use crate::common::test;
use crate::support::cluster::{Broker, Kind, NameServer};
use crate::support::java::{self, Headers};

#[test]
fn light_queues_and_their_progress_change_hands() {
    test(|dir| {
        let names = NameServer::start(Kind::Ours, dir)?;
        let settings = [
            Broker::SMALL_FILES,
            &[("enableLmq", "true"), ("enableMultiDispatch", "true")],
        ]
        .concat();
        let mut broker = Broker::new("broker-a", dir, &names, &settings)?;
        for kind in [Kind::Java, Kind::Ours, Kind::Java] {
            broker.start(kind)?;
            java::suite("client", dir, &names.address(), "light-queues", Headers::Json)?;
            broker.stop(kind)?;
        }
        Ok(())
    });
}
