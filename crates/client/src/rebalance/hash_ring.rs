//! The ring of [`super::ConsistentHash`]: each member stands at the hashes of `member-0`, `member-1` and so on, a queue
//! belongs to the first place at or after the hash of its Java text, going round. A hash is the first four bytes of an
//! MD5 sum, big-endian.

use std::collections::{BTreeMap, HashMap};

use md5::{Digest, Md5};

use crate::MessageQueue;

#[derive(Debug)]
pub(super) struct Ring<'a> {
    places: BTreeMap<u32, &'a str>,
}

impl<'a> Ring<'a> {
    pub(super) fn new(members: &'a [String], places_each: usize) -> Self {
        let mut places = BTreeMap::new();
        // A member listed twice has twice the places.
        let mut had: HashMap<&str, usize> = HashMap::new();
        for member in members {
            let from = had.entry(member).or_default();
            for place in *from..*from + places_each {
                places.insert(hash(&format!("{member}-{place}")), member.as_str());
            }
            *from += places_each;
        }
        Self { places }
    }

    pub(super) fn owner(&self, queue: &MessageQueue) -> Option<&'a str> {
        let at = hash(&format!(
            "MessageQueue [topic={}, brokerName={}, queueId={}]",
            queue.topic, queue.broker_name, queue.queue_id
        ));
        let after = self.places.range(at..).next();
        after
            .or_else(|| self.places.iter().next())
            .map(|(_, member)| *member)
    }
}

fn hash(text: &str) -> u32 {
    let sum = Md5::digest(text.as_bytes());
    u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]])
}
