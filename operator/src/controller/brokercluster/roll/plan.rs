//! Which pods may be taken out now: pure. See the parent module for the rules.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Permission to take one pod of a group out, as persisted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Ordinal of the broker in its group.
    pub ordinal: i32,
    /// Uid of the pod that is taken out. Another uid means that it was.
    pub uid: String,
    /// What differs.
    pub why: String,
}

/// What holds for the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Groups that may have a broker down.
    pub parallel: usize,
    /// Nothing is taken out, and what has not begun is given up.
    pub paused: bool,
    /// Why nothing new is begun with brokers that serve.
    pub closed: Option<String>,
    /// Masters wait for a person: why.
    pub masters_wait: Option<String>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            parallel: 1,
            paused: false,
            closed: None,
            masters_wait: None,
        }
    }
}

/// The StatefulSet of a group against what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// There is none.
    Missing,
    /// It has to be written.
    Behind,
    /// As wanted, but its controller has not seen that yet: a pod made now may be of the old form.
    Unseen,
    /// As wanted.
    Current,
}

/// What a broker does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It serves: ready, registered everywhere, caught up with its master.
    Serving,
    /// It is on its way: the text says where.
    Coming(String),
    /// Its container does not run, and will not without a change: the text says why.
    Broken(String),
}

/// A pod of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its uid.
    pub uid: String,
    /// What of it differs from what is wanted.
    pub stale: Option<String>,
    /// A person asked for its restart now: windows do not count.
    pub urgent: bool,
    /// It is being deleted.
    pub leaving: bool,
    /// What it does.
    pub health: Health,
    /// Seconds for which it takes no writes; 0 is none.
    pub stopped_for: u64,
    /// Bytes of its log that are not dispatched, none if not known.
    pub behind: Option<i64>,
    /// A replica: whether it has all of its master's log, to the last byte.
    pub has_all: bool,
}

/// A broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// Its pod, if there is one.
    pub pod: Option<Pod>,
}

/// A group; the brokers by ordinal, the master first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Index of the group.
    pub index: i32,
    /// Its StatefulSet.
    pub form: Form,
    /// The grant that is in force.
    pub grant: Option<Grant>,
    /// Its brokers.
    pub brokers: Vec<Broker>,
}

/// How a grant ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The new pod serves.
    Done,
    /// The pod was not taken out.
    GivenUp(String),
}

/// One thing to do. Each may be the last before the operator dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write the group's ConfigMap and StatefulSet.
    Apply(i32),
    /// Persist a grant.
    Grant(i32, Grant),
    /// Renew the stop of writes.
    StopWrites(i32, i32),
    /// End the stop of writes.
    GiveWritesBack(i32, i32),
    /// Delete the pod of this uid.
    Delete(i32, i32, String),
    /// Remove the grant.
    End(i32, Grant, Outcome),
}

/// What something waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Index of the group.
    pub group: i32,
    /// Ordinal, if it is about one broker.
    pub ordinal: Option<i32>,
    /// For people.
    pub why: String,
}

/// Steps for now, and what the rest waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be done in this order.
    pub steps: Vec<Step>,
    /// Why not more.
    pub waits: Vec<Wait>,
}

/// Leases are renewed below this many seconds.
pub const RENEW_BELOW: u64 = 30;

impl Broker {
    /// Whether it serves and is not about to go.
    pub fn serves(&self) -> bool {
        self.pod
            .as_ref()
            .is_some_and(|p| !p.leaving && p.health == Health::Serving)
    }

    fn stale(&self) -> Option<(&Pod, &str)> {
        let pod = self.pod.as_ref()?;
        Some((pod, pod.stale.as_deref()?))
    }
}

impl Group {
    fn all_serve(&self) -> bool {
        self.brokers.iter().all(Broker::serves)
    }

    /// Whether a broker of it is down, or is about to be.
    pub fn is_disturbed(&self) -> bool {
        self.form != Form::Missing && (self.grant.is_some() || !self.all_serve())
    }

    fn has_stale(&self) -> bool {
        self.brokers.iter().any(|b| b.stale().is_some())
    }
}

/// Decides.
pub fn plan(rules: &Rules, groups: &[Group]) -> Plan {
    let mut plan = Plan::default();
    let mut taken: BTreeSet<i32> = groups
        .iter()
        .filter(|g| g.is_disturbed())
        .map(|g| g.index)
        .collect();
    // Groups with a broker down now; each pod that goes in this plan adds its own.
    let mut down: BTreeSet<i32> = groups
        .iter()
        .filter(|g| g.form != Form::Missing && !g.all_serve())
        .map(|g| g.index)
        .collect();
    for group in groups {
        if group.form == Form::Missing {
            plan.steps.push(Step::Apply(group.index));
        } else if let Some(grant) = &group.grant {
            go_on(rules, group, grant, &mut down, &mut plan);
        } else {
            heal(rules, group, &mut plan);
        }
    }
    // Groups that already have their new form come first, so that few are under way.
    let (begun, rest): (Vec<&Group>, Vec<&Group>) = groups
        .iter()
        .filter(|g| g.form != Form::Missing && g.grant.is_none())
        .partition(|g| g.form != Form::Behind);
    for group in begun.into_iter().filter(|g| g.has_stale()) {
        let granted = plan
            .steps
            .iter()
            .any(|s| matches!(s, Step::Grant(index, _) if *index == group.index));
        if !granted {
            begin(rules, group, &mut taken, &mut plan);
        }
        taken.insert(group.index);
    }
    for group in rest {
        change_form(rules, group, &mut taken, &mut plan);
    }
    plan
}

/// A group whose StatefulSet has to be written.
fn change_form(rules: &Rules, group: &Group, taken: &mut BTreeSet<i32>, plan: &mut Plan) {
    let mut wait = |why: String| {
        plan.waits.push(Wait {
            group: group.index,
            ordinal: None,
            why,
        });
    };
    // What asks for no restart harms nobody; and a group that is down may be healed by it.
    if !group.has_stale() || (!rules.paused && group.brokers.iter().any(is_broken)) {
        plan.steps.push(Step::Apply(group.index));
    } else if rules.paused {
        wait("spec.rollout.paused is set".to_owned());
    } else if let Some(why) = &rules.closed {
        wait(why.clone());
    } else if taken.contains(&group.index) {
        wait("a broker of the group is not serving".to_owned());
    } else if taken.len() >= rules.parallel {
        wait(format!("group {} has its turn first", first(taken)));
    } else {
        taken.insert(group.index);
        plan.steps.push(Step::Apply(group.index));
    }
}

fn first(taken: &BTreeSet<i32>) -> i32 {
    taken.first().copied().unwrap_or_default()
}

fn is_broken(broker: &Broker) -> bool {
    broker
        .pod
        .as_ref()
        .is_some_and(|p| matches!(p.health, Health::Broken(_)))
}

/// Replaces a pod that does not run and is not as wanted; its group has no grant.
fn heal(rules: &Rules, group: &Group, plan: &mut Plan) {
    if rules.paused || group.form != Form::Current {
        return;
    }
    for (ordinal, broker) in (0..).zip(&group.brokers) {
        if let Some((pod, why)) = broker.stale()
            && !pod.leaving
            && is_broken(broker)
        {
            let grant = Grant {
                ordinal,
                uid: pod.uid.clone(),
                why: why.to_owned(),
            };
            plan.steps.push(Step::Grant(group.index, grant));
            return;
        }
    }
}

/// Gives the group's turn to its next broker.
fn begin(rules: &Rules, group: &Group, taken: &mut BTreeSet<i32>, plan: &mut Plan) {
    // Replicas before the master, the last one first.
    let next = group
        .brokers
        .iter()
        .enumerate()
        .rev()
        .find_map(|(ordinal, broker)| {
            let (pod, why) = broker.stale()?;
            Some((ordinal as i32, pod, why))
        });
    let Some((ordinal, pod, why)) = next else { return };
    let obstacle = if rules.paused {
        Some("spec.rollout.paused is set".to_owned())
    } else if group.form == Form::Unseen {
        Some("the StatefulSet's controller has not seen the change yet".to_owned())
    } else if let Some(down) = (0..).zip(&group.brokers).find(|(_, b)| !b.serves()) {
        Some(not_serving(down.0, down.1))
    } else if let (Some(why), false) = (&rules.closed, pod.urgent) {
        Some(why.clone())
    } else if let (0, Some(why)) = (ordinal, &rules.masters_wait) {
        Some(why.clone())
    } else if taken.len() >= rules.parallel && !taken.contains(&group.index) {
        Some(format!("group {} has its turn first", first(taken)))
    } else {
        None
    };
    if let Some(why) = obstacle {
        plan.waits.push(Wait {
            group: group.index,
            ordinal: Some(ordinal),
            why,
        });
        return;
    }
    taken.insert(group.index);
    let grant = Grant {
        ordinal,
        uid: pod.uid.clone(),
        why: why.to_owned(),
    };
    plan.steps.push(Step::Grant(group.index, grant));
}

fn not_serving(ordinal: i32, broker: &Broker) -> String {
    let why = match &broker.pod {
        None => "has no pod",
        Some(pod) if pod.leaving => "is stopping",
        Some(pod) => match &pod.health {
            Health::Serving => "serves",
            Health::Coming(why) | Health::Broken(why) => why,
        },
    };
    format!("broker {ordinal} of the group: {why}")
}

/// Takes a granted restart one step further.
fn go_on(rules: &Rules, group: &Group, grant: &Grant, down: &mut BTreeSet<i32>, plan: &mut Plan) {
    if group.form == Form::Behind {
        // A group that is under way follows every change of mind at once.
        plan.steps.push(Step::Apply(group.index));
    }
    let end = |plan: &mut Plan, outcome| plan.steps.push(Step::End(group.index, grant.clone(), outcome));
    let Some(broker) = group.brokers.get(grant.ordinal as usize) else {
        end(
            plan,
            Outcome::GivenUp("the broker is no longer wanted".to_owned()),
        );
        return;
    };
    let waits = match &broker.pod {
        None => Some("its pod is made anew".to_owned()),
        Some(pod) if pod.leaving => Some("it is stopping".to_owned()),
        Some(pod) if pod.uid == grant.uid => old_pod(rules, group, grant, pod, down, plan),
        Some(pod) => match &pod.health {
            Health::Serving => {
                end(plan, Outcome::Done);
                None
            }
            Health::Broken(_) if pod.stale.is_some() && group.form == Form::Current && !rules.paused => {
                plan.steps
                    .push(Step::Delete(group.index, grant.ordinal, pod.uid.clone()));
                None
            }
            Health::Broken(why) => Some(format!("it does not come up: {why}")),
            Health::Coming(why) => Some(why.clone()),
        },
    };
    if let Some(why) = waits {
        plan.waits.push(Wait {
            group: group.index,
            ordinal: Some(grant.ordinal),
            why,
        });
    }
}

/// The granted pod is still there. Gives what it waits for.
fn old_pod(
    rules: &Rules,
    group: &Group,
    grant: &Grant,
    pod: &Pod,
    down: &mut BTreeSet<i32>,
    plan: &mut Plan,
) -> Option<String> {
    let (index, ordinal) = (group.index, grant.ordinal);
    let give_up = |plan: &mut Plan, why: &str| {
        if pod.stopped_for > 0 {
            plan.steps.push(Step::GiveWritesBack(index, ordinal));
        }
        plan.steps
            .push(Step::End(index, grant.clone(), Outcome::GivenUp(why.to_owned())));
        None
    };
    if pod.stale.is_none() {
        return give_up(plan, "nothing of it differs any more");
    }
    if rules.paused {
        return give_up(plan, "spec.rollout.paused is set");
    }
    let delete = |plan: &mut Plan| {
        plan.steps.push(Step::Delete(index, ordinal, pod.uid.clone()));
        None
    };
    if group.form != Form::Current {
        return Some("the StatefulSet's controller has not seen the change yet".to_owned());
    }
    match &pod.health {
        Health::Broken(_) => return delete(plan),
        Health::Coming(why) => return Some(why.clone()),
        Health::Serving => {}
    }
    let others = || {
        (0..)
            .zip(&group.brokers)
            .filter(move |(other, _)| *other != ordinal)
    };
    if let Some((other, broker)) = others().find(|(_, b)| !b.serves()) {
        // It may be that one which has to be healed: the turn is free for it.
        return give_up(plan, &not_serving(other, broker));
    }
    // Others may have gone down by themselves since the grant was given.
    if down.len() >= rules.parallel {
        if pod.stopped_for > 0 {
            plan.steps.push(Step::GiveWritesBack(index, ordinal));
        }
        return Some(format!("group {} has a broker down", first(down)));
    }
    if ordinal == 0 {
        if pod.stopped_for < RENEW_BELOW {
            plan.steps.push(Step::StopWrites(index, ordinal));
        }
        if pod.stopped_for == 0 {
            return Some("its writes are being stopped".to_owned());
        }
    }
    match pod.behind {
        Some(0) => {}
        Some(bytes) => return Some(format!("{bytes} bytes of its log are not dispatched yet")),
        None => return Some("it does not say how far its dispatch is".to_owned()),
    }
    if ordinal == 0
        && let Some((other, _)) = others().find(|(_, b)| !b.pod.as_ref().is_some_and(|p| p.has_all))
    {
        return Some(format!("replica {other} does not have all of its log yet"));
    }
    down.insert(index);
    delete(plan)
}
