//! Address patterns of white lists.
//!
//! | Text | Matches |
//! |---|---|
//! | empty | nobody |
//! | `*`, `*.*.*.*`, `*:*:*:*:*:*:*:*` | everybody |
//! | `10.0.0.7`, `fd00::7` | that address |
//! | `10.0.0.{1,2}`, `fd00::{a,b}` | each of the set |
//! | `10.0.0.7,fd00::7` | each of the list |
//! | `10.0.0.*`, `10.0.*.*`, `10.0.0.1-9`, `10.0.1-9.*` | IPv4 ranges, from the second part on |
//! | `fd00:0:0:0:0:0:0:*`, `fd00::10-1f`, `fd00::10-1f:*` | IPv6 ranges in the last one or two groups |
//!
//! What holds: a text that is none of these is refused with a reason, never taken for something wider.

use std::net::{IpAddr, Ipv6Addr};

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    Nobody,
    Everybody,
    Any(Vec<IpAddr>),
    /// Ends included, for each part.
    V4([(u8, u8); 4]),
    V6([(u16, u16); 8]),
}

impl Pattern {
    /// Reads one entry of a white list.
    ///
    /// # Errors
    /// What is wrong, for the end of a sentence.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text {
            "" => return Ok(Self::Nobody),
            "*" | "*.*.*.*" | "*:*:*:*:*:*:*:*" => return Ok(Self::Everybody),
            _ => {}
        }
        if let Some(inner) = text.strip_suffix('}') {
            return set(text, inner);
        }
        if text.contains(',') {
            let list = text
                .split(',')
                .map(str::trim)
                .filter(|one| !one.is_empty())
                .map(|one| address(text, one));
            return Ok(Self::Any(list.collect::<Result<_, _>>()?));
        }
        if text.contains(['*', '-']) {
            return if text.contains(':') {
                range_v6(text)
            } else {
                range_v4(text)
            };
        }
        Ok(Self::Any(vec![address(text, text)?]))
    }

    pub(crate) fn matches(&self, address: IpAddr) -> bool {
        match (self, address.to_canonical()) {
            (Self::Everybody, _) => true,
            (Self::Any(list), address) => list.contains(&address),
            (Self::V4(parts), IpAddr::V4(ip)) => within(
                parts
                    .iter()
                    .copied()
                    .zip(ip.octets())
                    .map(|((a, b), x)| (a..=b).contains(&x)),
            ),
            (Self::V6(parts), IpAddr::V6(ip)) => within(
                parts
                    .iter()
                    .copied()
                    .zip(ip.segments())
                    .map(|((a, b), x)| (a..=b).contains(&x)),
            ),
            (Self::Nobody | Self::V4(_) | Self::V6(_), _) => false,
        }
    }
}

fn within(mut parts: impl Iterator<Item = bool>) -> bool {
    parts.all(|inside| inside)
}

fn wrong(text: &str, why: &str) -> String {
    format!("{text:?} is no address pattern: {why}")
}

fn address(text: &str, one: &str) -> Result<IpAddr, String> {
    one.parse::<IpAddr>()
        .map(|ip| ip.to_canonical())
        .map_err(|_| wrong(text, &format!("{one:?} is no IP address")))
}

/// `10.0.0.{1,2}`: the last part in each of its forms.
fn set(text: &str, inner: &str) -> Result<Pattern, String> {
    let (head, values) = inner
        .split_once('{')
        .ok_or_else(|| wrong(text, "a } without its {"))?;
    if !head.ends_with(['.', ':']) {
        return Err(wrong(text, "braces can only stand for the last part"));
    }
    let list = values
        .split(',')
        .map(str::trim)
        .filter(|value| !value.is_empty())
        .map(|value| address(text, &format!("{head}{value}")));
    Ok(Pattern::Any(list.collect::<Result<_, _>>()?))
}

fn range_v4(text: &str) -> Result<Pattern, String> {
    let parts: Vec<&str> = text.split('.').map(str::trim).collect();
    let [first, rest @ ..] = parts.as_slice() else {
        return Err(wrong(text, "it has no parts"));
    };
    if rest.len() != 3 {
        // `10.0.*` is short for `10.0.*.*`.
        if rest.len() < 3 && text.ends_with('*') {
            return range_v4(&format!("{text}.*"));
        }
        return Err(wrong(text, "an IPv4 address has four parts"));
    }
    let number = |part: &str| {
        part.trim()
            .parse::<u8>()
            .map_err(|_| wrong(text, &format!("{part:?} is no number from 0 to 255")))
    };
    let head = number(first)?;
    let mut ranges = [(head, head); 4];
    for (slot, part) in ranges[1..].iter_mut().zip(rest) {
        *slot = if *part == "*" {
            (0, 255)
        } else if let Some((from, to)) = part.split_once('-') {
            let (from, to) = (number(from)?, number(to)?);
            if from > to {
                return Err(wrong(text, "a range must go upwards"));
            }
            (from, to)
        } else {
            let one = number(part)?;
            (one, one)
        };
    }
    Ok(Pattern::V4(ranges))
}

fn range_v6(text: &str) -> Result<Pattern, String> {
    // The groups at the end that are ranges, then what stands before them.
    let mut head = text;
    let mut ranges = Vec::new();
    while let Some((before, last)) = head.rsplit_once(':') {
        let last = last.trim();
        if !last.contains(['*', '-']) {
            break;
        }
        ranges.insert(0, range16(text, last)?);
        head = before;
    }
    if head.contains(['*', '-']) || ranges.is_empty() || ranges.len() > 2 {
        return Err(wrong(
            text,
            "only the last two groups of an IPv6 address can be ranges",
        ));
    }
    let fixed = head_groups(text, head, 8 - ranges.len())?;
    let mut groups = [(0, 0); 8];
    for (slot, group) in groups
        .iter_mut()
        .zip(fixed.into_iter().map(|g| (g, g)).chain(ranges))
    {
        *slot = group;
    }
    Ok(Pattern::V6(groups))
}

fn range16(text: &str, part: &str) -> Result<(u16, u16), String> {
    let number = |part: &str| {
        u16::from_str_radix(part.trim(), 16)
            .map_err(|_| wrong(text, &format!("{part:?} is no hexadecimal number from 0 to ffff")))
    };
    if part == "*" {
        return Ok((0, 0xffff));
    }
    let (from, to) = part
        .split_once('-')
        .ok_or_else(|| wrong(text, "a group is a number, a range, or *"))?;
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(wrong(text, "a range must go upwards"));
    }
    Ok((from, to))
}

/// The first groups of an IPv6 address, zeros filled in for `::`. A head that ends with `:` ended with `::`.
fn head_groups(text: &str, head: &str, wanted: usize) -> Result<Vec<u16>, String> {
    // As an address whose last groups are zero it can be read by the standard library.
    let tail = 8 - wanted;
    let whole = if head.ends_with(':') || head.contains("::") {
        let filled = head.strip_suffix(':').unwrap_or(head);
        if filled.matches("::").count() + usize::from(filled.len() < head.len()) > 1 || filled.ends_with(':')
        {
            return Err(wrong(text, "it has more than one ::"));
        }
        let (front, back) = match filled.split_once("::") {
            Some((front, back)) => (front, back),
            None => (filled, ""),
        };
        let groups = |part: &str| part.split(':').filter(|g| !g.is_empty()).count();
        let known = groups(front) + groups(back);
        if known >= wanted {
            return Err(wrong(text, "it has too many groups"));
        }
        let zeros = vec!["0"; wanted - known];
        [
            front.to_owned(),
            zeros.join(":"),
            back.to_owned(),
            vec!["0"; tail].join(":"),
        ]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(":")
    } else {
        format!("{head}:{}", vec!["0"; tail].join(":"))
    };
    let address: Ipv6Addr = whole.parse().map_err(|_| {
        wrong(
            text,
            "what stands before the range is no beginning of an IPv6 address",
        )
    })?;
    Ok(address.segments()[..wanted].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, address: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(address.parse().unwrap())
    }

    #[test]
    fn each_form_of_the_list_matches_what_it_says() {
        for (pattern, yes, no) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
            (" 10.0.0.7 ", "10.0.0.7", "10.0.0.70"),
            ("10.0.0.{1,20}", "10.0.0.20", "10.0.0.2"),
            ("10.0.0.7,10.0.1.7", "10.0.1.7", "10.0.2.7"),
            ("10.0.0.*", "10.0.0.255", "10.0.1.0"),
            ("10.0.*.*", "10.0.200.3", "10.1.0.0"),
            ("10.0.*", "10.0.200.3", "10.1.0.0"),
            ("10.*.*.*", "10.9.9.9", "11.0.0.0"),
            ("10.0.0.1-9", "10.0.0.9", "10.0.0.10"),
            ("10.0.1-9.*", "10.0.5.77", "10.0.10.1"),
            ("10.0.*.7", "10.0.3.7", "10.0.3.8"),
            ("fd00::7", "fd00:0:0:0:0:0:0:7", "fd00::8"),
            ("FD00::7", "fd00::7", "fd00::8"),
            ("fd00::{a,b}", "fd00::b", "fd00::c"),
            ("fd00:0:0:0:0:0:1:*", "fd00::1:ffff", "fd00::2:0"),
            ("fd00:1::*", "fd00:1::9", "fd00:1::1:9"),
            ("fd00::10-1f", "fd00::1f", "fd00::20"),
            ("fd00::10-1f:*", "fd00::11:ffff", "fd00::20:0"),
            ("*", "1.2.3.4", ""),
            ("*.*.*.*", "fd00::1", ""),
            ("*:*:*:*:*:*:*:*", "1.2.3.4", ""),
            ("", "", "1.2.3.4"),
        ] {
            assert!(yes.is_empty() || matches(pattern, yes), "{pattern} {yes}");
            assert!(no.is_empty() || !matches(pattern, no), "{pattern} {no}");
        }
    }

    #[test]
    fn an_ipv4_address_in_ipv6_form_is_the_ipv4_address() {
        assert!(matches("10.0.0.*", "::ffff:10.0.0.3"));
        assert!(matches("::ffff:10.0.0.3", "10.0.0.3"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "10.0.0",
            "10.0.0.256",
            "10.0.0.0.*",
            "*.0.0.1",
            "10.0.0.9-1",
            "10.0.0.-9",
            "10.0.0.9-",
            "10.0.0.1-300",
            "10.0.0.1,2}",
            "10.0.0{1,2}",
            "10.0.{1,2}",
            "host",
            "fd00:*:1",
            "fd00::*:*:*",
            "fd00::9-1",
            "fd00:1:2:3:4:5:6:7:*",
            "a::b::*",
            "10.0.0.1,nobody",
        ] {
            assert!(
                Pattern::parse(text).is_err(),
                "{text} became {:?}",
                Pattern::parse(text)
            );
        }
    }
}
