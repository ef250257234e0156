//! Certificates: read from files, or made for one environment.

use std::fmt;
use std::path::{Path, PathBuf};

use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::{Result, TlsOptionsError};

/// The name in certificates that are made here. Nobody checks it.
const NAME: &str = "headgate";

/// Certificates of the deployment, in files of PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The authorities that certificates of peers must come from.
    pub ca: PathBuf,
    /// The certificate of this process, and those between it and the authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// The certificates that a process shows, its own one first, and the private key.
pub(crate) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn made() -> Result<CertifiedKey<KeyPair>> {
    rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(|error| refused(&error))
}

/// Makes a key pair and a certificate that it signs itself; returns the certificate and the key in PEM.
///
/// # Errors
/// [`TlsOptionsError`] if the system gives no random bytes.
pub fn self_signed_certificate() -> Result<(String, String)> {
    let CertifiedKey { cert, signing_key } = made()?;
    Ok((cert.pem(), signing_key.serialize_pem()))
}

/// Makes a key pair and a certificate that it signs itself.
pub(crate) fn ephemeral() -> Result<Identity> {
    let CertifiedKey { cert, signing_key } = made()?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der());
    Ok((vec![cert.into()], key.map_err(|error| refused(&error))?))
}

/// Reads certificates.
///
/// # Errors
/// [`TlsOptionsError`] if there are none, or the file cannot be read.
pub(crate) fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|error| unusable(file, &error))?;
    if found.is_empty() {
        return Err(unusable(file, &"it has no certificate in PEM"));
    }
    Ok(found)
}

/// Reads a private key.
///
/// # Errors
/// [`TlsOptionsError`] if there is none, or the file cannot be read.
pub(crate) fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| unusable(file, &error))
}

pub(crate) fn refused(error: &dyn fmt::Display) -> TlsOptionsError {
    TlsOptionsError(error.to_string())
}

pub(crate) fn unusable(file: &Path, error: &dyn fmt::Display) -> TlsOptionsError {
    TlsOptionsError(format!("{} cannot be used: {error}", file.display()))
}
