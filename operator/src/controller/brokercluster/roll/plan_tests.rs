//! The plan against a model of a cluster: whatever state it is in and wherever the operator dies, following the plan
//! converges, and on the way no broker that serves is taken out while too many are down.

use super::plan::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A pod of the model.
#[allow(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
#[derive(Debug, Clone)]
struct ModelPod {
    uid: u32,
    form: u8,
    /// Passes until it serves; broken forms never do.
    until: u8,
    leaving: bool,
    stopped: bool,
    behind: bool,
    has_all: bool,
}

#[derive(Debug, Clone)]
struct ModelGroup {
    form: u8,
    seen: u8,
    grant: Option<Grant>,
    pods: Vec<Option<ModelPod>>,
}

#[derive(Debug, Clone)]
struct World {
    groups: Vec<ModelGroup>,
    wanted: u8,
    next: u32,
    parallel: usize,
}

/// Pods of this form never come up.
const BROKEN: u8 = 9;

impl World {
    fn see(&self) -> Vec<Group> {
        (0..)
            .zip(&self.groups)
            .map(|(index, g)| Group {
                index,
                form: if g.form != self.wanted {
                    Form::Behind
                } else if g.seen != g.form {
                    Form::Unseen
                } else {
                    Form::Current
                },
                grant: g.grant.clone(),
                brokers: g
                    .pods
                    .iter()
                    .map(|p| Broker {
                        pod: p.as_ref().map(|p| self.see_pod(p)),
                    })
                    .collect(),
            })
            .collect()
    }

    fn see_pod(&self, p: &ModelPod) -> Pod {
        Pod {
            uid: p.uid.to_string(),
            stale: (p.form != self.wanted).then(|| "image".to_owned()),
            urgent: false,
            leaving: p.leaving,
            health: if p.form == BROKEN {
                Health::Broken("exits".to_owned())
            } else if p.until > 0 {
                Health::Coming("recovering".to_owned())
            } else {
                Health::Serving
            },
            stopped_for: if p.stopped { 60 } else { 0 },
            behind: Some(i64::from(p.behind)),
            has_all: p.has_all,
        }
    }

    fn down(&self) -> BTreeSet<usize> {
        let groups = self.see();
        groups
            .iter()
            .enumerate()
            .filter(|(_, g)| !g.brokers.iter().all(Broker::serves))
            .map(|(i, _)| i)
            .collect()
    }

    fn act(&mut self, step: &Step) {
        let before = self.down();
        match step {
            Step::Apply(g) => self.groups[*g as usize].form = self.wanted,
            Step::Grant(g, grant) => {
                let slot = &mut self.groups[*g as usize].grant;
                assert!(slot.is_none(), "a second grant in one group");
                *slot = Some(grant.clone());
            }
            Step::StopWrites(g, o) => self.pod(*g, *o).stopped = true,
            Step::GiveWritesBack(g, o) => self.pod(*g, *o).stopped = false,
            Step::End(g, ..) => self.groups[*g as usize].grant = None,
            Step::Delete(g, o, uid) => {
                let served = self.see()[*g as usize].brokers[*o as usize].serves();
                let group = &self.groups[*g as usize];
                assert_eq!(group.seen, self.wanted, "the new pod would be of the old form");
                let grant = group.grant.clone().expect("no pod goes without a grant");
                assert_eq!(grant.ordinal, *o);
                let pod = self.pod(*g, *o);
                assert_eq!(&pod.uid.to_string(), uid);
                if served {
                    assert!(*o != 0 || pod.stopped, "writes are stopped before a master goes");
                    assert!(!pod.behind, "an abort file would stay");
                    assert!(!before.contains(&(*g as usize)), "a second broker of one group");
                    assert!(before.len() < self.parallel, "below the floor: {before:?}");
                    let group = &self.groups[*g as usize];
                    let all = group.pods.iter().skip(1).flatten().all(|p| p.has_all);
                    assert!(*o != 0 || all, "a master went before its replicas had all");
                }
                self.pod(*g, *o).leaving = true;
            }
        }
    }

    fn pod(&mut self, g: i32, o: i32) -> &mut ModelPod {
        self.groups[g as usize].pods[o as usize].as_mut().unwrap()
    }

    /// What Kubernetes and the brokers do by themselves.
    fn live(&mut self) {
        for g in &mut self.groups {
            g.seen = g.form;
            for slot in &mut g.pods {
                match slot {
                    Some(p) if p.leaving => *slot = None,
                    Some(p) => {
                        p.until = p.until.saturating_sub(1);
                        p.behind = false;
                        p.has_all = true;
                    }
                    None => {
                        self.next += 1;
                        *slot = Some(ModelPod {
                            uid: self.next,
                            form: g.form,
                            until: 2,
                            leaving: false,
                            stopped: false,
                            behind: false,
                            has_all: false,
                        });
                    }
                }
            }
        }
    }

    fn converged(&self) -> bool {
        let done = |p: &Option<ModelPod>| p.as_ref().is_some_and(|p| p.form == self.wanted && p.until == 0);
        self.groups
            .iter()
            .all(|g| g.grant.is_none() && g.form == self.wanted && g.pods.iter().all(done))
    }
}

prop_compose! {
    fn any_pod(uid: u32)(
        exists in 0..10, form in prop::sample::select(vec![0_u8, 1, 2, BROKEN]), until in 0..4_u8,
        leaving in prop::bool::weighted(0.1), stopped: bool, behind: bool, has_all: bool,
    ) -> Option<ModelPod> {
        (exists > 0).then_some(ModelPod { uid, form, until, leaving, stopped, behind, has_all })
    }
}

fn any_group(base: u32) -> impl Strategy<Value = ModelGroup> {
    let pods = (1..4_u32).prop_flat_map(move |n| (0..n).map(|i| any_pod(base + i)).collect::<Vec<_>>());
    let form = || prop::sample::select(vec![0_u8, 1, BROKEN]);
    (
        form(),
        form(),
        pods,
        prop::option::weighted(0.4, (0..3_usize, any::<bool>())),
    )
        .prop_map(|(form, seen, pods, grant)| {
            let grant = grant.map(|(at, taken)| {
                let ordinal = at % pods.len();
                let uid = match (&pods[ordinal], taken) {
                    (Some(p), false) => p.uid.to_string(),
                    _ => "gone".to_owned(),
                };
                Grant {
                    ordinal: ordinal as i32,
                    uid,
                    why: "image".to_owned(),
                }
            });
            ModelGroup {
                form,
                seen,
                grant,
                pods,
            }
        })
}

fn any_world() -> impl Strategy<Value = World> {
    let groups = (1..5_u32).prop_flat_map(|n| (0..n).map(|i| any_group(i * 10)).collect::<Vec<_>>());
    (groups, 1..3_usize).prop_map(|(groups, parallel)| World {
        groups,
        wanted: 1,
        next: 1000,
        parallel,
    })
}

fn rules(world: &World) -> Rules {
    Rules {
        parallel: world.parallel,
        ..Rules::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// `deaths`: after how many steps of each pass the operator dies.
    #[test]
    fn from_any_state_and_with_any_crashes_it_converges(
        mut world in any_world(),
        deaths in prop::collection::vec(0..4_usize, 0..40),
        changes in prop::collection::vec(prop::sample::select(vec![0_u8, 2, BROKEN]), 0..3),
    ) {
        let mut changes = changes.into_iter();
        for (pass, survive) in deaths.iter().enumerate() {
            if pass % 10 == 3 && let Some(wanted) = changes.next() {
                world.wanted = wanted;
            }
            let steps = plan(&rules(&world), &world.see()).steps;
            for step in steps.iter().take(*survive) {
                world.act(step);
            }
            if pass % 3 != 0 {
                world.live();
            }
        }
        world.wanted = 1;
        let mut passes = 0;
        while !world.converged() {
            passes += 1;
            prop_assert!(passes < 300, "does not converge: {world:?}\n{:?}", plan(&rules(&world), &world.see()));
            for step in plan(&rules(&world), &world.see()).steps {
                world.act(&step);
            }
            world.live();
        }
        prop_assert_eq!(plan(&rules(&world), &world.see()), Plan::default(), "a converged state plans nothing");
    }

    #[test]
    fn paused_takes_nothing_out_and_gives_writes_back(world in any_world()) {
        let paused = Rules { paused: true, ..rules(&world) };
        let steps = plan(&paused, &world.see()).steps;
        let taken = steps.iter().any(|s| matches!(s, Step::Delete(..) | Step::Grant(..) | Step::StopWrites(..)));
        prop_assert!(!taken, "{:?}", steps);
    }
}

fn pod(uid: &str, stale: bool) -> Pod {
    Pod {
        uid: uid.to_owned(),
        stale: stale.then(|| "image".to_owned()),
        urgent: false,
        leaving: false,
        health: Health::Serving,
        stopped_for: 0,
        behind: Some(0),
        has_all: true,
    }
}

fn group(index: i32, pods: Vec<Pod>) -> Group {
    Group {
        index,
        form: Form::Current,
        grant: None,
        brokers: pods.into_iter().map(|p| Broker { pod: Some(p) }).collect(),
    }
}

fn granted(mut group: Group, ordinal: i32, uid: &str) -> Group {
    group.grant = Some(Grant {
        ordinal,
        uid: uid.to_owned(),
        why: "image".to_owned(),
    });
    group
}

#[test]
fn replicas_go_before_their_master_and_one_group_at_a_time() {
    let groups = [
        group(0, vec![pod("a", true), pod("b", true)]),
        group(1, vec![pod("c", true)]),
    ];
    let plan = plan(&Rules::default(), &groups);
    assert!(
        matches!(&plan.steps[..], [Step::Grant(0, g)] if g.ordinal == 1 && g.uid == "b"),
        "{plan:?}"
    );
    assert!(
        plan.waits
            .iter()
            .any(|w| w.group == 1 && w.why.contains("group 0")),
        "{plan:?}"
    );
}

#[test]
fn a_master_goes_only_after_its_gates_one_by_one() {
    let mut master = pod("a", true);
    let said = |master: &Pod, replica: &Pod| {
        let group = granted(group(0, vec![master.clone(), replica.clone()]), 0, "a");
        let plan = plan(&Rules::default(), &[group]);
        (
            plan.steps,
            plan.waits.first().map(|w| w.why.clone()).unwrap_or_default(),
        )
    };
    let mut replica = pod("b", false);
    replica.has_all = false;
    let (steps, why) = said(&master, &replica);
    assert_eq!(steps, [Step::StopWrites(0, 0)]);
    assert!(why.contains("writes"), "{why}");
    master.stopped_for = 50;
    master.behind = Some(7);
    assert!(said(&master, &replica).1.contains("7 bytes"));
    master.behind = Some(0);
    assert!(said(&master, &replica).1.contains("replica 1"));
    replica.has_all = true;
    assert_eq!(said(&master, &replica).0, [Step::Delete(0, 0, "a".to_owned())]);
    master.stopped_for = 10;
    assert_eq!(
        said(&master, &replica).0[0],
        Step::StopWrites(0, 0),
        "the lease is renewed"
    );
    replica.health = Health::Coming("recovering 4%".to_owned());
    let (steps, _) = said(&master, &replica);
    assert_eq!(
        steps[0],
        Step::GiveWritesBack(0, 0),
        "a long wait gives writes back"
    );
    assert!(
        matches!(&steps[1], Step::End(0, _, Outcome::GivenUp(why)) if why.contains("recovering 4%")),
        "{steps:?}"
    );
}

#[test]
fn a_spec_that_was_put_back_gives_writes_back_and_ends_the_grant_at_once() {
    let mut master = pod("a", false);
    master.stopped_for = 50;
    let mut group = granted(group(0, vec![master]), 0, "a");
    group.form = Form::Behind;
    let plan = plan(&Rules::default(), &[group]);
    assert_eq!(plan.steps[..2], [Step::Apply(0), Step::GiveWritesBack(0, 0)]);
    assert!(
        matches!(&plan.steps[2], Step::End(0, _, Outcome::GivenUp(_))),
        "{plan:?}"
    );
}

#[test]
fn a_pod_that_does_not_come_up_stops_the_roll_and_a_change_heals_it() {
    let mut broken = pod("new", false);
    broken.health = Health::Broken("exits with 1".to_owned());
    let mut groups = vec![
        granted(group(0, vec![broken]), 0, "old"),
        group(1, vec![pod("c", true)]),
    ];
    let stopped = plan(&Rules::default(), &groups);
    assert!(stopped.steps.is_empty(), "{stopped:?}");
    assert!(stopped.waits[0].why.contains("exits with 1"), "{stopped:?}");
    // The spec is put right.
    groups[0].form = Form::Behind;
    groups[0].brokers[0].pod.as_mut().unwrap().stale = Some("configuration".to_owned());
    assert_eq!(plan(&Rules::default(), &groups).steps, [Step::Apply(0)]);
    groups[0].form = Form::Current;
    assert_eq!(
        plan(&Rules::default(), &groups).steps,
        [Step::Delete(0, 0, "new".to_owned())]
    );
}

#[test]
fn a_broker_that_recovers_is_left_alone_however_its_spec_changes() {
    let mut recovering = pod("a", true);
    recovering.health = Health::Coming("recovering 4%".to_owned());
    let groups = [group(0, vec![recovering])];
    let plan = plan(&Rules::default(), &groups);
    assert!(plan.steps.is_empty(), "{plan:?}");
    assert!(plan.waits[0].why.contains("recovering 4%"), "{plan:?}");
}

#[test]
fn windows_and_approval_hold_what_serves_and_a_person_may_go_past_a_window() {
    let groups = |urgent| {
        let mut one = pod("a", true);
        one.urgent = urgent;
        [group(0, vec![one])]
    };
    let closed = Rules {
        closed: Some("no window".to_owned()),
        ..Rules::default()
    };
    assert!(plan(&closed, &groups(false)).steps.is_empty());
    assert_eq!(plan(&closed, &groups(true)).steps.len(), 1);
    let asks = Rules {
        masters_wait: Some("approve it".to_owned()),
        ..Rules::default()
    };
    assert_eq!(plan(&asks, &groups(false)).waits[0].why, "approve it");
}
