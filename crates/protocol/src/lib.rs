//! RocketMQ 4.9 wire and record formats.
//!
//! Everything here is a function of its arguments: no sockets, no files, no clock. The other crates share these
//! types, so that a quirk of the protocol is known in one place only. Three promises hold throughout:
//!
//! * bytes from a peer or a disk never cause a panic;
//! * no length found in such bytes is trusted, and nothing is allocated by it;
//! * what the official 4.9.7 programs send is understood, and what is written they understand.
#![forbid(unsafe_code)]

pub mod acl;
pub mod batch;
pub mod body;
pub mod code;
pub mod codec;
pub mod command;
pub mod compress;
pub mod crc;
pub mod ext;
pub mod fastjson;
pub mod frame;
pub mod header;
pub mod java_hash;
pub mod message_id;
pub mod names;
pub mod perm;
pub mod properties;
pub mod record;
pub mod sysflag;

pub use command::{Command, Language, SerializeType};
pub use ext::Ext;
pub use header::{DecodeHeader, EncodeHeader, HeaderError};

/// The number of release 4.9.7 in RocketMQ's list of versions; every header that we write carries it.
pub const VERSION: i32 = 407;

/// The name that belongs to a version number, for example `V4_9_7` for 407.
///
/// Numbers outside the 4.x and 5.0 range give `V` and the number, since nobody but a reader of logs looks at it.
pub fn version_name(version: i32) -> String {
    let past_4 = version.saturating_sub(213);
    if !(0..=199).contains(&past_4) {
        return format!("V{version}");
    }
    let (minor, patch, snapshot) = (past_4 / 20, past_4 % 20 / 2, past_4 % 2 == 1);
    if snapshot {
        // A snapshot's number is one below the final release of the same name.
        let next = past_4 + 1;
        return format!("V4_{}_{}_SNAPSHOT", next / 20, next % 20 / 2);
    }
    format!("V4_{minor}_{patch}")
}

/// Bytes of hexadecimal digits with anything between them.
#[cfg(test)]
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits.chunks_exact(2).map(|p| p[0] << 4 | p[1]).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn version_names() {
        assert_eq!(super::version_name(399), "V4_9_3");
        assert_eq!(super::version_name(407), "V4_9_7");
        assert_eq!(super::version_name(406), "V4_9_7_SNAPSHOT");
        assert_eq!(super::version_name(213), "V4_0_0");
        assert_eq!(super::version_name(-5), "V-5");
        assert_eq!(super::version_name(i32::MIN), "V-2147483648");
    }
}
