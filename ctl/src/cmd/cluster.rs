//! Clusters and their brokers.

use std::collections::BTreeMap;

use anyhow::Context as _;
use futures::future::join_all;
use serde::Serialize;

use crate::context::{Context, Done};
use crate::failure::Failure;
use crate::output::{self, Table};

#[derive(Serialize)]
pub(crate) struct BrokerRow {
    cluster: String,
    broker: String,
    id: i64,
    address: String,
    /// Absent when the broker did not answer.
    version: Option<String>,
    in_tps: Option<f64>,
    out_tps: Option<f64>,
    disk_percent: Option<f64>,
    error: Option<String>,
}

/// All brokers with their rates; a broker that does not answer is shown as such and fails nothing.
pub(crate) async fn rows(cx: &Context, cluster: Option<&str>) -> anyhow::Result<Vec<BrokerRow>> {
    let mut brokers = cx.all_brokers().await?;
    if let Some(cluster) = cluster {
        brokers.retain(|broker| broker.cluster == cluster);
        if brokers.is_empty() {
            return Err(Failure::NotFound(format!("there is no cluster {cluster:?}")).into());
        }
    }
    let rows = brokers.into_iter().map(|broker| async move {
        let (info, error) = match cx.admin.runtime_info(&broker.address).await {
            Ok(info) => (info, None),
            Err(error) => (BTreeMap::new(), Some(error.to_string())),
        };
        let ratio: Option<f64> = info.get("commitLogDiskRatio").and_then(|text| text.parse().ok());
        BrokerRow {
            cluster: broker.cluster,
            broker: broker.name,
            id: broker.id,
            address: broker.address,
            version: info.get("brokerVersionDesc").cloned(),
            in_tps: first_number(info.get("putTps")),
            out_tps: first_number(info.get("getTransferedTps")),
            disk_percent: ratio.filter(|r| *r >= 0.0).map(|r| (r * 1000.0).round() / 10.0),
            error,
        }
    });
    Ok(join_all(rows).await)
}

pub(crate) async fn list(cx: &Context, cluster: Option<&str>) -> anyhow::Result<()> {
    let rows = rows(cx, cluster).await?;
    for row in rows.iter().filter(|row| row.error.is_some()) {
        eprintln!("{}: {}", row.broker, row.error.as_deref().unwrap_or_default());
    }
    output::print(cx.format, &rows, |rows| table(rows))
}

/// Brokers for people.
pub(crate) fn table(rows: &[BrokerRow]) -> Table {
    let heading = [
        "cluster", "broker", "id", "address", "version", "in/s", "out/s", "disk",
    ];
    let mut table = Table::new(&heading).numbers(&[2, 5, 6, 7]);
    for row in rows {
        let number =
            |n: Option<f64>, unit: &str| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.0}{unit}"));
        table.row([
            row.cluster.clone(),
            row.broker.clone(),
            row.id.to_string(),
            row.address.clone(),
            row.version.clone().unwrap_or_else(|| "no answer".into()),
            number(row.in_tps, ""),
            number(row.out_tps, ""),
            number(row.disk_percent, "%"),
        ]);
    }
    table
}

/// The first of the three numbers for 10, 60 and 600 seconds.
fn first_number(text: Option<&String>) -> Option<f64> {
    text?.split_whitespace().next()?.parse().ok()
}

/// Takes the write permission of a broker's topics away at every name server, or gives it back.
pub(crate) async fn set_write_perm(cx: &Context, broker: &str, write: bool) -> anyhow::Result<()> {
    if !cx.all_brokers().await?.iter().any(|b| b.name == broker) {
        return Err(Failure::NotFound(format!("no broker is named {broker:?}")).into());
    }
    for name_server in cx.admin.name_servers().await? {
        let touched = if write {
            cx.admin.add_write_perm(&name_server, broker).await
        } else {
            cx.admin.wipe_write_perm(&name_server, broker).await
        };
        let touched = touched.with_context(|| format!("ask name server {name_server}"))?;
        let now = if write {
            "take writes again"
        } else {
            "take no more writes"
        };
        eprintln!("{name_server}: {touched} topics of {broker} {now}");
    }
    let brokers = vec![broker.to_owned()];
    output::print_done(
        cx.format,
        &Done {
            changed: "write permission",
            name: None,
            brokers,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_first_of_three() {
        assert_eq!(first_number(Some(&"12.5 3.0 1.0".into())), Some(12.5));
        assert_eq!(first_number(Some(&String::new())), None);
        assert_eq!(first_number(None), None);
    }
}
