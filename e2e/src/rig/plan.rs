//! Names and addresses of a cluster, as plain values.
//!
//! ```text
//! 198.51.100.1      the switch: api server and etcd run in its network namespace
//! 198.51.100.2      this machine's own end of a link to the switch
//! 198.51.100.10+N   node N
//! 10.244.N.0/24     pods of node N
//! 10.96.0.0/12      Services; .0.1 is the api server, .0.10 the name service
//! ```
//! 198.51.100.0/24 is reserved for documentation, so nobody has it as a real network; but since a machine may still
//! use it for some link of its own, two more such ranges stand by. Pod and Service addresses exist only inside the
//! nodes' network namespaces.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Most nodes that a cluster may have.
pub const MAX_NODES: u8 = 9;
/// Prefix length of the node network.
pub const NODE_PREFIX: u8 = 24;
/// TCP port of the api server.
pub const API_PORT: u16 = 6443;
/// All pods.
pub const POD_RANGE: &str = "10.244.0.0/16";
/// All Services.
pub const SERVICE_RANGE: &str = "10.96.0.0/12";
/// The api server's Service.
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The name service's Service.
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// Name of the link in this machine's own network namespace.
pub const HOST_LINK: &str = "ferromq-host";
/// Folder in every cgroup hierarchy below which the pods' cgroups lie.
pub const CGROUP: &str = "ferromq-rig";
/// Where a node keeps the volumes of the storage classes, as the node sees it.
pub const VOLUME_FOLDER: &str = "/var/lib/volumes";

/// The /24 network of switch and nodes, by its first three octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Network([u8; 3]);

impl Network {
    /// The networks to choose from, the preferred one first.
    pub const CANDIDATES: [Self; 3] = [Self([198, 51, 100]), Self([203, 0, 113]), Self([192, 0, 2])];

    /// The first candidate that this machine does not use, by the output of `ip -4 route show table all`.
    ///
    /// # Errors
    /// All are in use.
    pub fn free(routes: &str) -> Result<Self> {
        let free = Self::CANDIDATES
            .into_iter()
            .find(|network| !routes.lines().any(|line| network.meets(line)));
        free.with_context(|| {
            let all = Self::CANDIDATES.map(Self::range).join(", ");
            format!("this machine has routes into each of {all}, and the rig needs one of them for itself")
        })
    }

    /// Whether a route's target has an address in common with this network; a default route does not count.
    fn meets(self, route: &str) -> bool {
        let target = route.split_ascii_whitespace().find_map(|word| {
            let (address, length) = word.split_once('/').unwrap_or((word, "32"));
            Some((address.parse::<Ipv4Addr>().ok()?, length.parse::<u32>().ok()?))
        });
        if route.starts_with("default") {
            return false;
        }
        target.is_some_and(|(address, length)| {
            let shift = 32 - length.min(u32::from(NODE_PREFIX));
            let bits = |address: Ipv4Addr| u64::from(u32::from(address)) >> shift;
            bits(address) == bits(self.at(0))
        })
    }

    fn at(self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.0;
        Ipv4Addr::new(a, b, c, last)
    }

    /// Address of the switch and of the api server.
    pub fn switch(self) -> Ipv4Addr {
        self.at(1)
    }

    /// This machine's own address on the cluster's network.
    pub fn host(self) -> Ipv4Addr {
        self.at(2)
    }

    /// The network as address and prefix length.
    pub fn range(self) -> String {
        format!("{}/{NODE_PREFIX}", self.at(0))
    }
}

/// One node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    number: u8,
    network: Network,
}

impl Node {
    /// The nodes of a cluster of this size, 1 to [`MAX_NODES`].
    ///
    /// # Errors
    /// The size is out of range.
    pub fn all(network: Network, count: u8) -> Result<Vec<Self>> {
        ensure!(
            (1..=MAX_NODES).contains(&count),
            "a rig has 1 to {MAX_NODES} nodes, not {count}"
        );
        Ok((1..=count).map(|number| Self { number, network }).collect())
    }

    /// The node among these that a person means by `2` or `ferromq-2`.
    ///
    /// # Errors
    /// There is no such node.
    pub fn find(text: &str, nodes: &[Self]) -> Result<Self> {
        let number: Option<u8> = text.strip_prefix("ferromq-").unwrap_or(text).parse().ok();
        let node = nodes.iter().copied().find(|node| Some(node.number) == number);
        node.with_context(|| {
            format!(
                "no node {text}: this rig has ferromq-1 to ferromq-{}",
                nodes.len()
            )
        })
    }

    /// 1 for the first node.
    pub fn number(self) -> u8 {
        self.number
    }

    /// The network that joins the nodes.
    pub fn network(self) -> Network {
        self.network
    }

    /// The node's name in Kubernetes and its host name.
    pub fn name(self) -> String {
        format!("ferromq-{}", self.number)
    }

    /// The node's zone: `zone-a` for the first, then `zone-b`, …
    pub fn zone(self) -> String {
        format!("zone-{}", char::from(b'a' + self.number - 1))
    }

    /// The node's own address.
    pub fn address(self) -> Ipv4Addr {
        self.network.at(10 + self.number)
    }

    /// The addresses of the node's pods.
    pub fn pod_range(self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// Name of the node's link at the switch.
    pub fn switch_link(self) -> String {
        format!("node{}", self.number)
    }

    /// The node's folder in every cgroup hierarchy.
    pub fn cgroup(self) -> String {
        format!("{CGROUP}/{}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn addresses_are_distinct_and_stay_in_their_ranges() {
        let network = Network::CANDIDATES[0];
        let nodes = Node::all(network, MAX_NODES).unwrap();
        let mut addresses: BTreeSet<_> = nodes.iter().map(|node| node.address()).collect();
        addresses.extend([network.switch(), network.host()]);
        assert_eq!(addresses.len(), nodes.len() + 2);
        assert!(
            addresses
                .iter()
                .all(|a| a.octets()[..3] == [198, 51, 100] && a.octets()[3] < 255)
        );
        let ranges: BTreeSet<_> = nodes.iter().map(|node| node.pod_range()).collect();
        assert_eq!(ranges.len(), nodes.len());
        assert!(ranges.iter().all(|range| range.starts_with("10.244.")));
    }

    #[test]
    fn link_names_fit_the_kernel() {
        assert!(HOST_LINK.len() <= 15);
        assert!(
            Node::all(Network::CANDIDATES[0], MAX_NODES)
                .unwrap()
                .iter()
                .all(|node| node.switch_link().len() <= 15)
        );
    }

    #[test]
    fn nodes_are_found_by_number_and_name() {
        let nodes = Node::all(Network::CANDIDATES[0], 3).unwrap();
        assert_eq!(Node::find("2", &nodes).unwrap().name(), "ferromq-2");
        assert_eq!(Node::find("ferromq-3", &nodes).unwrap().zone(), "zone-c");
        for bad in ["0", "4", "ferromq-", "x", "-1", "300", ""] {
            assert!(Node::find(bad, &nodes).is_err(), "{bad:?}");
        }
        assert!(Node::all(Network::CANDIDATES[0], 0).is_err());
        assert!(Node::all(Network::CANDIDATES[0], 10).is_err());
    }

    #[test]
    fn a_network_in_use_is_passed_over() {
        let choose = |routes: &str| Network::free(routes).map(Network::range).ok();
        let plain =
            "default via 192.168.1.1 dev eth0\n10.0.0.0/8 dev eth0\nlocal 127.0.0.1 dev lo table local\n";
        assert_eq!(choose(plain).as_deref(), Some("198.51.100.0/24"));
        assert_eq!(
            choose("local 198.51.100.7 dev eth0 table local").as_deref(),
            Some("203.0.113.0/24")
        );
        assert_eq!(
            choose("198.51.100.128/25 dev a\n203.0.0.0/16 dev b").as_deref(),
            Some("192.0.2.0/24")
        );
        assert_eq!(choose("192.0.0.0/2 via 10.0.0.1 dev a"), None);
        assert_eq!(
            choose("128.0.0.0/1 via 10.0.0.1 dev a"),
            None,
            "half of all addresses, as some tunnels route"
        );
    }
}
