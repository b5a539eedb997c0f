//! The address that others reach this machine by, where none is set, and how addresses are written.
//!
//! In this order: the address that packets to the outside would carry, any other of IPv4 that is not a loopback address,
//! IPv6 likewise with addresses of this link last, 127.0.0.1. A zone (`%eth0`) means something on this machine only, so
//! it is never part of an address that others are told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address to tell others.
pub(crate) fn own_address() -> IpAddr {
    let table = |path| std::fs::read_to_string(path).unwrap_or_default();
    routed_address()
        .or_else(|| local_v4(&table("/proc/net/fib_trie")).first().copied())
        .map(IpAddr::V4)
        .or_else(|| best_v6(&table("/proc/net/if_inet6")).map(IpAddr::V6))
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn routed_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Connecting a datagram socket sends nothing; it only picks the route. 192.0.2.1 is reserved for examples.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) if !ip.is_loopback() && !ip.is_unspecified() => Some(ip),
        _ => None,
    }
}

/// The machine's own addresses in the kernel's table of routes: a leaf line `|-- a.b.c.d` before a line that says LOCAL.
fn local_v4(table: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in table.lines() {
        if let Some((_, text)) = line.split_once("|-- ") {
            last = text.trim().parse::<Ipv4Addr>().ok();
        } else if line.contains("host LOCAL")
            && let Some(ip) = last.take().filter(|ip| !ip.is_loopback() && !found.contains(ip))
        {
            found.push(ip);
        }
    }
    found
}

/// The best of the kernel's table of IPv6 addresses. A line is the address as 32 digits, index, prefix length, scope
/// (00 everywhere, 20 this link, 10 this host), flags, and the interface.
fn best_v6(table: &str) -> Option<Ipv6Addr> {
    let known = table.lines().filter_map(|line| {
        let mut parts = line.split_whitespace();
        let address = parts.next().filter(|digits| digits.len() == 32)?;
        let address = Ipv6Addr::from(u128::from_str_radix(address, 16).ok()?);
        (!address.is_loopback()).then_some(address)
    });
    known.min_by_key(Ipv6Addr::is_unicast_link_local)
}

/// `host:port`, an IPv6 address in brackets and without its zone.
pub(crate) fn host_port(host: &str, port: u16) -> String {
    let bare = host.trim().trim_start_matches('[').trim_end_matches(']');
    let without_zone = bare.split('%').next().unwrap_or(bare);
    match without_zone.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{bare}:{port}"),
    }
}

/// Whether it is an IPv6 address, as [`host_port`] takes one.
pub(crate) fn is_v6(host: &str) -> bool {
    host_port(host, 0).starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_peers_read_them() {
        assert_eq!(host_port("10.0.0.1", 1), "10.0.0.1:1");
        assert_eq!(host_port("fd00::1", 1), "[fd00::1]:1");
        assert_eq!(host_port("[fd00::1]", 1), "[fd00::1]:1");
        assert_eq!(host_port("fe80::1%eth0", 1), "[fe80::1]:1");
        assert_eq!(host_port("[fe80::1%2]", 1), "[fe80::1]:1");
        assert_eq!(host_port("broker.example", 1), "broker.example:1");
        assert!(is_v6("fe80::1%eth0") && !is_v6("10.0.0.1") && !is_v6("broker.example"));
    }

    #[test]
    fn the_kernels_table_names_own_addresses() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 127.0.0.1\n        \
                     /32 host LOCAL\n     |-- 10.0.0.0\n        /24 link UNICAST\nLocal:\n     |-- 10.0.0.7\n        /32 host LOCAL\n";
        assert_eq!(local_v4(table), [Ipv4Addr::new(10, 0, 0, 7)]);
    }

    #[test]
    fn an_address_of_the_link_is_the_last_choice() {
        let host = "00000000000000000000000000000001 01 80 10 80       lo\n";
        let link = "fe80000000000000781c4efffe6d1a7b 02 40 20 80     eth0\n";
        let wide = "fd000000000000000000000000000001 02 40 00 80     eth0\n";
        let best = |lines: &[&str]| best_v6(&lines.concat()).map(|ip| ip.to_string());
        assert_eq!(best(&[link, host, wide]).as_deref(), Some("fd00::1"));
        assert_eq!(best(&[host, link]).as_deref(), Some("fe80::781c:4eff:fe6d:1a7b"));
        assert_eq!(best(&[host]), None);
        assert_eq!(best(&["no table\n"]), None);
    }
}
