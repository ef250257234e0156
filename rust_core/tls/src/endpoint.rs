//! `Tls`: the certificates that an environment shows and accepts.

use std::fmt;
use std::sync::Arc;

use crate::certificates::TlsFiles;
use crate::configs::Configs;
use crate::error::{Result, TlsOptionsError};
use crate::reloaded::Reloaded;

/// How an environment speaks TLS, as the side that dials and as the side that accepts.
#[derive(Clone)]
pub struct Tls(Source);

#[derive(Clone)]
enum Source {
    Ephemeral(Configs),
    Files(Arc<Reloaded>),
}

impl Tls {
    /// A certificate of its own, and any from a peer: the handshake of the exchange binds the session.
    ///
    /// # Errors
    /// [`TlsOptionsError`](crate::TlsOptionsError) if the system gives no random bytes.
    pub fn ephemeral() -> Result<Self> {
        Ok(Self(Source::Ephemeral(Configs::ephemeral()?)))
    }

    /// The deployment's certificates, which are checked on both sides besides the proof of the secret.
    ///
    /// Each connection looks whether the files have changed. While they cannot be used, what they said before stays
    /// in use, and [`take_refusal`](Self::take_refusal) has the cause.
    ///
    /// # Errors
    /// [`TlsOptionsError`](crate::TlsOptionsError) names the file that cannot be used.
    pub fn from_files(files: &TlsFiles) -> Result<Self> {
        Ok(Self(Source::Files(Arc::new(Reloaded::new(files.clone())?))))
    }

    /// Returns why the files cannot be used now, once for each state of theirs; None if they can be, or there are none.
    #[must_use]
    pub fn take_refusal(&self) -> Option<TlsOptionsError> {
        match &self.0 {
            Source::Ephemeral(_) => None,
            Source::Files(files) => files.take_refusal(),
        }
    }

    /// Returns what a connection that begins now needs.
    pub(crate) fn configs(&self) -> Configs {
        match &self.0 {
            Source::Ephemeral(configs) => configs.clone(),
            Source::Files(files) => files.configs(),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}
