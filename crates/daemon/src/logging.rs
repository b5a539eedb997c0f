//! Logs to standard error, as text or as JSON lines, with a level and a form that change at run time.
//!
//! Standard output stays free for what the Java programs print there (the start line, `-p`).

use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Format {
    /// Reads `text` or `json`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim() {
            "" | "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Changes level and form.
#[derive(Clone)]
pub struct Handle {
    reload: Option<reload::Handle<EnvFilter, Registry>>,
    json: Arc<AtomicBool>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("logging::Handle")
    }
}

/// A level that cannot be set.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot set the log level to '{level}': {reason}; write error, warn, info, debug or trace, or target=level pairs"
)]
pub struct LevelError {
    level: String,
    reason: String,
}

fn filter(level: &str) -> Result<EnvFilter, LevelError> {
    EnvFilter::try_new(level).map_err(|e| LevelError {
        level: level.to_owned(),
        reason: e.to_string(),
    })
}

/// Lets events through while `json` says that lines have this form, and every span always: a line has its spans' fields
/// whenever the form was changed.
fn wanted<S>(form: Format, json: &Arc<AtomicBool>) -> impl Filter<S> + use<S> {
    let json = Arc::clone(json);
    dynamic_filter_fn(move |meta, _| {
        !meta.is_event() || json.load(Ordering::Relaxed) == (form == Format::Json)
    })
}

/// Starts logging for the whole process. When something logs already (a test, an embedding program), that
/// stays and the handle does nothing.
///
/// # Errors
/// The level is malformed.
pub fn init(format: Format, level: &str) -> Result<Handle, LevelError> {
    let (layer, reload) = reload::Layer::new(filter(level)?);
    let json = Arc::new(AtomicBool::new(format == Format::Json));
    let ansi = std::io::stderr().is_terminal();
    let done = tracing_subscriber::registry()
        .with(layer)
        .with(
            tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(ansi)
                .with_filter(wanted(Format::Text, &json)),
        )
        .with(
            tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(ansi)
                .json()
                .flatten_event(true)
                .with_filter(wanted(Format::Json, &json)),
        )
        .try_init();
    Ok(Handle {
        reload: done.is_ok().then_some(reload),
        json,
    })
}

impl Handle {
    /// Sets the form of lines from now on.
    pub fn set_format(&self, format: Format) {
        self.json.store(format == Format::Json, Ordering::Relaxed);
    }

    /// Sets the level from now on: `info`, or pairs such as `info,ferromq_remoting=debug`.
    ///
    /// # Errors
    /// The level is malformed; the old one stays.
    pub fn set_level(&self, level: &str) -> Result<(), LevelError> {
        let filter = filter(level)?;
        let Some(reload) = &self.reload else { return Ok(()) };
        reload.reload(filter).map_err(|e| LevelError {
            level: level.to_owned(),
            reason: e.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_level_is_refused_and_named() {
        let handle = init(Format::Text, "warn").unwrap();
        handle.set_level("info,ferromq=debug").unwrap();
        let error = handle.set_level("ferromq=loud").unwrap_err().to_string();
        assert!(error.contains("ferromq=loud"), "{error}");
        assert!(init(Format::Json, "=x=y=").is_err());
    }

    #[test]
    fn formats_have_names() {
        assert_eq!(Format::from_name("json"), Some(Format::Json));
        assert_eq!(Format::from_name(""), Some(Format::Text));
        assert_eq!(Format::from_name("xml"), None);
    }
}
