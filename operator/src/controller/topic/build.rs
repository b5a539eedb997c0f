//! What a broker shall be told, given what it has: pure.

use super::validate::ValidTopic;
use ferromq_client::admin::TopicConfig;

/// The configuration to send, or nothing if the broker has the topic as asked. Flags that no field sets stay.
pub fn change(have: Option<&TopicConfig>, want: &ValidTopic) -> Option<TopicConfig> {
    let mut config = have.cloned().unwrap_or_default();
    config.topic_name.clone_from(&want.name);
    config.read_queue_nums = want.read_queues;
    config.write_queue_nums = want.write_queues;
    config.perm = want.perm;
    config.order = want.order;
    (have != Some(&config)).then_some(config)
}

/// Whether queues may go, of a topic that has more for reading than wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shrink {
    /// They may, or there are none to go.
    Now,
    /// They stay: why.
    Wait(String),
}

/// Decides about queues that shall go: first they are closed for writing, then clients need time to learn it, then every
/// consumer group has to read them. `unread` is what they have not, or why that is not known.
pub fn shrink(
    have: Option<&TopicConfig>,
    want: &ValidTopic,
    waited: Option<i64>,
    refresh: i64,
    unread: &Result<i64, String>,
) -> Shrink {
    let Some(have) = have.filter(|h| h.read_queue_nums > want.read_queues) else {
        return Shrink::Now;
    };
    let number = have.read_queue_nums - want.read_queues;
    let Some(waited) = waited.filter(|_| have.write_queue_nums <= want.read_queues) else {
        return Shrink::Wait(format!("{number} queues are closed for writing before they go"));
    };
    let late = want.shrink_deadline.is_some_and(|limit| waited >= limit);
    match unread {
        _ if late => Shrink::Now,
        Ok(0) if waited < refresh => {
            Shrink::Wait("producers are given time to learn of fewer queues".to_owned())
        }
        Ok(0) => Shrink::Now,
        Ok(n) => Shrink::Wait(format!(
            "{n} messages in the {number} queues that go are not read by every consumer group yet"
        )),
        Err(why) => Shrink::Wait(format!(
            "what is read in the {number} queues that go is not known: {why}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::validate::ClusterRef;
    use super::*;

    fn want() -> ValidTopic {
        ValidTopic {
            name: "orders".to_owned(),
            read_queues: 8,
            write_queues: 4,
            perm: 6,
            order: false,
            shrink_deadline: None,
            shrinking: std::collections::BTreeMap::new(),
            joining: std::collections::BTreeSet::new(),
            groups: Vec::new(),
            cluster: ClusterRef {
                name: String::new(),
                uid: String::new(),
                cluster_name: String::new(),
            },
        }
    }

    #[test]
    fn missing_and_different_topics_are_written_equal_ones_are_not() {
        let made = change(None, &want()).unwrap();
        assert_eq!(
            (
                made.topic_name.as_str(),
                made.read_queue_nums,
                made.write_queue_nums
            ),
            ("orders", 8, 4)
        );
        assert_eq!(change(Some(&made), &want()), None);
        let drifted = TopicConfig {
            perm: 4,
            ..made.clone()
        };
        assert_eq!(change(Some(&drifted), &want()), Some(made));
    }

    #[test]
    fn flags_of_others_stay() {
        let have = TopicConfig {
            topic_sys_flag: 1,
            ..change(None, &want()).unwrap()
        };
        assert_eq!(change(Some(&have), &want()), None);
        let more = ValidTopic {
            read_queues: 16,
            ..want()
        };
        assert_eq!(change(Some(&have), &more).unwrap().topic_sys_flag, 1);
    }

    #[test]
    fn queues_go_after_writing_stopped_clients_know_and_all_is_read() {
        let want = ValidTopic {
            read_queues: 4,
            ..want()
        };
        let have = |write| TopicConfig {
            read_queue_nums: 8,
            write_queue_nums: write,
            ..change(None, &want).unwrap()
        };
        let at = |write, waited, unread: Result<i64, String>| {
            shrink(Some(&have(write)), &want, waited, 30, &unread)
        };
        let waits = |s: Shrink, word: &str| matches!(s, Shrink::Wait(why) if why.contains(word));
        assert!(waits(at(8, None, Ok(0)), "closed for writing"));
        assert!(waits(at(4, None, Ok(0)), "closed for writing"));
        assert!(waits(at(4, Some(5), Ok(0)), "producers"));
        assert!(waits(at(4, Some(500), Ok(3)), "3 messages"));
        assert!(waits(at(4, Some(500), Err("down".to_owned())), "down"));
        assert_eq!(at(4, Some(30), Ok(0)), Shrink::Now);
        let hurried = ValidTopic {
            shrink_deadline: Some(60),
            ..want.clone()
        };
        assert_eq!(
            shrink(Some(&have(4)), &hurried, Some(60), 30, &Ok(3)),
            Shrink::Now
        );
        assert_eq!(shrink(None, &want, None, 30, &Ok(0)), Shrink::Now, "a new topic");
    }
}
