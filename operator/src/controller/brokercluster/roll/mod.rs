//! How a change reaches running brokers: the operator takes the pods out itself, one at a time in a group.
//!
//! StatefulSets have the update strategy OnDelete. [`plan`] is the whole of the decision, a pure function of what is
//! wanted ([`Rules`]) and what is seen ([`Group`]); [`observe`] makes the latter, [`act`] carries the steps out.
//!
//! What is persisted, and where:
//! - a **grant** on the group's StatefulSet, annotation `ferromq.io/grant`: which pod (name and uid) may be taken out, and
//!   why. It is written before anything is done to the pod and removed after the new pod serves, so an operator that
//!   starts anew knows which pod was under way. One StatefulSet holds one grant: a group never has two pods out. It is
//!   written with the version that was read, so two operators cannot both succeed.
//! - the **form** of a pod, annotation `ferromq.io/form` of the pod template: the digest of that template. A pod whose
//!   form is another than the wanted one is to be restarted; nothing has to be remembered for that.
//! - the stop of writes is a **lease** at the broker (`PUT /writes`), so an operator that vanishes stops nothing for long.
//!
//! Gates before a pod is taken out: no other broker of its group is down; fewer than `rollout.maxParallelGroups` groups
//! have one down; all name servers are of their present form; the roll is not paused and a window is open; a master, if
//! that is asked for, is approved. Then, for a master: it takes no more writes, its dispatch is caught up and every replica
//! has all of its log. After: the new pod has recovered, is registered at every name server, and a replica has caught up.
//! Until then its group counts as down. Replicas go before their master.
//!
//! A broker that recovers, starts, or cannot be heard is waited for, however long. Only one whose container does not run
//! (wrong image, exits at start, nowhere to be placed) is replaced without these gates, and only if its form is not the
//! wanted one: so a wrong change stops at the first pod, and the right one heals it.

pub mod act;
pub mod observe;
pub mod plan;
#[cfg(test)]
mod plan_tests;
pub mod window;

pub use plan::{Broker, Form, Grant, Group, Health, Outcome, Plan, Pod, Rules, Step, Wait, plan};
