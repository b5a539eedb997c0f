use std::collections::HashSet;

use super::*;

/// What `e2e/java` had Java's classes say; see `GoldenAllocations.java` for the form of a line.
const GOLDEN: &str = include_str!("../../../../e2e/java/golden/allocations.txt");

fn before_at(name: &str) -> String {
    name.split('@').next().unwrap_or_default().to_owned()
}

fn strategy(text: &str, queues: &[MessageQueue]) -> Box<dyn Strategy> {
    let (name, argument) = text.split_once(':').unwrap_or((text, ""));
    let rooms = || (Arc::new(before_at) as RoomOf, Arc::new(before_at) as RoomOf);
    match name {
        "AVG" => Box::new(Averagely),
        "AVG_BY_CIRCLE" => Box::new(Circle),
        "CONFIG" => Box::new(Fixed(queues[..argument.parse().unwrap()].to_vec())),
        "CONSISTENT_HASH" => Box::new(ConsistentHash::default()),
        "MACHINE_ROOM" => Box::new(MachineRoom(argument.split(',').map(str::to_owned).collect())),
        "NEARBY_AVG" => Box::new(Nearby::new(Averagely, rooms().0, rooms().1)),
        "NEARBY_CIRCLE" => Box::new(Nearby::new(Circle, rooms().0, rooms().1)),
        other => panic!("no strategy is called {other}"),
    }
}

fn numbers(text: &str) -> Vec<usize> {
    if text == "-" {
        return Vec::new();
    }
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        from.parse::<usize>().unwrap()..=to.parse().unwrap()
    };
    text.split(',').flat_map(range).collect()
}

#[test]
fn shares_are_those_of_javas_classes() {
    let mut compared = 0;
    let (mut queues, mut members) = (Vec::new(), Vec::new());
    for line in GOLDEN.lines() {
        if let Some(input) = line.strip_prefix("= ") {
            let [topic, brokers, names] = input.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            queues.clear();
            for broker in brokers.split(',') {
                let (broker, count) = broker.rsplit_once(':').unwrap();
                queues.extend((0..count.parse().unwrap()).map(|id| MessageQueue::new(topic, broker, id)));
            }
            members = names.split(',').map(str::to_owned).collect();
            continue;
        }
        let (name, shares) = line.split_once(' ').unwrap();
        let strategy = strategy(name, &queues);
        for (member, share) in members.iter().zip(shares.split('|')) {
            let wanted: Vec<_> = numbers(share).into_iter().map(|n| queues[n].clone()).collect();
            assert_eq!(
                strategy.allocate(member, &queues, &members),
                wanted,
                "{member} of {members:?} in {line}"
            );
            compared += 1;
        }
    }
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn a_stranger_gets_nothing_and_members_get_everything_once() {
    let queues: Vec<_> = (0..7).map(|id| MessageQueue::new("T", "r@b", id)).collect();
    let members: Vec<String> = ["r@1", "r@2", "s@3"].map(str::to_owned).into();
    let all: [Box<dyn Strategy>; 5] = [
        Box::new(Averagely),
        Box::new(Circle),
        Box::new(MachineRoom(["r".to_owned()].into())),
        Box::new(Nearby::new(Averagely, Arc::new(before_at), Arc::new(before_at))),
        Box::new(ConsistentHash::default()),
    ];
    for strategy in all {
        assert!(strategy.allocate("nobody", &queues, &members).is_empty());
        assert!(strategy.allocate("nobody", &queues, &[]).is_empty());
        let shares: Vec<_> = members
            .iter()
            .flat_map(|member| strategy.allocate(member, &queues, &members))
            .collect();
        assert_eq!(shares.len(), 7, "{}", strategy.name());
        assert_eq!(
            shares.iter().collect::<HashSet<_>>().len(),
            7,
            "{}",
            strategy.name()
        );
        assert!(strategy.allocate("r@1", &[], &members).is_empty());
    }
}

#[test]
fn rooms_are_read_as_java_splits() {
    assert_eq!(room_of("r@b"), Some("r"));
    assert_eq!(room_of("@b"), Some(""));
    assert_eq!(room_of("r@b@"), Some("r"));
    for none in ["r", "r@", "r@b@c", "", "@"] {
        assert_eq!(room_of(none), None, "{none}");
    }
}
