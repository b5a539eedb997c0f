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
}
