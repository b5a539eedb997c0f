//! From a topic's route to the queues a client uses: pure, no I/O.
//!
//! * Sending: the write queues of each broker whose permission has the write bit and that has a master (id 0). An
//!   order configuration (`broker:queues;…`) replaces that list, so that keys keep their queue while a broker is away.
//! * Receiving: the read queues of each broker with the read bit; no master is needed.
//!
//! Queues are sorted by broker, then number, so that all clients see the same order.

use std::collections::{BTreeMap, HashMap};

use ferromq_protocol::body::TopicRouteData;
use ferromq_protocol::perm;

use crate::MessageQueue;

/// Most queues that one broker's entry in a route may stand for; more is taken for damage.
const MAX_QUEUES: i32 = 65_536;

/// A topic's route, worked out for use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Queues to send to.
    pub publish: Vec<MessageQueue>,
    /// Queues to receive from.
    pub subscribe: Vec<MessageQueue>,
    /// Addresses by broker name and broker id; id 0 is the master.
    pub brokers: HashMap<String, BTreeMap<i64, String>>,
    /// The topic does not exist yet: the queues are those it will get when the first message creates it.
    pub provisional: bool,
}

impl Route {
    /// Works a route out.
    pub fn from_data(topic: &str, data: &TopicRouteData) -> Self {
        let mut brokers: HashMap<String, BTreeMap<i64, String>> = HashMap::new();
        for broker in &data.broker_datas {
            let addresses = broker
                .broker_addrs
                .iter()
                .map(|(id, address)| (*id, address.clone()));
            brokers
                .entry(broker.broker_name.clone())
                .or_default()
                .extend(addresses);
        }
        let has_master = |name: &str| brokers.get(name).is_some_and(|a| a.contains_key(&0));
        let mut publish = Vec::new();
        let mut subscribe = Vec::new();
        for queues in &data.queue_datas {
            let name = queues.broker_name.as_str();
            if perm::readable(queues.perm) && brokers.contains_key(name) {
                push(&mut subscribe, topic, name, queues.read_queue_nums);
            }
            if perm::writable(queues.perm) && has_master(name) {
                push(&mut publish, topic, name, queues.write_queue_nums);
            }
        }
        if let Some(order) = data
            .order_topic_conf
            .as_deref()
            .and_then(|text| ordered(topic, text))
        {
            publish = order;
        }
        let key = |q: &MessageQueue| (q.broker_name.clone(), q.queue_id);
        publish.sort_by_cached_key(key);
        publish.dedup();
        subscribe.sort_by_cached_key(key);
        subscribe.dedup();
        Self {
            publish,
            subscribe,
            brokers,
            provisional: false,
        }
    }

    /// The route that `topic` will have once the brokers have made it from a template's route.
    pub fn provisional(topic: &str, template: &TopicRouteData, most_queues: i32) -> Self {
        let mut data = template.clone();
        for queues in &mut data.queue_datas {
            let number = queues.read_queue_nums.min(most_queues).max(0);
            queues.read_queue_nums = number;
            queues.write_queue_nums = number;
        }
        Self {
            provisional: true,
            ..Self::from_data(topic, &data)
        }
    }

    /// Address of a broker's master.
    pub fn master(&self, broker: &str) -> Option<&str> {
        self.brokers.get(broker)?.get(&0).map(String::as_str)
    }

    /// Address to read from: the broker with this id, else the master, else the lowest id there is.
    pub fn reader(&self, broker: &str, id: i64) -> Option<&str> {
        let addresses = self.brokers.get(broker)?;
        let found = addresses.get(&id).or_else(|| addresses.values().next());
        found.map(String::as_str)
    }
}

fn push(out: &mut Vec<MessageQueue>, topic: &str, broker: &str, queues: i32) {
    for id in 0..queues.min(MAX_QUEUES) {
        out.push(MessageQueue {
            topic: topic.into(),
            broker_name: broker.into(),
            queue_id: id,
        });
    }
}

/// `broker:queues;broker:queues`. A part that cannot be read is left out; `None` if nothing can.
fn ordered(topic: &str, text: &str) -> Option<Vec<MessageQueue>> {
    let mut queues = Vec::new();
    for part in text.split(';').filter(|part| !part.trim().is_empty()) {
        if let Some((broker, number)) = part.rsplit_once(':')
            && let Ok(number) = number.trim().parse()
        {
            push(&mut queues, topic, broker.trim(), number);
        }
    }
    (!queues.is_empty()).then_some(queues)
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::body::{BrokerData, QueueData};

    use super::*;

    fn broker(name: &str, ids: &[i64]) -> BrokerData {
        BrokerData {
            cluster: "C".into(),
            broker_name: name.into(),
            broker_addrs: ids.iter().map(|id| (*id, format!("{name}:{id}"))).collect(),
        }
    }

    fn queues(name: &str, read: i32, write: i32, perm: i32) -> QueueData {
        QueueData {
            broker_name: name.into(),
            read_queue_nums: read,
            write_queue_nums: write,
            perm,
            ..QueueData::default()
        }
    }

    fn names(queues: &[MessageQueue]) -> Vec<String> {
        queues
            .iter()
            .map(|q| format!("{}{}", q.broker_name, q.queue_id))
            .collect()
    }

    #[test]
    fn permissions_and_masters_decide_the_queues() {
        let data = TopicRouteData {
            broker_datas: vec![
                broker("b", &[0, 1]),
                broker("a", &[1]),
                broker("c", &[0]),
                broker("d", &[0]),
            ],
            queue_datas: vec![
                queues("b", 2, 1, 6),
                queues("a", 1, 1, 6),
                queues("c", 1, 1, 2),
                queues("d", 1, 1, 4),
                queues("gone", 9, 9, 6),
            ],
            ..TopicRouteData::default()
        };
        let route = Route::from_data("T", &data);
        assert_eq!(names(&route.publish), ["b0", "c0"]);
        assert_eq!(names(&route.subscribe), ["a0", "b0", "b1", "d0"]);
        assert_eq!(route.master("a"), None);
        assert_eq!(route.reader("a", 0), Some("a:1"));
        assert_eq!(route.reader("b", 1), Some("b:1"));
        assert_eq!(route.reader("b", 7), Some("b:0"));
    }

    #[test]
    fn an_order_configuration_replaces_the_publish_list() {
        let data = TopicRouteData {
            order_topic_conf: Some("b:2;broken;a:1;x:y;".into()),
            broker_datas: vec![broker("b", &[0])],
            queue_datas: vec![queues("b", 4, 4, 6)],
            ..TopicRouteData::default()
        };
        let route = Route::from_data("T", &data);
        assert_eq!(names(&route.publish), ["a0", "b0", "b1"]);
        let nonsense = TopicRouteData {
            order_topic_conf: Some("broken".into()),
            ..data
        };
        assert_eq!(
            names(&Route::from_data("T", &nonsense).publish),
            ["b0", "b1", "b2", "b3"]
        );
    }

    #[test]
    fn a_new_topic_gets_no_more_queues_than_the_template_has() {
        let data = TopicRouteData {
            broker_datas: vec![broker("b", &[0])],
            queue_datas: vec![queues("b", 8, 8, 7)],
            ..TopicRouteData::default()
        };
        let route = Route::provisional("T", &data, 4);
        assert!(route.provisional);
        assert_eq!(names(&route.publish), ["b0", "b1", "b2", "b3"]);
        assert_eq!(route.publish[0].topic, "T");
        assert_eq!(Route::provisional("T", &data, 16).publish.len(), 8);
    }

    #[test]
    fn absurd_numbers_of_queues_are_cut() {
        let data = TopicRouteData {
            broker_datas: vec![broker("b", &[0])],
            queue_datas: vec![queues("b", i32::MAX, -3, 6)],
            ..TopicRouteData::default()
        };
        let route = Route::from_data("T", &data);
        assert_eq!(route.subscribe.len(), 65_536);
        assert_eq!(route.publish.len(), 0);
    }
}
