//! What became of a message, from the records that clients send to the trace topic.
//!
//! ```text
//! body = record 0x02 record 0x02 …      record = field 0x01 field 0x01 …
//! Pub        time region group topic id tags keys storeHost length cost type [offsetId] ok [clientHost]
//! SubBefore  time region group request id retries keys [clientHost]
//! SubAfter   request id cost ok keys [code] [time group]
//! EndTransaction  time region group topic id tags keys storeHost type transaction state check
//! ```
//! Source: the trace encoder of the Java client 4.9.

use anyhow::Context as _;
use ferromq_client::admin::KeyQuery;
use serde::Serialize;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Table, time};

/// One thing that happened to a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Event {
    kind: &'static str,
    group: String,
    client_host: String,
    /// Milliseconds since 1970; 0 if the record does not tell.
    time: i64,
    cost_millis: i64,
    status: String,
    /// Joins a delivery with its outcome.
    #[serde(skip)]
    request: String,
}

pub(crate) async fn run(cx: &Context, id: &str, trace_topic: &str) -> anyhow::Result<()> {
    let route = cx.admin.route(trace_topic).await?;
    let query = KeyQuery::new(trace_topic, id);
    let mut events = Vec::new();
    for broker in &route.broker_datas {
        let Some(address) = broker.select_address() else {
            continue;
        };
        let found = cx.admin.query_by_key(address, &query).await;
        let found = found.with_context(|| format!("look the id up at {}", broker.broker_name))?;
        for message in found {
            let body = message.body()?;
            events.extend(events_of(&String::from_utf8_lossy(&body), id));
        }
    }
    if events.is_empty() {
        return Err(Failure::NotFound(format!(
            "{trace_topic} tells nothing of {id}; clients send traces only when message trace is on"
        ))
        .into());
    }
    let events = join(events);
    output::print(cx.format, &events, |events| {
        let heading = ["what", "group", "client", "time", "ms", "status"];
        let mut table = Table::new(&heading).numbers(&[4]);
        for event in events {
            table.row([
                event.kind.to_owned(),
                event.group.clone(),
                event.client_host.clone(),
                time(event.time),
                event.cost_millis.to_string(),
                event.status.clone(),
            ]);
        }
        table
    })
}

/// Events of one message in a trace body. Records that cannot be read are left out.
fn events_of(body: &str, id: &str) -> Vec<Event> {
    let records = body.split('\u{2}').filter(|record| !record.is_empty());
    records.filter_map(|record| event(record, id)).collect()
}

fn event(record: &str, id: &str) -> Option<Event> {
    let fields: Vec<&str> = record.split('\u{1}').collect();
    let text = |n: usize| fields.get(n).map(|f| (*f).to_owned()).unwrap_or_default();
    let number = |n: usize| fields.get(n).and_then(|f| f.parse().ok()).unwrap_or(0);
    let outcome = |ok: &str| if ok == "true" { "success" } else { "failed" }.to_owned();
    match *fields.first()? {
        "Pub" if fields.get(5) == Some(&id) => {
            // Old clients leave out the offset id and the client host.
            let ok_at = if fields.len() >= 14 { 13 } else { 12 };
            Some(Event {
                kind: "sent",
                group: text(3),
                client_host: text(ok_at + 1),
                time: number(1),
                cost_millis: number(10),
                status: outcome(fields.get(ok_at)?),
                request: String::new(),
            })
        }
        "SubBefore" if fields.get(5) == Some(&id) => Some(Event {
            kind: "delivered",
            group: text(3),
            client_host: text(8),
            time: number(1),
            cost_millis: 0,
            status: "no outcome yet".to_owned(),
            request: text(4),
        }),
        "SubAfter" if fields.get(2) == Some(&id) => Some(Event {
            kind: "consumed",
            group: text(8),
            client_host: String::new(),
            time: number(7),
            cost_millis: number(3),
            status: outcome(fields.get(4)?),
            request: text(1),
        }),
        "EndTransaction" if fields.get(5) == Some(&id) => Some(Event {
            kind: "transaction",
            group: text(3),
            client_host: String::new(),
            time: number(1),
            cost_millis: 0,
            status: text(11),
            request: String::new(),
        }),
        _ => None,
    }
}

/// Gives each delivery its outcome, and sorts by time.
fn join(events: Vec<Event>) -> Vec<Event> {
    let (outcomes, mut rest): (Vec<Event>, Vec<Event>) =
        events.into_iter().partition(|event| event.kind == "consumed");
    for outcome in outcomes {
        let delivery = rest
            .iter_mut()
            .find(|event| event.kind == "delivered" && event.request == outcome.request);
        match delivery {
            Some(delivery) => {
                delivery.kind = "consumed";
                delivery.cost_millis = outcome.cost_millis;
                delivery.status = outcome.status;
            }
            None => rest.push(outcome),
        }
    }
    rest.sort_by_key(|event| event.time);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_java_client_are_read_and_joined() {
        let join_fields = |fields: &[&str]| fields.join("\u{1}") + "\u{2}";
        let body = [
            join_fields(&[
                "Pub",
                "1000",
                "DefaultRegion",
                "P",
                "T",
                "ID",
                "tag",
                "key",
                "10.0.0.1:10911",
                "5",
                "3",
                "0",
                "OFF",
                "true",
                "10.0.0.9",
            ]),
            join_fields(&[
                "SubBefore",
                "1005",
                "null",
                "G",
                "REQ",
                "ID",
                "0",
                "key",
                "10.0.0.8",
            ]),
            join_fields(&["SubAfter", "REQ", "ID", "2", "true", "key", "0", "1007", "G"]),
            join_fields(&[
                "SubBefore",
                "1009",
                "null",
                "H",
                "REQ2",
                "ID",
                "1",
                "key",
                "10.0.0.7",
            ]),
            join_fields(&[
                "Pub", "1000", "r", "P", "T", "OTHER", "", "", "", "5", "3", "0", "OFF", "true",
            ]),
            "nonsense\u{2}".to_owned(),
        ]
        .concat();
        let events = join(events_of(&body, "ID"));
        let told: Vec<_> = events
            .iter()
            .map(|e| (e.kind, e.group.as_str(), e.time, e.cost_millis, e.status.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("sent", "P", 1000, 3, "success"),
                ("consumed", "G", 1005, 2, "success"),
                ("delivered", "H", 1009, 0, "no outcome yet"),
            ]
        );
        assert_eq!(events[0].client_host, "10.0.0.9");
    }
}
