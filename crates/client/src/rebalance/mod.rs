//! How the members of a group share the queues of a topic: pure functions, each with the result of Java's class of the
//! same name, so that Java and Rust members of one group agree without talking to each other.
//!
//! Every member computes the whole share-out from the same two sorted lists and takes its own part. A member that is
//! not in the list gets nothing.

mod hash_ring;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::MessageQueue;

/// Decides which queues of a topic a member of a group consumes. All members must use the same one.
pub trait Strategy: Send + Sync + fmt::Debug + 'static {
    /// The name under which tools show it.
    fn name(&self) -> &'static str;

    /// The queues of member `me`. `queues` (of one topic, sorted by broker and number) and `members` (sorted client
    /// ids) are the same lists at every member.
    fn allocate(&self, me: &str, queues: &[MessageQueue], members: &[String]) -> Vec<MessageQueue>;
}

fn index_of(me: &str, members: &[String]) -> Option<usize> {
    members.iter().position(|member| member == me)
}

/// Neighbouring queues for each member, the first members getting one more when it does not come out even: Java's
/// `AllocateMessageQueueAveragely` and the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Averagely;

impl Strategy for Averagely {
    fn name(&self) -> &'static str {
        "AVG"
    }

    fn allocate(&self, me: &str, queues: &[MessageQueue], members: &[String]) -> Vec<MessageQueue> {
        let Some(index) = index_of(me, members) else {
            return Vec::new();
        };
        let (size, rest) = (queues.len() / members.len(), queues.len() % members.len());
        let start = index * size + index.min(rest);
        let end = start + size + usize::from(index < rest);
        queues.get(start..end).unwrap_or_default().to_vec()
    }
}

/// Queues dealt out one by one: Java's `AllocateMessageQueueAveragelyByCircle`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circle;

impl Strategy for Circle {
    fn name(&self) -> &'static str {
        "AVG_BY_CIRCLE"
    }

    fn allocate(&self, me: &str, queues: &[MessageQueue], members: &[String]) -> Vec<MessageQueue> {
        let Some(index) = index_of(me, members) else {
            return Vec::new();
        };
        queues
            .iter()
            .skip(index)
            .step_by(members.len())
            .cloned()
            .collect()
    }
}

/// A fixed list, whatever the others do: Java's `AllocateMessageQueueByConfig`.
#[derive(Debug, Clone, Default)]
pub struct Fixed(
    /// The queues of this member.
    pub Vec<MessageQueue>,
);

impl Strategy for Fixed {
    fn name(&self) -> &'static str {
        "CONFIG"
    }

    fn allocate(&self, _: &str, queues: &[MessageQueue], _: &[String]) -> Vec<MessageQueue> {
        let topic = queues.first().map(|queue| queue.topic.as_str());
        let of_topic = |queue: &&MessageQueue| Some(queue.topic.as_str()) == topic;
        self.0.iter().filter(of_topic).cloned().collect()
    }
}

/// Only brokers named `room@name` whose room is in the list, shared averagely: Java's
/// `AllocateMessageQueueByMachineRoom`.
#[derive(Debug, Clone, Default)]
pub struct MachineRoom(
    /// The rooms whose brokers are consumed.
    pub BTreeSet<String>,
);

/// The room of `room@name`; Java's split drops empty parts at the end.
fn room_of(broker: &str) -> Option<&str> {
    let mut parts: Vec<&str> = broker.split('@').collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    match parts[..] {
        [room, _] => Some(room),
        _ => None,
    }
}

impl Strategy for MachineRoom {
    fn name(&self) -> &'static str {
        "MACHINE_ROOM"
    }

    fn allocate(&self, me: &str, queues: &[MessageQueue], members: &[String]) -> Vec<MessageQueue> {
        let Some(index) = index_of(me, members) else {
            return Vec::new();
        };
        let near: Vec<&MessageQueue> = queues
            .iter()
            .filter(|queue| room_of(&queue.broker_name).is_some_and(|room| self.0.contains(room)))
            .collect();
        let (size, rest) = (near.len() / members.len(), near.len() % members.len());
        let mut mine = near[index * size..(index + 1) * size].to_vec();
        if index < rest {
            mine.push(near[index + size * members.len()]);
        }
        mine.into_iter().cloned().collect()
    }
}

/// Tells the machine room of something by its name.
pub type RoomOf = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Queues of a room go to members of that room; those of rooms without members to all: Java's
/// `AllocateMachineRoomNearby`.
#[derive(Clone)]
pub struct Nearby {
    inner: Arc<dyn Strategy>,
    room_of_broker: RoomOf,
    room_of_member: RoomOf,
}

impl Nearby {
    /// Shares out by `inner` within a room. The functions tell the room of a broker's name and of a client id.
    pub fn new(inner: impl Strategy, room_of_broker: RoomOf, room_of_member: RoomOf) -> Self {
        Self {
            inner: Arc::new(inner),
            room_of_broker,
            room_of_member,
        }
    }
}

impl fmt::Debug for Nearby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nearby")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl Strategy for Nearby {
    fn name(&self) -> &'static str {
        "MACHINE_ROOM_NEARBY"
    }

    fn allocate(&self, me: &str, queues: &[MessageQueue], members: &[String]) -> Vec<MessageQueue> {
        if index_of(me, members).is_none() {
            return Vec::new();
        }
        let mut queues_in: BTreeMap<String, Vec<MessageQueue>> = BTreeMap::new();
        for queue in queues {
            let room = (self.room_of_broker)(&queue.broker_name);
            queues_in.entry(room).or_default().push(queue.clone());
        }
        let mut members_in: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for member in members {
            let room = (self.room_of_member)(member);
            members_in.entry(room).or_default().push(member.clone());
        }
        let mine = (self.room_of_member)(me);
        let mut share = Vec::new();
        if let (Some(near), Some(neighbours)) = (queues_in.remove(&mine), members_in.get(&mine)) {
            share.extend(self.inner.allocate(me, &near, neighbours));
        }
        for (room, far) in queues_in {
            if !members_in.contains_key(&room) {
                share.extend(self.inner.allocate(me, &far, members));
            }
        }
        share
    }
}

/// A hash ring, so that few queues move when members come and go: Java's `AllocateMessageQueueConsistentHash` with
/// its default hash.
#[derive(Debug, Clone, Copy)]
pub struct ConsistentHash {
    /// Places that each member has on the ring. Java's and our default is 10.
    pub places: usize,
}

impl Default for ConsistentHash {
    fn default() -> Self {
        Self { places: 10 }
    }
}

impl Strategy for ConsistentHash {
    fn name(&self) -> &'static str {
        "CONSISTENT_HASH"
    }

    fn allocate(&self, me: &str, queues: &[MessageQueue], members: &[String]) -> Vec<MessageQueue> {
        if index_of(me, members).is_none() {
            return Vec::new();
        }
        let ring = hash_ring::Ring::new(members, self.places);
        let mine = |queue: &&MessageQueue| ring.owner(queue) == Some(me);
        queues.iter().filter(mine).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
