//! A group's offsets: set to a time, to the end, or to another group's.

use anyhow::Context as _;
use serde::Serialize;

use crate::cli::Target;
use crate::context::{self, Context, Done, confirm};
use crate::failure::Failure;
use crate::output::{self, Table};

/// A point in time that stands for the end of a queue.
pub(crate) const END: i64 = -1;

#[derive(Serialize)]
struct ResetRow {
    broker: String,
    queue: i32,
    offset: i64,
    /// Whether consumers that are connected were told; otherwise the offset was only stored.
    online: bool,
}

/// Sets a group's offsets of a topic to those of a time. Consumers that are connected are told; where none is, the
/// offsets are stored.
pub(crate) async fn reset(
    cx: &Context,
    group: &str,
    topic: &str,
    to: i64,
    force: bool,
    yes: bool,
) -> anyhow::Result<()> {
    let route = cx.admin.route(topic).await?;
    let when = if to == END {
        "the end".to_owned()
    } else {
        format!("{} UTC", output::time(to))
    };
    confirm(
        &format!("Set the offsets of group {group} on topic {topic} to {when}?"),
        yes,
    )?;
    let mut rows = Vec::new();
    for broker in &route.broker_datas {
        let Some(address) = broker.select_address() else {
            continue;
        };
        let name = &broker.broker_name;
        match cx
            .admin
            .reset_group_offsets(address, group, topic, to, force)
            .await
        {
            Ok(table) => rows.extend(table.offset_table.into_iter().map(|(queue, offset)| ResetRow {
                broker: queue.broker_name,
                queue: queue.queue_id,
                offset,
                online: true,
            })),
            Err(error) if error.code() == Some(206) => {
                let queues = route.queue_datas.iter().find(|q| q.broker_name == *name);
                for queue in 0..queues.map_or(0, |q| q.read_queue_nums) {
                    let offset = store(cx, address, group, topic, queue, to, force).await;
                    let offset =
                        offset.with_context(|| format!("set the offset of queue {queue} on {name}"))?;
                    rows.push(ResetRow {
                        broker: name.clone(),
                        queue,
                        offset,
                        online: false,
                    });
                }
            }
            Err(error) => {
                return Err(anyhow::Error::new(error).context(format!("reset the offsets on {name}")));
            }
        }
    }
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["broker", "queue", "offset", "consumers"]).numbers(&[1, 2]);
        for row in rows {
            let told = if row.online { "told" } else { "none connected" };
            table.row([
                row.broker.clone(),
                row.queue.to_string(),
                row.offset.to_string(),
                told.to_owned(),
            ]);
        }
        table
    })
}

async fn store(
    cx: &Context,
    address: &str,
    group: &str,
    topic: &str,
    queue: i32,
    to: i64,
    force: bool,
) -> anyhow::Result<i64> {
    let wanted = if to == END {
        cx.admin.max_offset(address, topic, queue).await?
    } else {
        cx.admin.offset_by_time(address, topic, queue, to).await?
    };
    let stored = cx.admin.group_offset(address, group, topic, queue).await?;
    if !force && let Some(stored) = stored.filter(|stored| *stored <= wanted) {
        return Ok(stored);
    }
    cx.admin
        .set_group_offset(address, group, topic, queue, wanted)
        .await?;
    Ok(wanted)
}

pub(crate) async fn clone(
    cx: &Context,
    from: &str,
    to: &str,
    topic: Option<&str>,
    yes: bool,
) -> anyhow::Result<()> {
    let of = topic.map_or_else(|| "all topics".to_owned(), |topic| format!("topic {topic}"));
    confirm(
        &format!("Overwrite the offsets of group {to} on {of} with those of {from}?"),
        yes,
    )?;
    let mut copied = Vec::new();
    for broker in cx.masters(&Target::default()).await? {
        let stats = match cx.admin.consume_stats(&broker.address, from, topic).await {
            Err(error) if error.is_not_found() => continue,
            stats => stats.with_context(|| format!("read the offsets of {from} on {}", broker.name))?,
        };
        for (queue, offsets) in stats.offset_table {
            let set = cx.admin.set_group_offset(
                &broker.address,
                to,
                &queue.topic,
                queue.queue_id,
                offsets.consumer_offset,
            );
            set.await
                .with_context(|| format!("set the offsets of {to} on {}", broker.name))?;
        }
        eprintln!("{}: {to} is where {from} is", broker.name);
        copied.push(broker);
    }
    if copied.is_empty() {
        return Err(Failure::NotFound(format!("group {from:?} has stored no offset")).into());
    }
    output::print_done(
        cx.format,
        &Done {
            changed: "offsets",
            name: Some(to.to_owned()),
            brokers: context::names(&copied),
        },
    )
}
