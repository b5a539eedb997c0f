//! Signed requests: how a client shows that it knows an account's secret without sending it.
//!
//! A signed request carries two or three more header arguments: `AccessKey` names the account, `SecurityToken` is there
//! when the client has one, and `Signature` is
//!
//! ```text
//! base64( HMAC-SHA1( secret key,  values of all arguments but Signature, in the order of their names  ++  body ) )
//! ```
//!
//! Only the values go in, without their names and without anything between them; names sort by their UTF-16 units.
//! What holds: signing changes nothing but those arguments, and it comes last, since an argument that is set
//! afterwards makes the signature wrong.
//!
//! Brokers of 4.9.7 leave `_UNIQUE_KEY_QUERY` out when they check a query by key while its clients sign it, so that
//! such queries fail between the two. [`verify`] takes both forms.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;

use crate::{Command, Ext};

/// Argument with the account's name.
pub const ACCESS_KEY: &str = "AccessKey";
/// Argument with the signature.
pub const SIGNATURE: &str = "Signature";
/// Argument with a client's token, for accounts that have one.
pub const SECURITY_TOKEN: &str = "SecurityToken";
/// Argument that a query by unique key carries and that not every broker signs.
pub const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";

/// What a client signs with. Its `Debug` form hides the secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Name of the account.
    pub access_key: String,
    /// The account's secret; it never leaves the client.
    pub secret_key: String,
    /// Sent along when there is one.
    pub security_token: Option<String>,
}

impl Credentials {
    /// An account without a token.
    pub fn new(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        Self {
            access_key: access_key.into(),
            secret_key: secret_key.into(),
            security_token: None,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

/// Signs a request. Call it when all other arguments and the body are set.
pub fn sign(request: &mut Command, credentials: &Credentials) {
    request.ext.set(ACCESS_KEY, &credentials.access_key);
    if let Some(token) = &credentials.security_token {
        request.ext.set(SECURITY_TOKEN, token);
    }
    let signature = signature(&request.ext, &request.body, &credentials.secret_key);
    request.ext.set(SIGNATURE, signature);
}

/// The signature of these arguments and this body.
pub fn signature(ext: &Ext, body: &[u8], secret_key: &str) -> String {
    BASE64.encode(tag(ext, body, &key(secret_key), &[SIGNATURE]))
}

/// Whether a request carries the signature that this secret gives, in one of the two forms that clients and brokers of
/// 4.9 know. The time this takes does not depend on where a wrong signature differs.
pub fn verify(request: &Command, secret_key: &str) -> bool {
    let Some(given) = request
        .ext
        .get(SIGNATURE)
        .and_then(|text| BASE64.decode(text).ok())
    else {
        return false;
    };
    let key = key(secret_key);
    let matches = |left_out: &[&str]| {
        let data = signed_bytes(&request.ext, &request.body, left_out);
        hmac::verify(&key, &data, &given).is_ok()
    };
    matches(&[SIGNATURE])
        || (request.ext.get(UNIQUE_KEY_QUERY).is_some() && matches(&[SIGNATURE, UNIQUE_KEY_QUERY]))
}

fn key(secret_key: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret_key.as_bytes())
}

fn tag(ext: &Ext, body: &[u8], key: &hmac::Key, left_out: &[&str]) -> hmac::Tag {
    hmac::sign(key, &signed_bytes(ext, body, left_out))
}

fn signed_bytes(ext: &Ext, body: &[u8], left_out: &[&str]) -> Vec<u8> {
    let mut fields: Vec<(&str, &str)> = ext.iter().filter(|(name, _)| !left_out.contains(name)).collect();
    // Java compares UTF-16 units, which differs from the order of bytes above U+FFFF only.
    fields.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    let length = fields.iter().map(|(_, value)| value.len()).sum::<usize>() + body.len();
    let mut data = Vec::with_capacity(length);
    for (_, value) in fields {
        data.extend_from_slice(value.as_bytes());
    }
    data.extend_from_slice(body);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Credentials {
        Credentials::new("RocketMQ", "12345678")
    }

    fn send(topic: &str) -> Command {
        let fields = [
            ("producerGroup", "pg"),
            ("topic", topic),
            ("defaultTopic", "TBW102"),
            ("defaultTopicQueueNums", "4"),
            ("queueId", "1"),
            ("sysFlag", "0"),
            ("bornTimestamp", "1700000000000"),
            ("flag", "0"),
            ("properties", "TAGS\u{1}a\u{2}"),
            ("reconsumeTimes", "0"),
            ("unitMode", "false"),
            ("maxReconsumeTimes", "0"),
            ("batch", "false"),
        ];
        let mut command = Command::request(10).with_body("hello");
        command.ext = fields.into_iter().collect();
        command
    }

    /// The signatures are those of AclClientRPCHook 4.9.7.
    #[test]
    fn as_the_official_client_signs() {
        for (topic, token, expected) in [
            ("TopicTest", None, "L9+tfME2O0Sg5eM8M6na4YPJWOY="),
            ("TopicTest", Some("tok-1"), "5p/dGubkRbaU+UCveyKuV02HTWs="),
            ("Tüpic", None, "A5q147p3aeIyM6fZSYh+tXTYZ1Q="),
        ] {
            let mut request = send(topic);
            let credentials = Credentials {
                security_token: token.map(str::to_owned),
                ..account()
            };
            sign(&mut request, &credentials);
            assert_eq!(request.ext.get(SIGNATURE), Some(expected), "{topic} {token:?}");
            assert_eq!(request.ext.get(SECURITY_TOKEN), token);
            assert!(verify(&request, "12345678"));
        }
    }

    #[test]
    fn a_query_by_unique_key_is_taken_in_both_forms() {
        let mut request = Command::request(12);
        request.ext = [
            ("topic", "T"),
            ("key", "k"),
            (UNIQUE_KEY_QUERY, "true"),
            ("Zed", "1"),
            ("a", "2"),
        ]
        .into_iter()
        .collect();
        let mut whole = request.clone();
        sign(&mut whole, &account());
        assert_eq!(
            whole.ext.get(SIGNATURE),
            Some("663tzGBX2FyK/9AhMRezOLMmCac="),
            "as the 4.9.7 client"
        );
        assert!(verify(&whole, "12345678"));
        let mut left_out = request.clone();
        left_out.ext.remove(UNIQUE_KEY_QUERY);
        sign(&mut left_out, &account());
        left_out.ext.set(UNIQUE_KEY_QUERY, "true");
        assert!(verify(&left_out, "12345678"), "as the 4.9.7 broker checks");
    }

    #[test]
    fn whatever_is_changed_on_the_way_is_noticed() {
        let mut signed = send("TopicTest");
        sign(&mut signed, &account());
        assert!(!verify(&signed, "12345679"));
        for (field, value) in [
            ("topic", "Other"),
            (ACCESS_KEY, "Someone"),
            ("added", "x"),
            (SIGNATURE, ""),
            (SIGNATURE, "???"),
        ] {
            let changed = signed.clone().with_ext(field, value);
            assert!(!verify(&changed, "12345678"), "{field}");
        }
        assert!(!verify(&signed.clone().with_body("hellO"), "12345678"));
        let mut unsigned = signed;
        unsigned.ext.remove(SIGNATURE);
        assert!(!verify(&unsigned, "12345678"));
    }

    #[test]
    fn signing_again_changes_nothing() {
        let mut once = send("T");
        sign(&mut once, &account());
        let mut twice = once.clone();
        sign(&mut twice, &account());
        assert_eq!(once, twice);
    }

    #[test]
    fn secrets_are_not_printed() {
        let shown = format!(
            "{:?}",
            Credentials {
                security_token: Some("tok-1".into()),
                ..account()
            }
        );
        assert!(
            shown.contains("RocketMQ") && !shown.contains("12345678") && !shown.contains("tok-1"),
            "{shown}"
        );
    }
}
