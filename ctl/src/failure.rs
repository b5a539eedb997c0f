//! Exit codes and how errors are told.
//!
//! 0 done, 1 failed, 2 wrong usage, 3 not found, 4 unreachable. The first error of ours in the chain decides.

use std::process::ExitCode;

use ferromq_client::ClientError;

/// A failure that decides the exit code by itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What was asked for does not exist.
    #[error("{0}")]
    NotFound(String),
    /// What was looked at is not as it should be.
    #[error("{0}")]
    Damaged(String),
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
}

/// The exit code of an error.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return match failure {
                Failure::NotFound(_) => 3,
                Failure::Usage(_) => 2,
                Failure::Damaged(_) => 1,
            };
        }
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return match error {
                ClientError::NoNameServers
                | ClientError::BadAddress { .. }
                | ClientError::InvalidArgument { .. } => 2,
                error if error.is_not_found() => 3,
                error if error.is_unreachable() => 4,
                _ => 1,
            };
        }
    }
    1
}

/// Tells the error on standard error and returns its exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("ferroctl: {error:#}");
    ExitCode::from(code(error))
}

/// Tells wrong usage that clap has not seen.
pub(crate) fn usage(message: &str) -> ExitCode {
    eprintln!("ferroctl: {message}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_help_says() {
        let connect = || ClientError::Connect {
            address: "a:1".into(),
            reason: "refused".into(),
        };
        let cases: [(anyhow::Error, u8); 6] = [
            (connect().into(), 4),
            (anyhow::Error::from(connect()).context("read the clusters"), 4),
            (ClientError::NoRoute { topic: "T".into() }.into(), 3),
            (ClientError::NoNameServers.into(), 2),
            (Failure::NotFound("nothing".into()).into(), 3),
            (anyhow::anyhow!("other"), 1),
        ];
        for (error, expected) in cases {
            assert_eq!(code(&error), expected, "{error:#}");
        }
    }
}
