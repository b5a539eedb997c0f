//! From files to configurations. Pure once the files are read.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::TlsError;
use super::settings::{ClientAuth, ClientTlsSettings, ServerTlsSettings};
use super::verify::{AnyClient, AnyServer, Issued};

type Content = Option<Result<Vec<u8>, String>>;

/// Certificate, key and trust as they were read at one moment.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Seen {
    files: Vec<(&'static str, Option<PathBuf>)>,
    content: Vec<Content>,
}

impl Seen {
    pub(super) fn read(files: &[(&'static str, Option<PathBuf>)]) -> Self {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|e| e.to_string());
        Self {
            files: files.to_vec(),
            content: files.iter().map(|(_, path)| path.as_ref().map(read)).collect(),
        }
    }

    pub(super) fn again(&self) -> Self {
        Self::read(&self.files)
    }

    fn error(&self, at: usize, reason: impl Into<String>) -> TlsError {
        let (what, path) = &self.files[at];
        TlsError::File {
            path: path.clone().unwrap_or_default(),
            what,
            reason: reason.into(),
        }
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, TlsError> {
        match &self.content[at] {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(reason)) => Err(self.error(at, reason)),
        }
    }

    fn certs(&self, at: usize) -> Result<Option<Vec<CertificateDer<'static>>>, TlsError> {
        let Some(bytes) = self.bytes(at)? else {
            return Ok(None);
        };
        let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
        let certs = certs.map_err(|e| self.error(at, format!("it is not PEM: {e}")))?;
        if certs.is_empty() {
            return Err(self.error(at, "it holds no certificate in PEM form"));
        }
        Ok(Some(certs))
    }

    fn key(&self, at: usize) -> Result<Option<PrivateKeyDer<'static>>, TlsError> {
        let Some(bytes) = self.bytes(at)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(bytes);
        if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
            let reason = "it is encrypted, which is not supported; decrypt it with 'openssl pkcs8 -in OLD -out NEW' and protect the file instead";
            return Err(self.error(at, reason));
        }
        PrivateKeyDer::from_pem_slice(bytes)
            .map(Some)
            .map_err(|e| self.error(at, format!("it holds no private key in PEM form: {e}")))
    }

    fn identity(&self, side: &str) -> Result<Option<Identity>, TlsError> {
        match (self.certs(0)?, self.key(1)?) {
            (None, None) => Ok(None),
            (Some(certs), Some(key)) => Ok(Some((certs, key))),
            (Some(_), None) => Err(TlsError::Settings(format!(
                "tls.{side}.certPath is set, and tls.{side}.keyPath is not: set both"
            ))),
            (None, Some(_)) => Err(TlsError::Settings(format!(
                "tls.{side}.keyPath is set, and tls.{side}.certPath is not: set both"
            ))),
        }
    }

    fn roots(&self) -> Result<Option<(RootCertStore, Vec<CertificateDer<'static>>)>, TlsError> {
        let Some(certs) = self.certs(2)? else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for cert in &certs {
            roots
                .add(cert.clone())
                .map_err(|e| self.error(2, format!("a certificate in it cannot be used: {e}")))?;
        }
        Ok(Some((roots, certs)))
    }

    fn unusable(&self, error: &rustls::Error) -> TlsError {
        let path = self.files[0].1.as_ref();
        TlsError::Unusable {
            cert: path.map_or_else(|| "made for this process".to_owned(), |p| p.display().to_string()),
            reason: match error {
                rustls::Error::InconsistentKeys(_) => "the private key does not belong to it".to_owned(),
                other => other.to_string(),
            },
        }
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// `None`: there is no certificate and none may be made.
pub(super) fn server_config(
    settings: &ServerTlsSettings,
    seen: &Seen,
) -> Result<Option<ServerConfig>, TlsError> {
    let identity = match seen.identity("server")? {
        Some(identity) => identity,
        None if settings.self_signed == Some(false) => return Ok(None),
        None => {
            tracing::debug!(
                "TLS connections get a self-signed certificate; set tls.server.certPath and tls.server.keyPath for one that clients can check"
            );
            self_signed()?
        }
    };
    let provider = provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| seen.unusable(&e))?;
    let mandatory = settings.need_client_auth == ClientAuth::Require;
    let builder = match (settings.need_client_auth, settings.verifies()) {
        (ClientAuth::None, _) => builder.with_no_client_auth(),
        (ClientAuth::Require, false) if settings.auth_client.is_none() => {
            return Err(TlsError::Settings(
                "tls.server.need.client.auth=require needs tls.server.trustCertPath, or tls.server.authClient=false to accept any certificate".to_owned(),
            ));
        }
        (_, false) => builder.with_client_cert_verifier(Arc::new(AnyClient::new(mandatory, &provider))),
        (_, true) => {
            let Some((roots, _)) = seen.roots()? else {
                return Err(TlsError::Settings(
                    "tls.server.authClient=true needs tls.server.trustCertPath".to_owned(),
                ));
            };
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if mandatory {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            let verifier = verifier.build().map_err(|e| seen.error(2, e.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(identity.0, identity.1);
    config.map(Some).map_err(|e| seen.unusable(&e))
}

pub(super) fn client_config(
    settings: &ClientTlsSettings,
    seen: &Seen,
) -> Result<Option<ClientConfig>, TlsError> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| seen.unusable(&e))?
        .dangerous();
    let builder = if settings.verifies() {
        let Some((roots, certs)) = seen.roots()? else {
            return Err(TlsError::Settings(
                "tls.client.authServer=true needs tls.client.trustCertPath".to_owned(),
            ));
        };
        builder.with_custom_certificate_verifier(Arc::new(Issued::new(roots, certs, &provider)))
    } else {
        builder.with_custom_certificate_verifier(Arc::new(AnyServer::new(&provider)))
    };
    let config = match seen.identity("client")? {
        Some((certs, key)) => builder
            .with_client_auth_cert(certs, key)
            .map_err(|e| seen.unusable(&e))?,
        None => builder.with_no_client_auth(),
    };
    Ok(Some(config))
}

fn self_signed() -> Result<Identity, TlsError> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.map_err(|e| TlsError::Unusable {
        cert: "made for this process".to_owned(),
        reason: e.to_string(),
    })?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    Ok((vec![made.cert.der().clone()], key))
}
