//! TLS on the same port as plain connections, as RocketMQ's peers use it.
//!
//! A server looks at the first byte of a connection: `0x16` begins a TLS handshake record, a plain frame begins
//! with 0 or 1. What it does then is its [`Mode`]. Plain connections pay one look at one byte and nothing more.
//!
//! ```text
//! mode         first byte 0x16   other
//! disabled     closed            plain
//! permissive   TLS               plain
//! enforcing    TLS               closed
//! ```
//!
//! What holds: certificates and keys are read again when their files change ([`ServerTls::watch`]; a client looks
//! when it connects), connections that live go on with what they began with, and files that cannot be used
//! (half-written, a key that does not belong to its certificate) leave the old ones in force.
//!
//! Names are those of Java's `tls.properties`; see [`TlsSettings`]. TLS 1.2 and 1.3, no others.

mod load;
mod settings;
pub(crate) mod transport;
mod verify;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tokio_util::sync::CancellationToken;

use transport::{Encrypted, Metered};

pub use settings::{ClientAuth, ClientTlsSettings, Mode, ServerTlsSettings, TlsSettings};

/// First byte of a TLS handshake record.
pub(crate) const HANDSHAKE: u8 = 0x16;
/// A server's side of an encrypted connection.
pub(crate) type ServerStream = Encrypted<server::TlsStream<Metered<TcpStream>>>;
/// A client's side.
pub(crate) type ClientStream = Encrypted<client::TlsStream<Metered<TcpStream>>>;
/// How often a server's files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why TLS cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A setting has an impossible value.
    #[error("{key}={value} is not possible: it must be {must}")]
    Setting {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is allowed.
        must: &'static str,
    },
    /// Settings that do not go together.
    #[error("{0}")]
    Settings(String),
    /// A file cannot be read or does not hold what it should.
    #[error("cannot use {} as {what}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Certificate, key and trust cannot be used together.
    #[error("cannot use the certificate {cert}: {reason}")]
    Unusable {
        /// File of the certificate, or what stands for it.
        cert: String,
        /// What is wrong.
        reason: String,
    },
}

/// One side's configuration, made anew when its files change.
struct Source<S, C> {
    settings: S,
    now: RwLock<Option<Arc<C>>>,
    /// What was read last, used or not: a bad state is tried and logged once.
    seen: Mutex<load::Seen>,
    build: fn(&S, &load::Seen) -> Result<Option<C>, TlsError>,
}

impl<S, C> Source<S, C> {
    fn new(
        settings: S,
        files: &[(&'static str, Option<PathBuf>)],
        build: fn(&S, &load::Seen) -> Result<Option<C>, TlsError>,
    ) -> Result<Self, TlsError> {
        let seen = load::Seen::read(files);
        let first = build(&settings, &seen)?;
        Ok(Self {
            settings,
            now: RwLock::new(first.map(Arc::new)),
            seen: Mutex::new(seen),
            build,
        })
    }

    fn refresh(&self) -> Result<bool, TlsError> {
        let mut seen = self.seen.lock();
        let new = seen.again();
        if new == *seen {
            return Ok(false);
        }
        *seen = new;
        let built = (self.build)(&self.settings, &seen)?;
        *self.now.write() = built.map(Arc::new);
        Ok(true)
    }
}

/// The server's side. Cheap to clone; all clones see a reload.
#[derive(Clone)]
pub struct ServerTls {
    mode: Mode,
    source: Arc<Source<ServerTlsSettings, ServerConfig>>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads the files. Without a certificate a self-signed one is made for this process, unless
    /// `tls.test.mode.enable=false`: then permissive mode closes TLS connections and enforcing mode is an error.
    /// `None` when the mode is disabled.
    ///
    /// # Errors
    /// A file cannot be used, or the settings do not go together; the text names file or key.
    pub fn new(settings: &TlsSettings) -> Result<Option<Self>, TlsError> {
        if settings.mode == Mode::Disabled {
            return Ok(None);
        }
        let server = settings.server.clone();
        let files = server.files();
        let source = Source::new(server, &files, load::server_config)?;
        if source.now.read().is_none() && settings.mode == Mode::Enforcing {
            return Err(TlsError::Settings(
                "tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath, or tls.test.mode.enable=true for a self-signed certificate".to_owned(),
            ));
        }
        Ok(Some(Self {
            mode: settings.mode,
            source: Arc::new(source),
        }))
    }

    /// The mode; never [`Mode::Disabled`].
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Reads the files again if they changed; true when new connections use what was read. Blocks on files.
    ///
    /// # Errors
    /// What was read cannot be used; the old certificate stays. Reported once per state of the files.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        self.source.refresh()
    }

    /// Looks at the files every second until `stop`, and logs what came of it.
    pub async fn watch(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let this = self.clone();
            match tokio::task::spawn_blocking(move || this.refresh()).await {
                Ok(Ok(true)) => tracing::info!("new connections use the changed certificate"),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the changed TLS files cannot be used; the old ones stay in force");
                }
                Err(error) => tracing::warn!(%error, "cannot look at the TLS files"),
            }
        }
    }

    /// Shakes hands.
    pub(crate) fn accept(
        &self,
        stream: TcpStream,
    ) -> Pin<Box<dyn Future<Output = io::Result<ServerStream>> + Send>> {
        let config = self.source.now.read().clone();
        match config {
            Some(config) => Box::pin(async move {
                let shaken = TlsAcceptor::from(config).accept(Metered::new(stream)).await;
                shaken.map(Encrypted::new)
            }),
            None => Box::pin(std::future::ready(Err(io::Error::other(
                "there is no certificate (tls.server.certPath)",
            )))),
        }
    }
}

/// A client's side. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    source: Arc<Source<ClientTlsSettings, ClientConfig>>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("settings", &self.source.settings)
            .finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files. As Java's, a client does not compare host names: brokers are known by address.
    ///
    /// # Errors
    /// A file cannot be used, or the settings do not go together; the text names file or key.
    pub fn new(settings: &ClientTlsSettings) -> Result<Self, TlsError> {
        let files = settings.files();
        let source = Source::new(settings.clone(), &files, load::client_config)?;
        if !settings.verifies() {
            tracing::warn!(
                "TLS connections accept any server certificate; set tls.client.trustCertPath to check them"
            );
        }
        Ok(Self {
            source: Arc::new(source),
        })
    }

    /// Shakes hands with `host`; looks at the files first.
    pub(crate) async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<ClientStream> {
        let source = Arc::clone(&self.source);
        let refreshed = tokio::task::spawn_blocking(move || source.refresh()).await;
        if let Ok(Err(error)) = refreshed {
            tracing::warn!(%error, "the changed TLS files cannot be used; the old ones stay in force");
        }
        let config = self.source.now.read().clone();
        let config = config.ok_or_else(|| io::Error::other("TLS is not set up"))?;
        let name = match ServerName::try_from(host.to_owned()) {
            Ok(name) => name,
            Err(_) => ServerName::from(stream.peer_addr()?.ip()),
        };
        let shaken = TlsConnector::from(config)
            .connect(name, Metered::new(stream))
            .await;
        shaken.map(Encrypted::new)
    }
}
