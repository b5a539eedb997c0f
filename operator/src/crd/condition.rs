//! Conditions: how they are made, merged with the previous ones, and what their types mean.
//!
//! The first three types follow kstatus, so that generic tools can wait on them: `Ready` tells whether the resource does its
//! work now, `Reconciling` that the operator is still on its way to the spec, `Stalled` that it cannot go on without a
//! change by a person. `lastTransitionTime` moves only when the status of a condition does, so that a status computed
//! twice from the same facts is equal.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Whether the resource does its work now.
pub const READY: &str = "Ready";
/// The operator is on its way to what the spec asks.
pub const RECONCILING: &str = "Reconciling";
/// The operator cannot go on before a person changes something.
pub const STALLED: &str = "Stalled";
/// Brokers that run have the settings that the spec gives.
pub const SETTINGS: &str = "SettingsApplied";
/// No volume is seen to be too small for what is to be kept.
pub const RETENTION: &str = "RetentionFits";
/// No group is seen to miss messages that retention deletes.
pub const CONSUMED: &str = "ConsumedInTime";

/// A condition without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Condition type, one of the constants above.
    pub kind: &'static str,
    /// True or False.
    pub holds: bool,
    /// CamelCase reason for programs.
    pub reason: &'static str,
    /// Sentence for people.
    pub message: String,
}

impl Verdict {
    /// A verdict of the given kind.
    pub fn new(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            holds,
            reason,
            message: message.into(),
        }
    }
}

/// Turns verdicts into conditions, keeping the transition times of `previous` where the status did not change.
pub fn merge(
    previous: &[Condition],
    verdicts: &[Verdict],
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    verdicts
        .iter()
        .map(|v| {
            let status = if v.holds { "True" } else { "False" };
            let since = previous
                .iter()
                .find(|p| p.type_ == v.kind && p.status == status)
                .map_or_else(|| now.clone(), |p| p.last_transition_time.clone());
            Condition {
                type_: v.kind.to_owned(),
                status: status.to_owned(),
                reason: v.reason.to_owned(),
                message: shorten(&v.message),
                observed_generation: generation,
                last_transition_time: since,
            }
        })
        .collect()
}

/// The API server allows 32 KiB; people read far less.
fn shorten(message: &str) -> String {
    const MOST: usize = 1_000;
    if message.chars().count() <= MOST {
        return message.to_owned();
    }
    let mut cut: String = message.chars().take(MOST).collect();
    cut.push('…');
    cut
}

/// Conditions are told apart by their type.
pub fn conditions_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    super::keyed_list::<Condition>(generator, "type")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn time_moves_with_the_status_only() {
        let first = merge(
            &[],
            &[Verdict::new(READY, false, "Starting", "one")],
            Some(1),
            &at(1),
        );
        let second = merge(
            &first,
            &[Verdict::new(READY, false, "Other", "two")],
            Some(2),
            &at(2),
        );
        assert_eq!(second[0].last_transition_time, at(1));
        assert_eq!(second[0].reason, "Other");
        let third = merge(
            &second,
            &[Verdict::new(READY, true, "AllReady", "")],
            Some(2),
            &at(3),
        );
        assert_eq!(third[0].last_transition_time, at(3));
    }
}
