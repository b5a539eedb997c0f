//! The status of a Topic, as a pure function of what a pass saw and did.

use super::validate::Obstacle;
use crate::crd::condition::{READY, RECONCILING, STALLED, Verdict, merge};
use crate::crd::topic::{Topic, TopicRow, TopicStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// How a pass went.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The topic cannot be made now.
    Hindered(Obstacle),
    /// A row per master.
    Looked(Vec<TopicRow>),
    /// The resource is going, and waits for this.
    Leaving(String),
}

/// State of a row whose broker has the topic as asked.
pub const SYNCED: &str = "Synced";
/// State of a row whose broker has queues that wait to be read before they go.
pub const SHRINKING: &str = "Shrinking";
/// State of a row whose broker could not be asked or refused.
pub const UNREACHABLE: &str = "Unreachable";

/// Computes the status.
pub fn status(topic: &Topic, outcome: &Outcome, now: &Time) -> TopicStatus {
    let previous = topic.status.clone().unwrap_or_default();
    let verdicts = match outcome {
        Outcome::Hindered(obstacle) => {
            let (reason, text) = (obstacle.reason(), obstacle.to_string());
            vec![
                Verdict::new(READY, false, reason, text.clone()),
                Verdict::new(RECONCILING, !obstacle.is_final(), reason, text.clone()),
                Verdict::new(STALLED, obstacle.is_final(), reason, text),
            ]
        }
        Outcome::Leaving(text) => vec![
            Verdict::new(READY, false, "Deleting", text.clone()),
            Verdict::new(RECONCILING, true, "Deleting", text.clone()),
            Verdict::new(STALLED, false, "Deleting", ""),
        ],
        Outcome::Looked(rows) => looked(rows),
    };
    let rows = match outcome {
        Outcome::Looked(rows) => rows.clone(),
        Outcome::Hindered(_) => Vec::new(),
        Outcome::Leaving(_) => previous.brokers.clone(),
    };
    let synced = rows.iter().filter(|r| r.state == SYNCED).count();
    TopicStatus {
        observed_generation: topic.metadata.generation,
        conditions: merge(&previous.conditions, &verdicts, topic.metadata.generation, now),
        topic_name: Some(topic.topic_name().to_owned()),
        ready_brokers: (!rows.is_empty()).then(|| format!("{synced}/{}", rows.len())),
        brokers: rows,
    }
}

fn looked(rows: &[TopicRow]) -> Vec<Verdict> {
    match rows.iter().find(|r| r.state != SYNCED) {
        None => vec![
            Verdict::new(READY, true, SYNCED, "every broker group has the topic as asked"),
            Verdict::new(RECONCILING, false, SYNCED, ""),
            Verdict::new(STALLED, false, SYNCED, ""),
        ],
        Some(row) => {
            let text = format!(
                "{}: {}",
                row.broker_name,
                row.message.as_deref().unwrap_or("not as asked")
            );
            let reason = if row.state == SHRINKING {
                SHRINKING
            } else {
                "BrokersNotReady"
            };
            vec![
                Verdict::new(READY, false, reason, text.clone()),
                Verdict::new(RECONCILING, true, reason, text),
                Verdict::new(STALLED, false, "AsExpected", ""),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::validate::tests::topic;
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn row(name: &str, state: &str) -> TopicRow {
        TopicRow {
            broker_name: name.to_owned(),
            state: state.to_owned(),
            ..TopicRow::default()
        }
    }

    fn ready(status: &TopicStatus) -> (&str, &str) {
        let c = status.conditions.iter().find(|c| c.type_ == READY).unwrap();
        (&c.status, &c.reason)
    }

    #[test]
    fn ready_when_every_master_has_it_and_stable_after_that() {
        let mut resource = topic("orders", "2026-01-01T00:00:00Z", json!({}));
        let outcome = Outcome::Looked(vec![row("a", SYNCED), row("b", SYNCED)]);
        let first = status(&resource, &outcome, &at(1));
        assert_eq!(ready(&first), ("True", SYNCED));
        assert_eq!(first.ready_brokers.as_deref(), Some("2/2"));
        resource.status = Some(first.clone());
        assert_eq!(status(&resource, &outcome, &at(9)), first);
    }

    #[test]
    fn one_missing_master_is_named() {
        let resource = topic("orders", "2026-01-01T00:00:00Z", json!({}));
        let down = TopicRow {
            message: Some("not running".to_owned()),
            ..row("b", UNREACHABLE)
        };
        let status = status(&resource, &Outcome::Looked(vec![row("a", SYNCED), down]), &at(1));
        assert_eq!(ready(&status), ("False", "BrokersNotReady"));
        assert!(status.conditions[0].message.contains("b: not running"));
        assert_eq!(status.ready_brokers.as_deref(), Some("1/2"));
    }

    #[test]
    fn obstacles_stall_only_when_final() {
        let resource = topic("orders", "2026-01-01T00:00:00Z", json!({}));
        for (obstacle, stalled) in [
            (Obstacle::NameTaken("first".to_owned()), "True"),
            (Obstacle::ClusterMissing("demo".to_owned()), "False"),
        ] {
            let status = status(&resource, &Outcome::Hindered(obstacle.clone()), &at(1));
            assert_eq!(ready(&status), ("False", obstacle.reason()));
            assert_eq!(
                status
                    .conditions
                    .iter()
                    .find(|c| c.type_ == STALLED)
                    .unwrap()
                    .status,
                stalled
            );
        }
    }
}
