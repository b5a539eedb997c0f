//! Who commands come from, and whether what they say is encrypted.

use std::path::PathBuf;

use clap::Args;

/// Who commands come from, and whether they are encrypted.
#[derive(Debug, Args)]
pub(crate) struct Security {
    /// YAML file with accessKey and secretKey to sign requests with; default: conf/tools.yml in ROCKETMQ_HOME
    #[arg(long, env = "FERROMQ_ACCOUNT", global = true, value_name = "FILE")]
    pub(crate) account: Option<PathBuf>,
    /// Encrypt connections
    #[arg(long, env = "FERROMQ_TLS", global = true)]
    pub(crate) tls: bool,
    /// Authorities whose server certificates are trusted, PEM; without it none is checked. Implies --tls
    #[arg(long, env = "FERROMQ_TLS_TRUST", global = true, value_name = "FILE")]
    pub(crate) tls_trust: Option<PathBuf>,
    /// Certificate to show to servers, PEM. Implies --tls
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}
