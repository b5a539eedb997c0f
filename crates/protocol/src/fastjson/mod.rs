//! placeholder
use serde::de::{DeserializeOwned, Deserialize, Deserializer};
use serde::Serialize;
use std::collections::BTreeMap;

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at byte {at}")]
pub struct FastjsonError {
    message: String,
    at: usize,
}

/// Reads a body.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FastjsonError> {
    serde_json::from_slice(bytes).map_err(|e| FastjsonError { message: e.to_string(), at: e.column() })
}

/// Writes a body.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Writes a body with unquoted integer keys.
pub fn to_vec_java<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

pub trait JavaEnum: Sized + Copy + 'static {
    const CONSTANTS: &'static [Self];
    fn parse(name: &str) -> Option<Self>;
}

pub(crate) fn optional_enum<'de, D: Deserializer<'de>, E: JavaEnum>(d: D) -> Result<Option<E>, D::Error> {
    Ok(Option::<String>::deserialize(d)?.and_then(|s| E::parse(&s)))
}

pub(crate) fn map_or_reference<'de, D: Deserializer<'de>, K: Deserialize<'de> + Ord, V: Deserialize<'de>>(d: D) -> Result<BTreeMap<K, V>, D::Error> {
    BTreeMap::deserialize(d)
}
