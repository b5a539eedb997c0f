//! Who is still there: a pure function of the time of the last sign of life, and of closed channels.

use std::sync::atomic::Ordering;

use super::RouteTable;

/// A broker that gave no sign of life for longer than this is taken out, milliseconds.
pub const EXPIRY_MILLIS: u64 = 120_000;

impl RouteTable {
    /// Takes out all addresses without a sign of life since [`EXPIRY_MILLIS`]; gives them with their channels,
    /// which should be closed.
    pub fn expire(&mut self, now: u64) -> Vec<(String, u64)> {
        self.remove_live(|live| live.seen.load(Ordering::Relaxed).saturating_add(EXPIRY_MILLIS) < now)
    }

    /// Takes out all addresses that registered over a channel that is closed now; gives them.
    pub fn channel_closed(&mut self, channel: u64) -> Vec<String> {
        let gone = self.remove_live(|live| live.channel == channel);
        gone.into_iter().map(|(addr, _)| addr).collect()
    }

    fn remove_live(&mut self, is_gone: impl Fn(&super::Live) -> bool) -> Vec<(String, u64)> {
        let mut gone: Vec<(String, u64)> = self
            .live
            .iter()
            .filter(|(_, live)| is_gone(live))
            .map(|(a, l)| (a.clone(), l.channel))
            .collect();
        gone.sort_unstable();
        for (addr, _) in &gone {
            self.live.remove(addr);
            self.filters.remove(addr);
            let names: Vec<_> = self
                .brokers
                .iter()
                .filter(|(_, broker)| broker.broker_addrs.values().any(|a| a == addr))
                .map(|(name, _)| name.clone())
                .collect();
            for name in names {
                self.remove_ids(&name, |_, a| a == addr);
            }
        }
        gone
    }
}
