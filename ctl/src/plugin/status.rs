//! A BrokerCluster for people, at most 80 columns wide.

use serde_json::Value;

use super::text_at;
use crate::output::Table;

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Names of the brokers' pods.
pub(super) fn pods(resource: &Value) -> Vec<String> {
    list(&resource["status"], "brokers")
        .iter()
        .map(|broker| text_at(broker, "name").to_owned())
        .collect()
}

/// The whole picture.
pub(super) fn text(resource: &Value) -> String {
    let status = &resource["status"];
    let or_none = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    let mut out = vec![
        format!(
            "{}: brokers {} ready, name servers {} ready",
            text_at(&resource["metadata"], "name"),
            or_none(text_at(status, "readyBrokers")),
            or_none(text_at(status, "readyNameServers"))
        ),
        format!(
            "clients connect to {}",
            or_none(text_at(status, "nameServerAddress"))
        ),
    ];
    if resource["metadata"]["generation"] != status["observedGeneration"] {
        out.push("the operator has not seen the latest change yet".to_owned());
    }
    out.extend([section(&conditions(status)), section(&brokers(status))]);
    if let Some(rollout) = status.get("rollout").filter(|rollout| rollout.is_object()) {
        let waits = match text_at(rollout, "waitingFor") {
            "" => String::new(),
            what => format!(" waits: {what}"),
        };
        out.push(format!("rollout {}{waits}", text_at(rollout, "id")));
        out.push(section(&plan(rollout)));
    }
    if !list(status, "drift").is_empty() {
        out.push("settings that brokers have from somewhere else".to_owned());
        out.push(section(&drift(status)));
    }
    out.join("\n") + "\n"
}

/// A table with an empty line before it.
fn section(table: &Table) -> String {
    format!("\n{}", table.render().trim_end())
}

fn conditions(status: &Value) -> Table {
    let mut table = Table::new(&["condition", "is", "reason", "message"]);
    for condition in list(status, "conditions") {
        table.row([
            text_at(condition, "type"),
            text_at(condition, "status"),
            text_at(condition, "reason"),
            text_at(condition, "message"),
        ]);
    }
    table
}

fn brokers(status: &Value) -> Table {
    let mut table = Table::new(&["broker", "role", "stage", "behind", "last stop", "message"]).numbers(&[3]);
    for broker in list(status, "brokers") {
        let stage = match text_at(broker, "recovery") {
            "" => text_at(broker, "stage").to_owned(),
            recovery => format!("{} {recovery}", text_at(broker, "stage")),
        };
        let last_stop = match broker["lastStopClean"].as_bool() {
            Some(true) => "clean",
            Some(false) => "crash",
            None => "-",
        };
        table.row([
            text_at(broker, "name").to_owned(),
            text_at(broker, "role").to_owned(),
            stage,
            broker["behindBytes"]
                .as_i64()
                .map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
            last_stop.to_owned(),
            text_at(broker, "message").to_owned(),
        ]);
    }
    table
}

fn plan(rollout: &Value) -> Table {
    let mut table = Table::new(&["broker", "how", "state", "why", "waits for"]);
    for row in list(rollout, "plan") {
        table.row([
            text_at(row, "name"),
            text_at(row, "how"),
            text_at(row, "state"),
            text_at(row, "why"),
            text_at(row, "message"),
        ]);
    }
    table
}

fn drift(status: &Value) -> Table {
    let mut table = Table::new(&["broker", "key", "value"]);
    for row in list(status, "drift") {
        table.row([text_at(row, "broker"), text_at(row, "key"), text_at(row, "value")]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_matters_is_told_in_80_columns() {
        let resource = json!({
            "metadata": { "name": "demo", "generation": 3 },
            "status": {
                "observedGeneration": 2,
                "readyBrokers": "1/2",
                "readyNameServers": "1/1",
                "nameServerAddress": "demo-namesrv.mq.svc:9876",
                "conditions": [{ "type": "Ready", "status": "False", "reason": "BrokersNotReady",
                    "message": "demo-broker-0-1 is recovering after a crash and will be ready when it is done" }],
                "brokers": [
                    { "name": "demo-broker-0-0", "role": "SYNC_MASTER", "stage": "running", "lastStopClean": true },
                    { "name": "demo-broker-0-1", "role": "SLAVE", "stage": "recovering", "behindBytes": 4096,
                      "recovery": "40% (abnormal stop)", "lastStopClean": false },
                ],
                "rollout": { "id": "r-7", "waitingFor": "demo-broker-0-1 to be ready",
                    "plan": [{ "name": "demo-broker-0-0", "how": "Restart", "state": "Pending", "why": "image" }] },
                "drift": [{ "broker": "demo-broker-0-0", "key": "deleteWhen", "value": "05" }],
            },
        });
        let text = text(&resource);
        for words in [
            "1/2",
            "demo-namesrv.mq.svc:9876",
            "not seen",
            "BrokersNotReady",
            "SYNC_MASTER",
            "40%",
            "crash",
            "4096",
            "r-7",
            "to be ready",
            "Pending",
            "image",
            "deleteWhen",
        ] {
            assert!(text.contains(words), "{words} is missing:\n{text}");
        }
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert_eq!(pods(&resource), ["demo-broker-0-0", "demo-broker-0-1"]);
    }

    #[test]
    fn a_resource_that_nobody_has_looked_at_is_shown_all_the_same() {
        let text = text(&json!({ "metadata": { "name": "new", "generation": 1 } }));
        assert!(text.starts_with("new: brokers - ready"), "{text}");
    }
}
