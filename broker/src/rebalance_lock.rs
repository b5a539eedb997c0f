//! Queue locks of ordered consumers (requests 41 and 42).
//!
//! A client of a group owns a queue while its lock is younger than [`LOCK_LIFE_MS`]; asking again renews
//! it. Locks live in memory only: after a restart of the broker the first asker gets them, as with Java.
//! Every decision takes the time as an argument.

use std::collections::HashMap;

use ferromq_protocol::body::MessageQueue;
use parking_lot::Mutex;

/// How long a lock lives without renewal, in milliseconds.
pub(crate) const LOCK_LIFE_MS: i64 = 60_000;

#[derive(Debug)]
struct Lock {
    client: String,
    renewed_at: i64,
}

impl Lock {
    fn held_by_other(&self, client: &str, now: i64) -> bool {
        self.client != client && now.saturating_sub(self.renewed_at) <= LOCK_LIFE_MS
    }
}

type Group = HashMap<MessageQueue, Lock>;

/// The locks of all groups.
#[derive(Debug, Default)]
pub(crate) struct RebalanceLocks {
    groups: Mutex<HashMap<String, Group>>,
}

impl RebalanceLocks {
    /// Locks or renews what is free or already the client's; returns the queues that the client now owns.
    pub(crate) fn lock(
        &self,
        group: &str,
        client: &str,
        queues: &[MessageQueue],
        now: i64,
    ) -> Vec<MessageQueue> {
        if queues.is_empty() {
            return Vec::new();
        }
        let mut groups = self.groups.lock();
        let table = groups.entry(group.to_owned()).or_default();
        let mut owned = Vec::with_capacity(queues.len());
        for queue in queues {
            match table.get_mut(queue) {
                Some(lock) if lock.held_by_other(client, now) => continue,
                Some(lock) => {
                    if lock.client != client {
                        client.clone_into(&mut lock.client);
                    }
                    lock.renewed_at = now;
                }
                None => {
                    table.insert(
                        queue.clone(),
                        Lock {
                            client: client.to_owned(),
                            renewed_at: now,
                        },
                    );
                }
            }
            owned.push(queue.clone());
        }
        owned
    }

    /// Gives back the queues that the client owns; those of others stay.
    pub(crate) fn unlock(&self, group: &str, client: &str, queues: &[MessageQueue]) {
        let mut groups = self.groups.lock();
        let Some(table) = groups.get_mut(group) else {
            return;
        };
        for queue in queues {
            if table.get(queue).is_some_and(|lock| lock.client == client) {
                table.remove(queue);
            }
        }
        if table.is_empty() {
            groups.remove(group);
        }
    }

    /// Forgets expired locks, so that the table shrinks after its clients have gone.
    pub(crate) fn expire(&self, now: i64) {
        self.groups.lock().retain(|_, table| {
            table.retain(|_, lock| now.saturating_sub(lock.renewed_at) <= LOCK_LIFE_MS);
            !table.is_empty()
        });
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.groups.lock().values().map(HashMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(id: i32) -> MessageQueue {
        MessageQueue {
            topic: "T".into(),
            broker_name: "b".into(),
            queue_id: id,
        }
    }

    #[test]
    fn one_owner_at_a_time_until_the_lock_is_old() {
        let locks = RebalanceLocks::default();
        let both = [queue(0), queue(1)];
        assert_eq!(locks.lock("g", "a", &both[..1], 0), both[..1]);
        assert_eq!(locks.lock("g", "b", &both, 60_000), both[1..]);
        assert_eq!(
            locks.lock("g", "b", &both, 60_001),
            both,
            "a's lock is over 60 s old"
        );
        assert!(locks.lock("g", "a", &both, 60_002).is_empty());
    }

    #[test]
    fn renewing_extends_and_groups_are_apart() {
        let locks = RebalanceLocks::default();
        let one = [queue(0)];
        locks.lock("g", "a", &one, 0);
        locks.lock("g", "a", &one, 50_000);
        assert!(locks.lock("g", "b", &one, 100_000).is_empty());
        assert_eq!(locks.lock("h", "b", &one, 100_000), one);
    }

    #[test]
    fn unlock_frees_only_ones_own() {
        let locks = RebalanceLocks::default();
        let one = [queue(0)];
        locks.lock("g", "a", &one, 0);
        locks.unlock("g", "b", &one);
        assert!(locks.lock("g", "b", &one, 1).is_empty());
        locks.unlock("g", "a", &one);
        assert_eq!(locks.lock("g", "b", &one, 1), one);
        locks.unlock("unknown", "b", &one);
    }

    #[test]
    fn expiry_empties_the_table() {
        let locks = RebalanceLocks::default();
        locks.lock("g", "a", &[queue(0)], 0);
        locks.expire(60_000);
        assert_eq!(locks.len(), 1);
        locks.expire(60_001);
        assert_eq!(locks.len(), 0);
    }
}
