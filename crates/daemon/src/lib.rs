//! What long-running FerroMQ programs share.
//!
//! * [`properties`]: Java's `.properties` format
//! * [`settings`]: typed keys with default, unit, range and live flag, made by the [`settings!`] macro
//! * [`options`]: the command line that the Java programs have
//! * [`http`]: probes, metrics and a program's own pages
//! * [`shutdown`]: signals become a cancelled token
//! * [`logging`]: text or JSON, with a level that changes at run time
//! * [`limits`]: open files, and how they are shared out
//! * [`metrics`]: the text of a metrics page
//! * [`durable`]: files that are either old or new after a crash, never half

#![forbid(unsafe_code)]

pub mod durable;
pub mod http;
pub mod limits;
pub mod logging;
pub mod metrics;
pub mod options;
pub mod properties;
pub mod settings;
pub mod shutdown;

pub use options::{Action, Flag, Options, Program};
pub use properties::Properties;
