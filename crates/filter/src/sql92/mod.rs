//! Conditions on properties, in the SQL92 subset that RocketMQ knows.
//!
//! ```text
//! or         := and { OR and }
//! and        := equality { AND equality }
//! equality   := comparison { ('=' | '<>') comparison | IS [NOT] NULL }
//! comparison := unary [ ('>' | '>=' | '<' | '<=') unary | [NOT] BETWEEN unary AND unary | [NOT] IN '(' text { ',' text } ')' ]
//! unary      := ('+' | '-' | NOT) unary | primary
//! primary    := 'text' | 12 | 1.5 | TRUE | FALSE | NULL | property | '(' or ')'
//! ```
//!
//! Keywords go in any case, properties' names do not. A quote inside a text is doubled. `-- …` and `/* … */` are comments.
//! NOT and signs bind tightest: `NOT (a = 1)` needs its parentheses.
//!
//! All properties are texts. Against a whole number a property is read as one, so that "4.5" does not compare with 3
//! but with 3.0; against a decimal, or another property in an ordering, it is read as a decimal. A text that cannot be
//! read so ends the evaluation: the message is not wanted. Truth has three values: whatever compares with an absent
//! property is unknown, and in the end unknown is not wanted. A property alone is no truth: it is false if present.
//!
//! Where Java's broker falls over, this is more generous: whole numbers have 64 bits on both sides, `0.0` is a number,
//! and `TRUE = a` reads as `a = TRUE`. And it is stricter where Java passes over a mistake in silence: everything up to
//! the end of the expression must make sense.

mod eval;
mod lex;
mod parse;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use thiserror::Error;

/// Most levels of parentheses, NOT and signs inside one another.
pub const MAX_DEPTH: usize = 64;

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("at character {position}: {message}")]
pub struct ParseError {
    /// Place of the first offending character, from 1.
    pub position: usize,
    /// What was expected and what was found.
    pub message: String,
}

/// A condition on a message's properties. See the module's documentation.
#[derive(Debug, Clone, PartialEq)]
pub struct Sql92 {
    text: String,
    root: Expr,
}

impl Sql92 {
    /// Reads a condition.
    ///
    /// # Errors
    /// Tells the place and what was expected there.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Ok(Self {
            text: text.to_owned(),
            root: parse::parse(text)?,
        })
    }

    /// The condition as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if a message with these properties is wanted. `get` gives a property's value, or `None` if it is absent.
    pub fn eval<'a>(&self, get: &dyn Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        matches!(self.root.truth(get), Ok(Some(true)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Expr {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Property(String),
    Negate(Box<Expr>),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Equal {
        left: Box<Expr>,
        right: Box<Expr>,
        negated: bool,
    },
    Compare {
        order: Order,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Between {
        value: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
    },
    In {
        property: String,
        texts: Vec<String>,
        negated: bool,
    },
    IsNull {
        value: Box<Expr>,
        negated: bool,
    },
}
