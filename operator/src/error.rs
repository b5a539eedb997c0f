//! Why a pass over a resource ended early.

use kube::core::response::reason;
use std::time::Duration;

/// Why a pass ended early. Each names what was being done; the next pass starts anew.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("{action}: {source}")]
    Api {
        /// What was being done, to what.
        action: String,
        /// The failure.
        source: kube::Error,
    },
    /// An object of a needed name belongs to somebody else.
    #[error(
        "{kind} {name} exists already and does not belong to this resource; delete or rename it, or choose another name for this resource"
    )]
    NameTaken {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A Secret that the resource names cannot be used.
    #[error("{field} names Secret {name}, which cannot be used: {why}")]
    Secret {
        /// Where it is named.
        field: &'static str,
        /// Its name.
        name: String,
        /// What is wrong with it, without its content, and what to do.
        why: String,
    },
    /// A pass took too long.
    #[error("the pass did not end within {0:?} and was given up; the API server or a broker may hang")]
    TooLong(Duration),
    /// An object could not be turned into JSON or back.
    #[error("{action}: {source}")]
    Json {
        /// What was being done, to what.
        action: String,
        /// The failure.
        source: serde_json::Error,
    },
}

impl Error {
    /// Wraps a failure of the API with what was being done.
    pub fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        move |source| Self::Api { action, source }
    }

    /// Whether a person must act before it can work; otherwise it may work the next time.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::Api {
                source: kube::Error::Api(status),
                ..
            } => matches!(status.code, 400 | 403 | 404 | 422) && status.reason != reason::CONFLICT,
            Self::NameTaken { .. } | Self::Secret { .. } | Self::Json { .. } => true,
            Self::Api { .. } | Self::TooLong(_) => false,
        }
    }

    /// A word for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Api {
                source: kube::Error::Api(status),
                ..
            } => match status.code {
                403 => "forbidden",
                404 => "not_found",
                409 => "conflict",
                400 | 422 => "invalid",
                _ => "api",
            },
            Self::Api { .. } => "connection",
            Self::NameTaken { .. } => "name_taken",
            Self::Secret { .. } => "secret",
            Self::TooLong(_) => "too_long",
            Self::Json { .. } => "json",
        }
    }
}
