//! Certificates of a deployment: the right ones pass, all others end the connection with the reason.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::fs;
use std::path::Path;
use std::thread;

use headgate_exchange::{Config, ExchangeError, Tls, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use tempfile::TempDir;

use common::{Env, batch, config, drain, nothing, writer};

/// An authority, and the folder of the files that it gives out.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca"), certificate.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), folder }
    }

    /// Gives out a certificate that is valid in these years.
    fn files(&self, name: &str, years: (i32, i32)) -> TlsFiles {
        let mut params = CertificateParams::new(["executor".to_owned()]).unwrap();
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let at = |kind: &str| self.folder.path().join(format!("{name}.{kind}"));
        fs::write(at("certificate"), certificate.pem()).unwrap();
        fs::write(at("key"), key.serialize_pem()).unwrap();
        TlsFiles { ca: self.ca(), certificate: at("certificate"), key: at("key") }
    }

    fn ca(&self) -> std::path::PathBuf {
        Path::new(self.folder.path()).join("ca")
    }
}

const NOW: (i32, i32) = (2020, 2090);
const LONG_AGO: (i32, i32) = (2001, 2002);
const LATER: (i32, i32) = (2089, 2090);

fn env(files: &TlsFiles) -> Env {
    let tls = Some(Tls::from_files(files).unwrap());
    Env::with(Config { tls, ..config(24, 4096) })
}

/// Reads rows from one environment in another; returns the keys, or the error of the reader.
fn read(producer: &TlsFiles, consumer: &TlsFiles) -> Result<Vec<i64>, ExchangeError> {
    read_between(&env(producer), &env(consumer))
}

fn read_between(producer: &Env, consumer: &Env) -> Result<Vec<i64>, ExchangeError> {
    let partition = producer.partition(1);
    let mut writer = writer(&partition);
    writer.emit(&batch(0, 100, 10), &nothing).unwrap();
    writer.finish().unwrap();
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    let keys = drain(&mut consumer.reader(&gate));
    gate.close();
    partition.fail(&ExchangeError::Interrupted("a test".to_owned()));
    keys
}

/// Returns the errors of readers whose connections are refused. They read at the same time, since each one
/// dials again until its deadline.
fn refused<const N: usize>(pairs: [(&TlsFiles, &TlsFiles); N]) -> [String; N] {
    thread::scope(|scope| {
        let reading = pairs.map(|(producer, consumer)| scope.spawn(|| read(producer, consumer)));
        reading.map(|reading| match reading.join().unwrap() {
            Err(error @ ExchangeError::Tls { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        })
    })
}

#[test]
fn certificates_of_one_authority_pass_whatever_host_they_name() {
    let authority = Authority::new("ours");
    let (one, other) = (authority.files("one", NOW), authority.files("other", NOW));
    assert_eq!(read(&one, &other).unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_certificate_of_another_authority_is_refused_on_both_sides() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let right = ours.files("right", NOW);
    // It trusts our authority, and shows a certificate of another one.
    let stranger = TlsFiles { ca: ours.ca(), ..theirs.files("stranger", NOW) };
    let [found, told] = refused([(&stranger, &right), (&right, &stranger)]);
    assert!(found.contains("UnknownIssuer"), "{found}");
    // The producer refuses it, and says so by an alert.
    assert!(told.contains("UnknownCA") || told.contains("DecryptError"), "{told}");
}

#[test]
fn expired_and_early_certificates_are_refused_on_both_sides() {
    let authority = Authority::new("ours");
    let right = authority.files("right", NOW);
    let expired = authority.files("expired", LONG_AGO);
    let early = authority.files("early", LATER);
    let pairs = [(&expired, &right), (&early, &right), (&right, &expired), (&right, &early)];
    let [of_expired, of_early, ..] = refused(pairs);
    assert!(of_expired.contains("expired"), "{of_expired}");
    assert!(of_early.contains("not valid yet"), "{of_early}");
}

#[test]
fn a_peer_without_a_certificate_is_refused() {
    let authority = Authority::new("ours");
    let producer = env(&authority.files("right", NOW));
    let tls = Some(Tls::ephemeral().unwrap());
    let consumer = Env::with(Config { tls, ..config(24, 4096) });
    let partition = producer.partition(1);
    let gate = consumer.gate(&[producer.address(&partition, 0)]);
    let error = drain(&mut consumer.reader(&gate)).unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    gate.close();
    partition.fail(&ExchangeError::Interrupted("a test".to_owned()));
}

#[test]
fn both_sides_read_their_certificates_again_when_the_files_change() {
    let authority = Authority::new("ours");
    let (changed, right) = (authority.files("changed", NOW), authority.files("right", NOW));
    let (accepts, dials) = (env(&changed), env(&changed));
    let both = || {
        thread::scope(|scope| {
            let accepted = scope.spawn(|| read_between(&accepts, &env(&right)));
            let dialed = read_between(&env(&right), &dials);
            [accepted.join().unwrap(), dialed]
        })
    };
    let rows = || both().map(|keys| assert_eq!(keys.unwrap().len(), 100));
    rows();

    // A certificate without its key, and no certificate: what could be used last stays in use.
    fs::copy(&right.certificate, &changed.certificate).unwrap();
    rows();
    fs::remove_file(&changed.certificate).unwrap();
    rows();

    // Once for each state of the files, whatever connections looked at them.
    let refusals =
        || [&accepts, &dials].map(|env| env.0.config().tls.as_ref().unwrap().take_refusal());
    for refusal in refusals() {
        let text = refusal.expect("the certificate is missing").to_string();
        assert!(text.contains(changed.certificate.to_str().unwrap()), "{text}");
    }
    rows();
    assert!(refusals().iter().all(Option::is_none));
    fs::write(&changed.certificate, "no certificate").unwrap();
    assert!(refusals().iter().all(Option::is_some));
    rows();
    assert!(refusals().iter().all(Option::is_none));

    authority.files("changed", LONG_AGO);
    assert!(refusals().iter().all(Option::is_none), "the files can be used");
    let [accepted, dialed] = both().map(|keys| keys.unwrap_err().to_string());
    assert!(accepted.contains("expired"), "{accepted}");
    assert!(dialed.to_lowercase().contains("expired"), "{dialed}");
    authority.files("changed", NOW);
    rows();
}
