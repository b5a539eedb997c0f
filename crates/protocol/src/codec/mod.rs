//! The two forms of a command's header.

pub(crate) mod binary;
pub(crate) mod json;
