//! TLS 1.3 for connections between hosts.
//!
//! Without certificates of the deployment, each environment makes a key pair and a certificate of its
//! own that nobody checks. The handshake of the exchange covers the TLS session (its exporter, RFC 9266), so
//! one who stands between two processes would have to know the exchange's secret.
//!
//! Decision: ADR 0031.

mod certificates;
mod files;
mod session;
mod stream;
mod verifiers;

use std::fmt;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::{ExchangeError, Result};

pub use certificates::self_signed_certificate;
use files::Reloaded;
pub use files::TlsFiles;
pub use session::TlsSession;
pub(crate) use stream::TlsStream;
use verifiers::PeerVerifier;

/// How an environment speaks TLS, as the side that dials and as the side that accepts.
#[derive(Clone)]
pub struct Tls(Source);

#[derive(Clone)]
enum Source {
    Ephemeral(Configs),
    Files(Arc<Reloaded>),
}

/// What rustls needs to know for a connection of either side.
#[derive(Clone)]
struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// A certificate of its own, and any from a peer: the handshake of the exchange binds the session.
    ///
    /// # Errors
    /// [`ExchangeError::TlsOptions`] if the system gives no random bytes.
    pub fn ephemeral() -> Result<Self> {
        Ok(Self(Source::Ephemeral(Configs::ephemeral()?)))
    }

    /// The deployment's certificates, which are checked on both sides besides the proof of the secret.
    ///
    /// Each connection looks whether the files have changed. While they cannot be used, what they said before stays
    /// in use.
    ///
    /// # Errors
    /// [`ExchangeError::TlsOptions`] names the file that cannot be used.
    pub fn from_files(files: &TlsFiles) -> Result<Self> {
        Ok(Self(Source::Files(Arc::new(Reloaded::new(files.clone())?))))
    }

    /// Returns what a connection that begins now needs.
    fn configs(&self) -> Configs {
        match &self.0 {
            Source::Ephemeral(configs) => configs.clone(),
            Source::Files(files) => files.configs(),
        }
    }
}

impl Configs {
    fn ephemeral() -> Result<Self> {
        let (chain, key) = certificates::ephemeral()?;
        let provider = Arc::new(ring::default_provider());
        let client = client(&provider)
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PeerVerifier::any(&provider)))
            .with_no_client_auth();
        let server = server(&provider).with_no_client_auth().with_single_cert(chain, key);
        Ok(Self::of(client, server.map_err(|error| refused(&error))?))
    }

    fn from_files(files: &TlsFiles) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for one in certificates::read(&files.ca)? {
            roots.add(one).map_err(|error| unusable(&files.ca, &error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let chain = certificates::read(&files.certificate)?;
        let key = certificates::read_key(&files.key)?;
        let verifier = PeerVerifier::of(Arc::clone(&roots), &provider);
        let client = client(&provider)
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(
                verifier.map_err(|error| unusable(&files.ca, &error))?,
            ))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|error| unusable(&files.key, &error))?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let clients = clients.build().map_err(|error| unusable(&files.ca, &error))?;
        let server = server(&provider)
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(|error| unusable(&files.certificate, &error))?;
        Ok(Self::of(client, server))
    }

    fn of(mut client: ClientConfig, mut server: ServerConfig) -> Self {
        // A resumed session would save no time that counts: connections last as long as their exchange.
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Self { client: Arc::new(client), server: Arc::new(server) }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// The certificates that a process shows, its own one first, and the private key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client(
    provider: &Arc<CryptoProvider>,
) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites of TLS 1.3")
}

fn server(
    provider: &Arc<CryptoProvider>,
) -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites of TLS 1.3")
}

fn refused(error: &dyn fmt::Display) -> ExchangeError {
    ExchangeError::TlsOptions(error.to_string())
}

fn unusable(file: &std::path::Path, error: &dyn fmt::Display) -> ExchangeError {
    ExchangeError::TlsOptions(format!("{} cannot be used: {error}", file.display()))
}
