//! Typed settings with Java's key names, declared once with the [`settings!`](crate::settings!) macro.
//!
//! A program declares a struct; for each field the key, the type, the default, and what one must know of it.
//! Keys come in three kinds:
//!
//! * *effective*: a field;
//! * *accepted without effect*: Java's keys for threads and buffers that have no counterpart here. They are kept
//!   for printing, and one notice lists those that were given;
//! * *refused*: keys for what we do not do. Any value but the harmless one stops the start with the reason.
//!
//! Every other key is unknown: it is reported, and nothing else happens, since Java files carry keys of other
//! tools. A bad value of an effective key is an error that names key, value and what is allowed.
//!
//! ```
//! ferromq_daemon::settings! {
//!     /// Settings of an example.
//!     pub struct ExampleSettings {
//!         /// Port to listen on.
//!         listen_port: u16 = 9876, "listenPort", range: 1..=65_535, unit: "port", important: true;
//!         /// Whether routes carry the order configuration.
//!         order_message_enable: bool = false, "orderMessageEnable", live: true;
//!     }
//!     without_effect { "serverWorkerThreads" = "8" }
//!     refused { "enableDLegerCommitLog" unless "false": "DLedger is not part of this program" }
//! }
//! let text = "listenPort=10000\nserverWorkerThreads=4\nnobodyKnows=1";
//! let given = ferromq_daemon::Properties::parse(text).unwrap();
//! let (settings, notes) = ExampleSettings::from_properties(&given).unwrap();
//! assert_eq!(settings.listen_port, 10_000);
//! assert_eq!(notes.unknown, ["nobodyKnows"]);
//! assert_eq!(notes.without_effect, ["serverWorkerThreads"]);
//! ```

use std::fmt::Display;
use std::ops::RangeInclusive;

/// What one must know of an effective key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// Java's name, as it stands in files.
    pub key: &'static str,
    /// Name of the struct's field.
    pub field: &'static str,
    /// Type, for people: `number`, `true or false`, `text`.
    pub kind: &'static str,
    /// Documentation, a blank before each line.
    pub doc: &'static str,
    /// Unit of the number, or empty.
    pub unit: &'static str,
    /// Smallest and largest value.
    pub range: Option<(i64, i64)>,
    /// Whether a change takes effect while the program runs.
    pub live: bool,
    /// Whether `-m` prints it.
    pub important: bool,
}

impl KeyInfo {
    /// A key without unit and range that is neither live nor important.
    pub const fn new(key: &'static str, field: &'static str, kind: &'static str, doc: &'static str) -> Self {
        Self {
            key,
            field,
            kind,
            doc,
            unit: "",
            range: None,
            live: false,
            important: false,
        }
    }
    /// Sets the unit.
    pub const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }
    /// Sets the range.
    pub const fn range(mut self, range: RangeInclusive<i64>) -> Self {
        self.range = Some((*range.start(), *range.end()));
        self
    }
    /// Sets whether it is live.
    pub const fn live(mut self, live: bool) -> Self {
        self.live = live;
        self
    }
    /// Sets whether it is important.
    pub const fn important(mut self, important: bool) -> Self {
        self.important = important;
        self
    }
}

/// A type that a setting can have.
pub trait SettingValue: Sized {
    /// Type, for people.
    const KIND: &'static str;
    /// Reads a value.
    ///
    /// # Errors
    /// What is allowed, for the end of a sentence: "must be …".
    fn read(text: &str) -> Result<Self, String>;
    /// Writes it so that `read` gives it back.
    fn show(&self) -> String;
    /// The value to compare with a range.
    fn number(&self) -> Option<i64> {
        None
    }
}

macro_rules! whole_numbers {
    ($($ty:ty),*) => {$(
        impl SettingValue for $ty {
            const KIND: &'static str = "number";
            fn read(text: &str) -> Result<Self, String> {
                text.trim().parse().map_err(|_| format!("a whole number from {} to {}", Self::MIN, Self::MAX))
            }
            fn show(&self) -> String {
                self.to_string()
            }
            fn number(&self) -> Option<i64> {
                Some(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
    )*};
}
whole_numbers!(u16, u32, u64, usize, i32, i64);

impl SettingValue for bool {
    const KIND: &'static str = "true or false";
    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            t if t.eq_ignore_ascii_case("true") => Ok(true),
            t if t.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for f64 {
    const KIND: &'static str = "number";
    fn read(text: &str) -> Result<Self, String> {
        let number = text.trim().parse().ok().filter(|n: &Self| n.is_finite());
        number.ok_or_else(|| "a number".to_owned())
    }
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl SettingValue for String {
    const KIND: &'static str = "text";
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
    fn show(&self) -> String {
        self.clone()
    }
}

/// Why a setting is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The value does not fit the key.
    #[error("{key}={value} is not possible: it must be {must}")]
    Invalid {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What is allowed.
        must: String,
    },
    /// The key asks for something that this program does not do.
    #[error("{key}={value} is refused: {reason}")]
    Refused {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// Why.
        reason: String,
    },
    /// The key cannot change while the program runs.
    #[error("{key} cannot be changed while the program runs: change it in the file and restart")]
    NotLive {
        /// The key.
        key: String,
    },
}

impl SettingsError {
    /// For checks between keys.
    pub fn invalid(key: impl Into<String>, value: impl Display, must: impl Into<String>) -> Self {
        Self::Invalid {
            key: key.into(),
            value: value.to_string(),
            must: must.into(),
        }
    }
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// A field has the value.
    Effective,
    /// Kept for printing only.
    WithoutEffect,
    /// Not known here.
    Unknown,
}

/// What a start should tell once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Keys that nobody here knows.
    pub unknown: Vec<String>,
    /// Keys that are accepted without effect.
    pub without_effect: Vec<String>,
}

impl Notes {
    /// Adds what became of a key.
    pub fn add(&mut self, key: &str, taken: Taken) {
        let list = match taken {
            Taken::Effective => return,
            Taken::WithoutEffect => &mut self.without_effect,
            Taken::Unknown => &mut self.unknown,
        };
        if !list.iter().any(|k| k == key) {
            list.push(key.to_owned());
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.unknown.iter().for_each(|k| self.add(k, Taken::Unknown));
        other
            .without_effect
            .iter()
            .for_each(|k| self.add(k, Taken::WithoutEffect));
    }

    /// Logs one notice per kind, if there is anything to tell.
    pub fn log(&self) {
        if !self.without_effect.is_empty() {
            tracing::info!(keys = %self.without_effect.join(", "), "these settings are accepted but have no effect here");
        }
        if !self.unknown.is_empty() {
            tracing::warn!(keys = %self.unknown.join(", "), "these settings are not known and were skipped; check their spelling");
        }
    }
}

/// Reads one value and checks its range; used by the macro.
///
/// # Errors
/// [`SettingsError::Invalid`].
pub fn read_value<T: SettingValue>(keys: &[KeyInfo], key: &str, text: &str) -> Result<T, SettingsError> {
    let info = keys.iter().find(|k| k.key == key);
    let range = info.and_then(|k| k.range);
    let must = |otherwise: String| {
        let unit = info.map_or("", |k| k.unit);
        let said = range.map_or(otherwise, |(from, to)| format!("a number from {from} to {to}"));
        if unit.is_empty() {
            said
        } else {
            format!("{said} ({unit})")
        }
    };
    let value = T::read(text).map_err(|what| SettingsError::invalid(key, text, must(what)))?;
    match (value.number(), range) {
        (Some(number), Some((from, to))) if !(from..=to).contains(&number) => {
            Err(SettingsError::invalid(key, text, must(String::new())))
        }
        _ => Ok(value),
    }
}

/// Declares a settings struct; see the [module](crate::settings).
///
/// For each field: documentation, `name: type = default, "javaKey"`, then any of `range: from..=to`,
/// `unit: "text"`, `live: true`, `important: true`; a semicolon ends it. After the struct may follow
/// `without_effect { "key" = "Java's default", … }` and `refused { "key" unless "harmless value": "reason", … }`.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident : $ty:ty = $default:expr, $key:literal $(, $opt:ident : $val:expr)* ;
            )*
        }
        $(without_effect { $($wkey:literal = $wdefault:literal),* $(,)? })?
        $(refused { $($rkey:literal unless $harmless:literal : $why:literal),* $(,)? })?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $(
                $(#[doc = $doc])*
                pub $field: $ty,
            )*
            /// Keys that were given but have no effect, kept for printing.
            pub without_effect: ::std::collections::BTreeMap<String, String>,
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* without_effect: ::std::collections::BTreeMap::new() }
            }
        }

        impl $name {
            /// All effective keys, in the order of the struct.
            $vis const KEYS: &'static [$crate::settings::KeyInfo] = &[$(
                $crate::settings::KeyInfo::new(
                    $key,
                    stringify!($field),
                    <$ty as $crate::settings::SettingValue>::KIND,
                    concat!($($doc, "\n"),*),
                )$(.$opt($val))*,
            )*];

            /// Keys that are accepted without effect, with Java's defaults.
            $vis const WITHOUT_EFFECT: &'static [(&'static str, &'static str)] = &[$($(($wkey, $wdefault)),*)?];

            /// Keys that are refused, with the harmless value and the reason.
            $vis const REFUSED: &'static [(&'static str, &'static str, &'static str)] =
                &[$($(($rkey, $harmless, $why)),*)?];

            /// Defaults, and over them what is given.
            ///
            /// # Errors
            /// The first impossible or refused value.
            $vis fn from_properties(
                given: &$crate::Properties,
            ) -> ::std::result::Result<(Self, $crate::settings::Notes), $crate::settings::SettingsError> {
                let mut settings = Self::default();
                let notes = settings.apply(given)?;
                Ok((settings, notes))
            }

            /// Sets all keys that are given, over what is there.
            ///
            /// # Errors
            /// The first impossible or refused value; keys before it are set then.
            $vis fn apply(
                &mut self,
                given: &$crate::Properties,
            ) -> ::std::result::Result<$crate::settings::Notes, $crate::settings::SettingsError> {
                let mut notes = $crate::settings::Notes::default();
                for (key, value) in given.iter() {
                    notes.add(key, self.set(key, value)?);
                }
                Ok(notes)
            }

            /// Sets one key.
            ///
            /// # Errors
            /// The value is impossible or refused; nothing changed then.
            $vis fn set(
                &mut self,
                key: &str,
                value: &str,
            ) -> ::std::result::Result<$crate::settings::Taken, $crate::settings::SettingsError> {
                match key {
                    $($key => {
                        self.$field = $crate::settings::read_value::<$ty>(Self::KEYS, key, value)?;
                        return Ok($crate::settings::Taken::Effective);
                    })*
                    _ => {}
                }
                for (refused, harmless, reason) in Self::REFUSED {
                    if *refused == key {
                        if value.trim().eq_ignore_ascii_case(harmless) {
                            return Ok($crate::settings::Taken::WithoutEffect);
                        }
                        return Err($crate::settings::SettingsError::Refused {
                            key: key.to_owned(),
                            value: value.to_owned(),
                            reason: (*reason).to_owned(),
                        });
                    }
                }
                if Self::WITHOUT_EFFECT.iter().any(|(k, _)| *k == key) {
                    self.without_effect.insert(key.to_owned(), value.to_owned());
                    return Ok($crate::settings::Taken::WithoutEffect);
                }
                Ok($crate::settings::Taken::Unknown)
            }

            /// Sets one key of a running program.
            ///
            /// # Errors
            /// As [`set`](Self::set); and [`NotLive`]($crate::settings::SettingsError::NotLive) for an effective
            /// key that needs a restart, unless the value is what it is already.
            $vis fn apply_live(
                &mut self,
                key: &str,
                value: &str,
            ) -> ::std::result::Result<$crate::settings::Taken, $crate::settings::SettingsError> {
                let info = Self::KEYS.iter().find(|k| k.key == key);
                if info.is_some_and(|k| !k.live) && self.get(key).as_deref() != Some(value.trim()) {
                    return Err($crate::settings::SettingsError::NotLive { key: key.to_owned() });
                }
                self.set(key, value)
            }

            /// The value of an effective key as text.
            $vis fn get(&self, key: &str) -> Option<String> {
                match key {
                    $($key => Some($crate::settings::SettingValue::show(&self.$field)),)*
                    _ => None,
                }
            }

            /// All keys, those without effect and the refused ones with their harmless values behind the others: tools
            /// look for some of these.
            $vis fn to_properties(&self) -> $crate::Properties {
                let mut all = $crate::Properties::new();
                $(all.set($key, $crate::settings::SettingValue::show(&self.$field));)*
                for (key, default) in Self::WITHOUT_EFFECT {
                    all.set(*key, self.without_effect.get(*key).map_or(*default, String::as_str));
                }
                for (key, harmless, _) in Self::REFUSED {
                    all.set(*key, *harmless);
                }
                all
            }

            /// The important keys only.
            $vis fn important_properties(&self) -> $crate::Properties {
                let mut some = $crate::Properties::new();
                for info in Self::KEYS.iter().filter(|k| k.important) {
                    if let Some(value) = self.get(info.key) {
                        some.set(info.key, value);
                    }
                }
                some
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Properties;

    settings! {
        /// For the tests.
        pub(crate) struct Sample {
            /// A port.
            /// On two lines.
            port: u16 = 9876, "listenPort", range: 1..=65_535, unit: "port", important: true;
            /// A period.
            period: u64 = 30_000, "period", range: 10_000..=60_000, unit: "ms", live: true;
            /// A switch.
            on: bool = false, "onOff", live: true;
            /// A ratio.
            ratio: f64 = 0.75, "ratio";
            /// A name.
            name: String = "a".to_owned(), "name", live: true;
        }
        without_effect { "threads" = "8", "buffers" = "0" }
        refused { "dledger" unless "false": "we replicate otherwise" }
    }

    #[test]
    fn defaults_and_given_values() {
        let given = Properties::parse("listenPort=1\nonOff= TRUE \nratio=1.5\nname=x y ").unwrap();
        let (s, notes) = Sample::from_properties(&given).unwrap();
        assert_eq!(
            (s.port, s.period, s.on, s.ratio, s.name.as_str()),
            (1, 30_000, true, 1.5, "x y ")
        );
        assert_eq!(notes, Notes::default());
    }

    #[test]
    fn each_kind_of_key_is_told_apart() {
        let given = Properties::parse("threads=3\nzzz=1\ndledger=false").unwrap();
        let (s, notes) = Sample::from_properties(&given).unwrap();
        assert_eq!(notes.unknown, ["zzz"]);
        assert_eq!(notes.without_effect, ["threads", "dledger"]);
        let all = s.to_properties();
        assert_eq!(
            (
                all.get("threads"),
                all.get("buffers"),
                all.get("zzz"),
                all.get("dledger")
            ),
            (Some("3"), Some("0"), None, Some("false"))
        );
        let error = Sample::from_properties(&Properties::parse("dledger=true").unwrap()).unwrap_err();
        assert!(error.to_string().contains("we replicate otherwise"), "{error}");
    }

    #[test]
    fn impossible_values_name_key_value_and_range() {
        for (text, parts) in [
            ("listenPort=0", ["listenPort", "0", "1 to 65535", "port"]),
            ("listenPort=abc", ["listenPort", "abc", "1 to 65535", "port"]),
            ("period=70000", ["period", "70000", "10000 to 60000", "ms"]),
            ("onOff=yes", ["onOff", "yes", "true or false", ""]),
            ("ratio=NaN", ["ratio", "NaN", "number", ""]),
        ] {
            let error = Sample::from_properties(&Properties::parse(text).unwrap())
                .unwrap_err()
                .to_string();
            assert!(parts.iter().all(|p| error.contains(p)), "{error}");
        }
    }

    #[test]
    fn only_live_keys_change_at_run_time() {
        let mut s = Sample::default();
        assert_eq!(s.apply_live("period", "20000"), Ok(Taken::Effective));
        assert_eq!(s.period, 20_000);
        assert!(matches!(
            s.apply_live("listenPort", "1"),
            Err(SettingsError::NotLive { .. })
        ));
        assert_eq!(s.apply_live("listenPort", "9876"), Ok(Taken::Effective));
        assert_eq!(s.apply_live("nobody", "1"), Ok(Taken::Unknown));
        assert!(s.apply_live("period", "1").is_err());
        assert_eq!(s.period, 20_000);
    }

    #[test]
    fn what_is_shown_reads_back() {
        let mut s = Sample::default();
        s.set("name", "中").unwrap();
        s.set("ratio", "2").unwrap();
        let text = s.to_properties().to_text();
        let (back, _) = Sample::from_properties(&Properties::parse(&text).unwrap()).unwrap();
        assert_eq!((back.name, back.ratio, back.port), (s.name, s.ratio, s.port));
    }

    #[test]
    fn keys_carry_their_documentation() {
        let port = &Sample::KEYS[0];
        assert_eq!(
            (port.key, port.field, port.kind, port.unit),
            ("listenPort", "port", "number", "port")
        );
        assert!(port.doc.contains("A port.") && port.doc.contains("two lines"));
        assert_eq!(
            Sample::default().important_properties().to_plain_text(),
            "listenPort=9876\n"
        );
    }
}
