//! The two kinds of message ids.
//!
//! * **Offset id**, made by brokers: upper-case hex of IP (4 or 16 bytes), port (4) and physical offset (8), 32 or 56
//!   characters. It says where the record lies.
//! * **Unique id**, made by producers (property `UNIQ_KEY`): hex of IP (4 or 16), process (2), a number of the library's
//!   loading (4), milliseconds since the month began (4) and a counter (2).

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

fn hex(out: &mut String, bytes: &[u8]) {
    for b in bytes {
        // Writing to a String cannot fail.
        let _ok = write!(out, "{b:02X}");
    }
}

fn hex_ip(out: &mut String, ip: IpAddr) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => hex(out, &ip.octets()),
        IpAddr::V6(ip) => hex(out, &ip.octets()),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    text.as_bytes()
        .chunks(2)
        .map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?))
        .collect()
}

/// The id of the record at a physical offset of the broker `host`.
pub fn offset_id(host: SocketAddr, physical: i64) -> String {
    let mut id = String::with_capacity(56);
    hex_ip(&mut id, host.ip());
    hex(&mut id, &i32::from(host.port()).to_be_bytes());
    hex(&mut id, &physical.to_be_bytes());
    id
}

/// The broker and physical offset of an offset id, in either case of letters. `None` for any other text.
pub fn parse_offset_id(id: &str) -> Option<(SocketAddr, i64)> {
    let ip_len = match id.len() {
        32 => 4,
        56 => 16,
        _ => return None,
    };
    let bytes = unhex(id)?;
    let (ip, rest) = bytes.split_at_checked(ip_len)?;
    let ip: IpAddr = match ip_len {
        4 => Ipv4Addr::from(*ip.first_chunk::<4>()?).into(),
        _ => Ipv6Addr::from(*ip.first_chunk::<16>()?).into(),
    };
    let (port, physical) = rest.split_first_chunk::<4>()?;
    let port = u16::try_from(i32::from_be_bytes(*port)).ok()?;
    Some((
        SocketAddr::new(ip, port),
        i64::from_be_bytes(*physical.first_chunk::<8>()?),
    ))
}

/// Makes unique ids for one process. Ids of one maker differ for 65536 calls in the same millisecond.
#[derive(Debug)]
pub struct UniqueIds {
    fixed: String,
    counter: AtomicU16,
}

impl UniqueIds {
    /// A maker for a process. `loader` is any number that tells apart makers of one process and restarts with one pid.
    pub fn new(ip: IpAddr, pid: u32, loader: u32) -> Self {
        Self::starting_at(ip, pid, loader, 0)
    }

    fn starting_at(ip: IpAddr, pid: u32, loader: u32, counter: u16) -> Self {
        let mut fixed = String::with_capacity(44);
        hex_ip(&mut fixed, ip);
        hex(&mut fixed, &(pid as u16).to_be_bytes());
        hex(&mut fixed, &loader.to_be_bytes());
        Self {
            fixed,
            counter: AtomicU16::new(counter),
        }
    }

    /// The next id. `now` is in milliseconds since 1970; the month is that of UTC.
    pub fn next(&self, now: i64) -> String {
        let mut id = String::with_capacity(self.fixed.len() + 12);
        id.push_str(&self.fixed);
        hex(&mut id, &((now - month_start(now)) as i32).to_be_bytes());
        hex(
            &mut id,
            &self.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes(),
        );
        id
    }
}

/// About when a unique id was made: milliseconds since 1970, assuming that it was within the month before `now`.
pub fn unique_id_time(id: &str, now: i64) -> Option<i64> {
    let at = match id.len() {
        32 => 10,
        56 => 22,
        _ => return None,
    };
    let bytes = unhex(id)?;
    // Unsigned: a month's last days are beyond 31 bits.
    let span = u32::from_be_bytes(*bytes.get(at..)?.first_chunk::<4>()?);
    let start = month_start(now);
    let time = start + i64::from(span);
    if time <= now {
        return Some(time);
    }
    Some(month_start(start - 1) + i64::from(span))
}

/// The first millisecond of the month in which `now` lies, in UTC.
fn month_start(now: i64) -> i64 {
    const DAY: i64 = 86_400_000;
    let days = now.div_euclid(DAY);
    // Day of the month by the civil calendar: years are counted from March, in eras of 400 years.
    let day_of_era = (days + 719_468).rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5;
    (days - day_of_month) * DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_ids() {
        let host: SocketAddr = "10.0.0.1:10911".parse().unwrap();
        let id = offset_id(host, 123_456);
        assert_eq!(id, "0A00000100002A9F000000000001E240");
        assert_eq!(parse_offset_id(&id), Some((host, 123_456)));
        assert_eq!(parse_offset_id(&id.to_lowercase()), Some((host, 123_456)));
        let v6: SocketAddr = "[2001:db8::1]:65535".parse().unwrap();
        let id = offset_id(v6, i64::MAX);
        assert_eq!(id.len(), 56);
        assert_eq!(parse_offset_id(&id), Some((v6, i64::MAX)));
        // An IPv4 address in IPv6 form is folded.
        assert_eq!(
            offset_id("[::ffff:10.0.0.1]:10911".parse().unwrap(), 123_456),
            "0A00000100002A9F000000000001E240"
        );
    }

    #[test]
    fn bad_offset_ids() {
        let long = "é".repeat(16);
        for id in [
            "",
            "0A",
            "0A00000100002A9F000000000001E24G",
            "0A000001FFFFFFFF000000000001E240",
            long.as_str(),
        ] {
            assert_eq!(parse_offset_id(id), None, "{id}");
        }
    }

    #[test]
    fn unique_ids() {
        // 2022-01-15 00:00 UTC, 14 days into the month.
        let now = 1_640_995_200_000 + 14 * 86_400_000;
        let ids = UniqueIds::starting_at("10.0.0.9".parse().unwrap(), 12345, 0x18B4_AAC2, 7);
        let id = ids.next(now);
        assert_eq!(id, "0A000009303918B4AAC2481908000007");
        assert_eq!(ids.next(now), "0A000009303918B4AAC2481908000008");
        assert_eq!(unique_id_time(&id, now + 5000), Some(now));
        // Asked early in the next month.
        assert_eq!(unique_id_time(&id, 1_643_673_600_000), Some(now));
        assert_eq!(unique_id_time("x", now), None);
        // Made by the official client on the 30th of a month, beyond 31 bits of milliseconds.
        let late = 1_796_072_335_055;
        assert_eq!(
            unique_id_time("C000020225EB5FFD2B2799D8FECF0000", late + 1),
            Some(late)
        );
        assert_eq!(ids.next(late)[20..28], *"99D8FECF");
    }

    #[test]
    fn months() {
        for (now, start) in [
            (0, 0),
            (1_640_995_199_999, 1_638_316_800_000),
            (1_640_995_200_000, 1_640_995_200_000),
            // 29 February 2024.
            (1_709_164_800_000, 1_706_745_600_000),
            (-1, -2_678_400_000),
        ] {
            assert_eq!(month_start(now), start, "{now}");
        }
    }
}
