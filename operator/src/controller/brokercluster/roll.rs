//! Which groups may be changed now: one at a time, so that a bad change takes down one group and not all of them.
//!
//! The state is the StatefulSets themselves, so a new operator goes on where the old one stopped. A group that does not
//! exist yet may always be made. While some group is not settled, only such groups may be changed: they are down
//! already, and the change may be what heals them. Else the first group that differs may. A group that has to wait
//! keeps its ConfigMap too, so that a pod that restarts meanwhile comes back as it was.

use super::build::{ObjectKind, Plan, Wanted};
use crate::apply::{Live, Step, decide, with_digest};
use crate::names;
use serde_json::Value;
use std::collections::BTreeSet;

/// Takes the objects of groups that have to wait out of the plan; gives the indices of these groups.
pub fn hold_back(plan: &mut Plan, live: &Live, owner_uid: &str) -> Vec<i32> {
    let mut changed = BTreeSet::new();
    let mut unsettled = BTreeSet::new();
    for wanted in plan.objects.iter().filter(|w| w.kind == ObjectKind::StatefulSet) {
        let (Some(group), Some(set)) = (group_of(wanted), live.get(&(wanted.kind, wanted.name.clone())))
        else {
            continue;
        };
        if decide(Some(set), &with_digest(wanted), owner_uid) == Step::Apply {
            changed.insert(group);
        }
        if !is_settled(set) {
            unsettled.insert(group);
        }
    }
    let may_change = |group: &i32| {
        if unsettled.is_empty() {
            changed.first() == Some(group)
        } else {
            unsettled.contains(group)
        }
    };
    let held: Vec<i32> = changed.iter().filter(|g| !may_change(g)).copied().collect();
    let waits = |w: &Wanted| {
        matches!(w.kind, ObjectKind::StatefulSet | ObjectKind::ConfigMap)
            && group_of(w).is_some_and(|g| held.contains(&g))
    };
    plan.held = plan
        .objects
        .iter()
        .filter(|w| waits(w))
        .map(|w| (w.kind, w.name.clone()))
        .collect();
    plan.objects.retain(|w| !waits(w));
    held
}

fn group_of(wanted: &Wanted) -> Option<i32> {
    wanted.value["metadata"]["labels"][names::GROUP_LABEL]
        .as_str()?
        .parse()
        .ok()
}

/// Whether all pods of a StatefulSet are of its present form and ready.
pub fn is_settled(set: &Value) -> bool {
    let figure = |name: &str| set["status"][name].as_i64().unwrap_or(0);
    let all = set["spec"]["replicas"].as_i64().unwrap_or(1);
    set["status"]["observedGeneration"].as_i64() >= set["metadata"]["generation"].as_i64()
        && figure("replicas") == all
        && figure("updatedReplicas") == all
        && figure("readyReplicas") == all
        && set["status"]["currentRevision"] == set["status"]["updateRevision"]
}

#[cfg(test)]
mod tests {
    use super::super::build::{Facts, build};
    use super::super::validate::{Existing, tests::cluster, validate};
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn plan(spec: Value) -> Plan {
        let mut whole = json!({"brokers": {"groups": 3}});
        if let (Some(base), Value::Object(more)) = (whole.as_object_mut(), spec) {
            base.extend(more);
        }
        let valid = validate(&cluster(whole), &Existing::default()).unwrap();
        let addresses: BTreeMap<_, _> = (0..3)
            .map(|i| (names::master("demo", i), format!("10.96.0.{i}")))
            .collect();
        build(
            &valid,
            &Facts {
                addresses,
                ..Facts::default()
            },
        )
    }

    /// A world in which a plan was carried out; the groups named are not ready.
    fn world(plan: &Plan, down: &[&str]) -> Live {
        plan.objects
            .iter()
            .map(|w| {
                let mut value = with_digest(w);
                value["metadata"]["generation"] = json!(1);
                let ready = i32::from(!down.contains(&w.name.as_str()));
                value["status"] = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
                    "readyReplicas": ready, "currentRevision": "a", "updateRevision": "a"});
                ((w.kind, w.name.clone()), value)
            })
            .collect()
    }

    fn sets(plan: &Plan) -> Vec<&str> {
        plan.objects
            .iter()
            .filter(|o| o.kind == ObjectKind::StatefulSet)
            .map(|o| o.name.as_str())
            .collect()
    }

    #[test]
    fn all_groups_are_made_at_once() {
        let mut new = plan(json!({}));
        assert!(hold_back(&mut new, &Live::new(), "u-1").is_empty());
        assert_eq!(sets(&new).len(), 3);
    }

    #[test]
    fn a_change_reaches_one_group_and_its_configuration() {
        let live = world(&plan(json!({})), &[]);
        let mut next = plan(json!({"image": "ferromq:next", "retention": {"fileReservedTime": 24}}));
        assert_eq!(hold_back(&mut next, &live, "u-1"), [1, 2]);
        assert_eq!(sets(&next), ["demo-0"]);
        let maps: Vec<_> = next
            .objects
            .iter()
            .filter(|o| o.kind == ObjectKind::ConfigMap)
            .map(|o| &o.name)
            .collect();
        assert_eq!(maps, ["demo-namesrv", "demo-0"]);
        assert!(
            crate::apply::superfluous("u-1", &next, &live).is_empty(),
            "what waits is not removed"
        );
    }

    #[test]
    fn a_group_that_does_not_come_up_stops_the_rest_and_may_be_healed() {
        let live = world(&plan(json!({})), &["demo-1"]);
        let mut next = plan(json!({"image": "ferromq:next"}));
        assert_eq!(hold_back(&mut next, &live, "u-1"), [0, 2]);
        assert_eq!(sets(&next), ["demo-1"]);
    }

    #[test]
    fn without_a_change_nothing_is_held() {
        let live = world(&plan(json!({})), &["demo-2"]);
        let mut same = plan(json!({}));
        assert!(hold_back(&mut same, &live, "u-1").is_empty());
        assert_eq!(sets(&same).len(), 3);
    }

    #[test]
    fn from_any_broken_world_all_groups_are_reached() {
        for down in [
            &[][..],
            &["demo-0"],
            &["demo-1", "demo-2"],
            &["demo-0", "demo-1", "demo-2"],
        ] {
            let mut live = world(&plan(json!({})), down);
            let target = json!({"image": "ferromq:next"});
            for _ in 0..4 {
                let mut next = plan(target.clone());
                hold_back(&mut next, &live, "u-1");
                // What is applied comes up.
                live.extend(world(&next, &[]));
            }
            let mut last = plan(target);
            assert!(hold_back(&mut last, &live, "u-1").is_empty(), "{down:?}");
            for set in last.objects.iter().filter(|o| o.kind == ObjectKind::StatefulSet) {
                assert_eq!(
                    decide(live.get(&(set.kind, set.name.clone())), &with_digest(set), "u-1"),
                    Step::Leave
                );
            }
        }
    }
}
