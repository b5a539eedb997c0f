//! Leader election: of several operators one works, by a Lease of the coordination API.
//!
//! The holder renews every third of the lease's time. Another takes over when the lease has not changed for all of its
//! time by the other's own clock, so clocks need not agree. Who loses the lease stops at once: the process ends and starts
//! anew as a candidate. Every write of a lease names the version that was read.

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Name of the Lease.
pub const NAME: &str = "ferromq-operator";

/// A candidate.
#[derive(Clone)]
pub struct Candidate {
    api: Api<Lease>,
    identity: String,
    time: Duration,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// What a look at the lease showed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    version: Option<String>,
    at: Instant,
}

impl Candidate {
    /// A candidate of this name for the lease in a namespace.
    pub fn new(client: Client, namespace: &str, identity: &str, time: Duration) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            identity: identity.to_owned(),
            time,
        }
    }

    /// Waits until the lease is held; false when told to stop.
    pub async fn acquire(&self, stop: &CancellationToken) -> bool {
        let mut seen = None;
        let mut said = false;
        loop {
            match self.attempt(&mut seen).await {
                Ok(true) => return true,
                Ok(false) if !said => {
                    said = true;
                    tracing::info!("another operator leads; waiting for its lease to end");
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the lease cannot be had yet"),
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(self.time / 5) => {}
            }
        }
    }

    /// Renews until `stop`, or until the lease is lost: then ends with an error.
    ///
    /// # Errors
    /// The lease is somebody else's, or could not be renewed in time.
    pub async fn hold(&self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    self.release().await;
                    return Ok(());
                }
                () = tokio::time::sleep(self.time / 3) => {}
            }
            let tried = tokio::time::timeout(self.time / 3, self.attempt(&mut None)).await;
            match tried {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => anyhow::bail!("the lease {NAME} was taken by another operator"),
                Ok(Err(error)) => tracing::warn!(%error, "the lease was not renewed"),
                Err(_) => tracing::warn!("the lease was not renewed in time"),
            }
            anyhow::ensure!(
                renewed.elapsed() < self.time * 4 / 5,
                "the lease {NAME} could not be renewed for {:?}",
                renewed.elapsed()
            );
        }
    }

    /// Takes or renews the lease if that is right now; tells whether it is held.
    async fn attempt(&self, seen: &mut Option<Seen>) -> anyhow::Result<bool> {
        let found = self.api.get_opt(NAME).await.context("read the lease")?;
        let Some(mut lease) = found else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(NAME.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.spec(0)),
            };
            return Ok(self.api.create(&PostParams::default(), &lease).await.is_ok());
        };
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let ours = holder == self.identity;
        if !ours && !holder.is_empty() {
            let version = lease.metadata.resource_version.clone();
            let unchanged = seen.as_ref().filter(|s| s.version == version);
            let Some(since) = unchanged else {
                *seen = Some(Seen {
                    version,
                    at: Instant::now(),
                });
                return Ok(false);
            };
            if since.at.elapsed() < self.time {
                return Ok(false);
            }
        }
        let terms = spec.lease_transitions.unwrap_or(0) + i32::from(!ours);
        let acquired = if ours { spec.acquire_time } else { None };
        let mut next = self.spec(terms);
        if acquired.is_some() {
            next.acquire_time = acquired;
        }
        lease.spec = Some(next);
        match self.api.replace(NAME, &PostParams::default(), &lease).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            Err(e) => Err(e).context("write the lease"),
        }
    }

    async fn release(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(NAME).await else {
            return;
        };
        if let Some(spec) = &mut lease.spec
            && spec.holder_identity.as_deref() == Some(&self.identity)
        {
            spec.holder_identity = None;
            if let Err(error) = self.api.replace(NAME, &PostParams::default(), &lease).await {
                tracing::debug!(%error, "the lease was not given up; it ends by itself");
            }
        }
    }

    fn spec(&self, terms: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.time.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(terms),
            ..LeaseSpec::default()
        }
    }
}
