//! The two configurations of rustls: of the side that dials, and of the side that accepts.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::certificates::{self, TlsFiles, refused, unusable};
use crate::error::Result;
use crate::verifiers::PeerVerifier;

/// The configurations of rustls for both sides of a connection.
#[derive(Clone)]
pub(crate) struct Configs {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl Configs {
    /// A certificate of its own, and any from a peer.
    ///
    /// # Errors
    /// [`TlsOptionsError`](crate::TlsOptionsError) if the system gives no random bytes.
    pub(crate) fn ephemeral() -> Result<Self> {
        let (chain, key) = certificates::ephemeral()?;
        let provider = Arc::new(ring::default_provider());
        let client = client(&provider)
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PeerVerifier::any(&provider)))
            .with_no_client_auth();
        let server = server(&provider).with_no_client_auth().with_single_cert(chain, key);
        Ok(Self::of(client, server.map_err(|error| refused(&error))?))
    }

    /// The deployment's certificates.
    ///
    /// # Errors
    /// [`TlsOptionsError`](crate::TlsOptionsError) names the file that cannot be used.
    pub(crate) fn from_files(files: &TlsFiles) -> Result<Self> {
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
