//! Which producers and consumers are connected, in which groups, with which subscriptions.
//!
//! What holds: everything here hangs on a connection; when it closes, all its rows go at once, found by a
//! reverse index, so that a mass disconnect costs what those clients had and no scan. A group's
//! subscription to a topic is the newest that any of its connected members sent, and it goes with the
//! last member that has it: members with different subscriptions do not make each other's flap.
//! A table row exists only while a member does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ferromq_protocol::body::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData};
use ferromq_protocol::command::Language;
use parking_lot::RwLock;

use crate::selector::Selector;

/// What the tables need to know of a connection.
pub(crate) trait Link: Clone {
    /// Unique among all connections of this process.
    fn id(&self) -> u64;
}

impl Link for ferromq_remoting::Conn {
    fn id(&self) -> u64 {
        Self::id(self)
    }
}

/// One client's place in one group.
#[derive(Debug, Clone)]
pub(crate) struct Member<L> {
    pub(crate) link: L,
    pub(crate) client_id: String,
    pub(crate) language: Language,
    pub(crate) version: i32,
    /// When its last heartbeat came, by the steady clock.
    pub(crate) seen: i64,
}

/// A topic subscription, ready for matching.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) data: SubscriptionData,
    /// Or why its expression cannot be compiled.
    pub(crate) selector: Result<Selector, String>,
}

/// How a group consumes, as its latest heartbeat said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) consume_type: Option<ConsumeType>,
    pub(crate) message_model: Option<MessageModel>,
    pub(crate) consume_from_where: Option<ConsumeFromWhere>,
}

impl Manner {
    pub(crate) fn broadcasting(self) -> bool {
        self.message_model == Some(MessageModel::Broadcasting)
    }
}

#[derive(Debug)]
struct Consumer<L> {
    member: Member<L>,
    subscriptions: HashMap<String, Arc<Subscription>>,
}

#[derive(Debug)]
struct Group<L> {
    manner: Manner,
    members: BTreeMap<u64, Consumer<L>>,
    /// Topic → the newest subscription among the members.
    merged: HashMap<String, Arc<Subscription>>,
}

impl<L> Group<L> {
    /// Recomputes `merged`; returns whether the set of topics changed.
    fn merge(&mut self) -> bool {
        let mut merged: HashMap<String, Arc<Subscription>> = HashMap::new();
        for subscription in self.members.values().flat_map(|c| c.subscriptions.values()) {
            match merged.get(&subscription.data.topic) {
                Some(known) if known.data.sub_version >= subscription.data.sub_version => {}
                _ => {
                    merged.insert(subscription.data.topic.clone(), subscription.clone());
                }
            }
        }
        let changed =
            merged.len() != self.merged.len() || merged.keys().any(|t| !self.merged.contains_key(t));
        self.merged = merged;
        changed
    }
}

#[derive(Debug, Default)]
struct Places {
    /// The client id that its heartbeats gave last.
    client_id: String,
    consumers: HashSet<String>,
    producers: HashSet<String>,
}

#[derive(Debug)]
struct Inner<L> {
    consumers: HashMap<String, Group<L>>,
    producers: HashMap<String, BTreeMap<u64, Member<L>>>,
    places: HashMap<u64, Places>,
    /// Client id → the connection of that client.
    clients: HashMap<String, L>,
}

impl<L: Link> Inner<L> {
    /// Notes who is behind a connection; returns its places.
    fn place(&mut self, member: &Member<L>) -> &mut Places {
        let id = member.link.id();
        let known = self
            .clients
            .get(&member.client_id)
            .is_some_and(|link| link.id() == id);
        if !known {
            self.clients.insert(member.client_id.clone(), member.link.clone());
        }
        let place = self.places.entry(id).or_default();
        if place.client_id != member.client_id {
            if self
                .clients
                .get(&place.client_id)
                .is_some_and(|link| link.id() == id)
            {
                self.clients.remove(&place.client_id);
            }
            place.client_id.clone_from(&member.client_id);
        }
        place
    }

    /// Forgets a connection that has no place left.
    fn forget_if_idle(&mut self, link: u64) {
        let idle = self
            .places
            .get(&link)
            .is_some_and(|p| p.consumers.is_empty() && p.producers.is_empty());
        if idle {
            self.forget(link);
        }
    }

    fn forget(&mut self, link: u64) -> Option<Places> {
        let place = self.places.remove(&link)?;
        if self
            .clients
            .get(&place.client_id)
            .is_some_and(|known| known.id() == link)
        {
            self.clients.remove(&place.client_id);
        }
        Some(place)
    }
}

/// A consumer group as administrators see it.
#[derive(Debug)]
pub(crate) struct ConsumerView<L> {
    pub(crate) manner: Manner,
    pub(crate) members: Vec<Member<L>>,
    pub(crate) subscriptions: HashMap<String, Arc<Subscription>>,
}

/// What a pull finds out about its group.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// No member of the group is connected.
    NoGroup,
    /// The group has members, none of which subscribed to the topic.
    NoTopic { broadcasting: bool },
    Found {
        subscription: Arc<Subscription>,
        broadcasting: bool,
    },
}

/// All connected clients.
#[derive(Debug)]
pub(crate) struct ClientTable<L> {
    inner: RwLock<Inner<L>>,
}

impl<L> Default for ClientTable<L> {
    fn default() -> Self {
        Self {
            inner: RwLock::new(Inner {
                consumers: HashMap::new(),
                producers: HashMap::new(),
                places: HashMap::new(),
                clients: HashMap::new(),
            }),
        }
    }
}

impl<L: Link> ClientTable<L> {
    /// Takes a consumer's heartbeat. Returns whether the group's other members should learn of a change: a
    /// new member, another client id on a known connection, or another set of topics.
    pub(crate) fn consumer_seen(
        &self,
        group: &str,
        member: Member<L>,
        manner: Manner,
        subscriptions: Vec<SubscriptionData>,
    ) -> bool {
        let id = member.link.id();
        let mut inner = self.inner.write();
        inner.place(&member).consumers.insert(group.to_owned());
        let table = inner.consumers.entry(group.to_owned()).or_insert_with(|| Group {
            manner,
            members: BTreeMap::new(),
            merged: HashMap::new(),
        });
        table.manner = manner;
        let old = table.members.remove(&id);
        let new_member = old
            .as_ref()
            .is_none_or(|old| old.member.client_id != member.client_id);
        let mut known = old.map(|old| old.subscriptions).unwrap_or_default();
        let mut same = known.len() == subscriptions.len();
        let subscriptions: HashMap<_, _> = subscriptions
            .into_iter()
            .map(|data| {
                let topic = data.topic.clone();
                let kept = known.remove(&topic).filter(|k| k.data == data);
                let entry = kept.unwrap_or_else(|| {
                    same = false;
                    let selector = Selector::compile(data.expression_type.as_deref(), &data.sub_string);
                    Arc::new(Subscription { data, selector })
                });
                (topic, entry)
            })
            .collect();
        table.members.insert(
            id,
            Consumer {
                member,
                subscriptions,
            },
        );
        let topics_changed = (!same || new_member) && table.merge();
        new_member || topics_changed
    }

    /// Takes a producer's heartbeat.
    pub(crate) fn producer_seen(&self, group: &str, member: Member<L>) {
        let id = member.link.id();
        let mut inner = self.inner.write();
        if let Some(known) = inner.producers.get_mut(group).and_then(|g| g.get_mut(&id))
            && known.client_id == member.client_id
        {
            *known = member;
            return;
        }
        inner.place(&member).producers.insert(group.to_owned());
        inner
            .producers
            .entry(group.to_owned())
            .or_default()
            .insert(id, member);
    }

    /// A consumer leaves one group. Returns whether it was in it.
    pub(crate) fn consumer_left(&self, group: &str, link: u64) -> bool {
        let mut inner = self.inner.write();
        let left = leave(&mut inner.consumers, group, link);
        if let Some(place) = inner.places.get_mut(&link) {
            place.consumers.remove(group);
        }
        inner.forget_if_idle(link);
        left
    }

    /// A producer leaves one group.
    pub(crate) fn producer_left(&self, group: &str, link: u64) {
        let mut inner = self.inner.write();
        leave_producers(&mut inner.producers, group, link);
        if let Some(place) = inner.places.get_mut(&link) {
            place.producers.remove(group);
        }
        inner.forget_if_idle(link);
    }

    /// A connection is gone. Returns the consumer groups that lost a member by it.
    pub(crate) fn closed(&self, link: u64) -> Vec<String> {
        let mut inner = self.inner.write();
        let Some(place) = inner.forget(link) else {
            return Vec::new();
        };
        for group in &place.producers {
            leave_producers(&mut inner.producers, group, link);
        }
        let mut left = place.consumers;
        left.retain(|group| leave(&mut inner.consumers, group, link));
        left.into_iter().collect()
    }

    /// The connection of a client, whatever its groups.
    pub(crate) fn client(&self, client_id: &str) -> Option<L> {
        self.inner.read().clients.get(client_id).cloned()
    }

    /// All producers by group.
    pub(crate) fn all_producers(&self) -> BTreeMap<String, Vec<Member<L>>> {
        let inner = self.inner.read();
        inner
            .producers
            .iter()
            .map(|(group, members)| (group.clone(), members.values().cloned().collect()))
            .collect()
    }

    /// Connections none of whose members sent a heartbeat since `oldest`.
    pub(crate) fn silent_since(&self, oldest: i64) -> Vec<L> {
        let inner = self.inner.read();
        inner
            .places
            .iter()
            .filter_map(|(id, place)| {
                let consumers = place
                    .consumers
                    .iter()
                    .filter_map(|g| inner.consumers.get(g)?.members.get(id));
                let producers = place
                    .producers
                    .iter()
                    .filter_map(|g| inner.producers.get(g)?.get(id));
                let newest = consumers
                    .map(|c| &c.member)
                    .chain(producers)
                    .max_by_key(|m| m.seen)?;
                (newest.seen < oldest).then(|| newest.link.clone())
            })
            .collect()
    }

    /// What the group's heartbeats said of the topic.
    pub(crate) fn look_up(&self, group: &str, topic: &str) -> Lookup {
        let inner = self.inner.read();
        let Some(group) = inner.consumers.get(group) else {
            return Lookup::NoGroup;
        };
        let broadcasting = group.manner.broadcasting();
        match group.merged.get(topic) {
            Some(subscription) => Lookup::Found {
                subscription: subscription.clone(),
                broadcasting,
            },
            None => Lookup::NoTopic { broadcasting },
        }
    }

    /// The members whose subscriptions are not what the group's are as a whole. With any, messages go to members that do
    /// not want them: nearly always a mistake, unless a new version of the application is just being rolled out.
    pub(crate) fn differing(&self, group: &str) -> Vec<String> {
        let inner = self.inner.read();
        let Some(group) = inner.consumers.get(group) else {
            return Vec::new();
        };
        let same = |consumer: &Consumer<L>| {
            consumer.subscriptions.len() == group.merged.len()
                && consumer.subscriptions.iter().all(|(topic, own)| {
                    group
                        .merged
                        .get(topic)
                        .is_some_and(|all| all.data.sub_string == own.data.sub_string)
                })
        };
        group
            .members
            .values()
            .filter(|c| !same(c))
            .map(|c| c.member.client_id.clone())
            .collect()
    }

    /// The client ids of a consumer group, each once.
    pub(crate) fn client_ids(&self, group: &str) -> Vec<String> {
        let inner = self.inner.read();
        let Some(group) = inner.consumers.get(group) else {
            return Vec::new();
        };
        let mut ids: Vec<_> = group
            .members
            .values()
            .map(|c| c.member.client_id.clone())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Everybody to be told that the group's membership changed; nobody in a broadcasting group, where each
    /// member reads every queue anyway.
    pub(crate) fn to_notify(&self, group: &str) -> Vec<L> {
        let inner = self.inner.read();
        match inner.consumers.get(group) {
            Some(group) if !group.manner.broadcasting() => {
                group.members.values().map(|c| c.member.link.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn consumer_view(&self, group: &str) -> Option<ConsumerView<L>> {
        let inner = self.inner.read();
        let group = inner.consumers.get(group)?;
        Some(ConsumerView {
            manner: group.manner,
            members: group.members.values().map(|c| c.member.clone()).collect(),
            subscriptions: group.merged.clone(),
        })
    }

    pub(crate) fn producers(&self, group: &str) -> Vec<Member<L>> {
        let inner = self.inner.read();
        inner
            .producers
            .get(group)
            .map(|members| members.values().cloned().collect())
            .unwrap_or_default()
    }

    /// The groups with a connected member that subscribed to the topic.
    pub(crate) fn groups_of_topic(&self, topic: &str) -> Vec<String> {
        let inner = self.inner.read();
        let groups = inner
            .consumers
            .iter()
            .filter(|(_, group)| group.merged.contains_key(topic));
        groups.map(|(name, _)| name.clone()).collect()
    }

    /// Connected consumer groups and producer groups.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inner = self.inner.read();
        (inner.consumers.len(), inner.producers.len())
    }
}

fn leave<L>(consumers: &mut HashMap<String, Group<L>>, group: &str, link: u64) -> bool {
    let Some(table) = consumers.get_mut(group) else {
        return false;
    };
    if table.members.remove(&link).is_none() {
        return false;
    }
    if table.members.is_empty() {
        consumers.remove(group);
    } else {
        table.merge();
    }
    true
}

fn leave_producers<L>(producers: &mut HashMap<String, BTreeMap<u64, Member<L>>>, group: &str, link: u64) {
    if let Some(members) = producers.get_mut(group) {
        members.remove(&link);
        if members.is_empty() {
            producers.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Fake(u64);

    impl Link for Fake {
        fn id(&self) -> u64 {
            self.0
        }
    }

    fn member(id: u64, client: &str, seen: i64) -> Member<Fake> {
        Member {
            link: Fake(id),
            client_id: client.into(),
            language: Language::Java,
            version: 407,
            seen,
        }
    }

    fn manner(model: MessageModel) -> Manner {
        Manner {
            consume_type: Some(ConsumeType::Passively),
            message_model: Some(model),
            consume_from_where: Some(ConsumeFromWhere::LastOffset),
        }
    }

    fn sub(topic: &str, text: &str, version: i64) -> SubscriptionData {
        SubscriptionData {
            topic: topic.into(),
            sub_string: text.into(),
            sub_version: version,
            ..SubscriptionData::default()
        }
    }

    fn beat(table: &ClientTable<Fake>, id: u64, client: &str, subs: Vec<SubscriptionData>) -> bool {
        table.consumer_seen("g", member(id, client, 0), manner(MessageModel::Clustering), subs)
    }

    #[test]
    fn changes_are_new_members_other_ids_and_other_topics() {
        let table = ClientTable::default();
        assert!(beat(&table, 1, "a", vec![sub("t", "*", 1)]));
        assert!(!beat(&table, 1, "a", vec![sub("t", "*", 1)]));
        assert!(
            !beat(&table, 1, "a", vec![sub("t", "x", 2)]),
            "another expression alone is silent"
        );
        assert!(beat(&table, 1, "a", vec![sub("t", "x", 2), sub("u", "*", 2)]));
        assert!(beat(&table, 1, "b", vec![sub("t", "x", 2), sub("u", "*", 2)]));
        assert!(beat(&table, 2, "c", vec![sub("t", "x", 2)]));
    }

    #[test]
    fn the_newest_subscription_holds_and_leaves_with_its_last_member() {
        let table = ClientTable::default();
        beat(&table, 1, "a", vec![sub("t", "old", 1), sub("u", "*", 1)]);
        beat(&table, 2, "b", vec![sub("t", "new", 2)]);
        let Lookup::Found {
            subscription,
            broadcasting,
        } = table.look_up("g", "t")
        else {
            panic!()
        };
        assert_eq!(subscription.data.sub_string, "new");
        assert!(!broadcasting);
        assert!(
            matches!(table.look_up("g", "u"), Lookup::Found { .. }),
            "b's heartbeat leaves a's topic alone"
        );
        assert_eq!(table.closed(1), ["g"]);
        assert!(matches!(table.look_up("g", "u"), Lookup::NoTopic { .. }));
        assert!(matches!(table.look_up("h", "u"), Lookup::NoGroup));
        assert_eq!(table.closed(2), ["g"]);
        assert_eq!(table.counts(), (0, 0));
        assert!(table.inner.read().clients.is_empty());
        assert!(table.inner.read().places.is_empty());
    }

    #[test]
    fn members_that_differ_are_named() {
        let table = ClientTable::default();
        beat(&table, 1, "a", vec![sub("t", "x", 1)]);
        beat(&table, 2, "b", vec![sub("t", "x", 2)]);
        assert!(table.differing("g").is_empty());
        beat(&table, 3, "c", vec![sub("t", "y", 3)]);
        assert_eq!(table.differing("g"), ["a", "b"]);
        beat(&table, 3, "c", vec![sub("t", "x", 4), sub("u", "*", 4)]);
        assert_eq!(table.differing("g"), ["a", "b"]);
        table.closed(3);
        assert!(table.differing("g").is_empty());
    }

    #[test]
    fn broadcasting_groups_get_no_notices() {
        let table = ClientTable::default();
        table.consumer_seen("g", member(1, "a", 0), manner(MessageModel::Broadcasting), vec![]);
        assert!(table.to_notify("g").is_empty());
        table.consumer_seen("h", member(1, "a", 0), manner(MessageModel::Clustering), vec![]);
        assert_eq!(table.to_notify("h"), [Fake(1)]);
    }

    #[test]
    fn silence_counts_over_all_places_of_a_connection() {
        let table = ClientTable::default();
        table.producer_seen("p", member(1, "a", 10));
        table.consumer_seen("g", member(1, "a", 20), manner(MessageModel::Clustering), vec![]);
        table.producer_seen("p", member(2, "b", 10));
        assert_eq!(table.silent_since(15), [Fake(2)]);
        assert_eq!(table.silent_since(21).len(), 2);
    }

    #[test]
    fn a_client_is_found_by_its_id_wherever_it_moved() {
        let table = ClientTable::default();
        table.producer_seen("p", member(1, "a", 10));
        assert_eq!(table.client("a"), Some(Fake(1)));
        table.producer_seen("p", member(2, "a", 11));
        assert_eq!(table.client("a"), Some(Fake(2)));
        table.closed(1);
        assert_eq!(
            table.client("a"),
            Some(Fake(2)),
            "the old connection takes nothing with it"
        );
        table.producer_seen("p", member(2, "b", 12));
        assert_eq!((table.client("a"), table.client("b")), (None, Some(Fake(2))));
        table.closed(2);
        assert_eq!(table.client("b"), None);
    }

    #[test]
    fn leaving_groups_one_by_one_leaves_nothing() {
        let table = ClientTable::default();
        table.producer_seen("p", member(1, "a", 10));
        beat(&table, 1, "a", vec![sub("t", "*", 1)]);
        assert_eq!(table.client_ids("g"), ["a"]);
        assert_eq!(table.groups_of_topic("t"), ["g"]);
        assert!(table.consumer_left("g", 1));
        assert!(!table.consumer_left("g", 1));
        table.producer_left("p", 1);
        assert!(table.producers("p").is_empty());
        assert!(table.inner.read().places.is_empty());
    }
}
