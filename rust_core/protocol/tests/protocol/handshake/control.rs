//! Control connections: the same handshake with keys, a role and proofs of their own.

use headgate_protocol::{
    ClientHandshake, HandshakeConfig, HandshakeError, Key, Refusal, ServerHandshake, Step,
    VersionRange,
};

use super::attacks::{forge, refused};
use super::{CLIENT, EXCHANGE, SERVER, key, proof_message, secret, sent, session};
use crate::hex;

/// The control key of this secret and exchange; from another implementation of HKDF.
const KEY: &str = "d56d022a9f1f22d777cefc44c8dc1f317001f77f1e37ded0e0b863082d3fb401";

fn control_key() -> Key {
    Key::control(&secret(), &EXCHANGE)
}

fn worker(key: Key) -> (ClientHandshake, Vec<u8>) {
    ClientHandshake::start(key, CLIENT, [0xC2; 32])
}

fn coordinator() -> ServerHandshake {
    ServerHandshake::new(control_key(), SERVER, [0x52; 32])
}

#[test]
fn both_ends_get_the_same_session_key() {
    let (mut worker, hello) = worker(control_key());
    let mut coordinator = coordinator();
    let challenge = sent(coordinator.handle(&mut hello.as_slice()));
    let proof = sent(worker.handle(&mut challenge.as_slice()));
    let label = "headgate client proof, control, link tcp, tls none\0";
    assert_eq!(proof, proof_message(&forge(&hex(KEY), label, &[&hello, &challenge])));
    let Ok(Step::Done { peer, send }) = coordinator.handle(&mut proof.as_slice()) else {
        panic!("the coordinator does not accept");
    };
    let session = forge(&hex(KEY), "headgate session\0", &[&hello, &challenge]);
    assert_eq!(peer.session.as_bytes().as_slice(), session);
    let Ok(Step::Done { peer: ours, .. }) = worker.handle(&mut send.as_slice()) else {
        panic!("the worker is not accepted");
    };
    assert_eq!(ours.session, peer.session);
}

#[test]
fn a_data_connection_is_refused_by_the_control_plane() {
    let (_, hello) = worker(key(&CLIENT));
    let step = coordinator().handle(&mut hello.as_slice());
    assert_eq!(step, refused(Refusal::Role));
    // With the role of a worker it still lacks the key.
    let (mut liar, mut hello) = worker(key(&CLIENT));
    hello[9] = 2;
    let mut coordinator = coordinator();
    let challenge = sent(coordinator.handle(&mut hello.as_slice()));
    assert_eq!(liar.handle(&mut challenge.as_slice()), refused(Refusal::Proof));
    let data_key = hex("1bff021fcd0f653b71c4e4f88aadf4346333340e670eb773412489044a0617ef");
    let label = "headgate client proof, control, link tcp, tls none\0";
    let forged = proof_message(&forge(&data_key, label, &[&hello, &challenge]));
    assert_eq!(coordinator.handle(&mut forged.as_slice()), refused(Refusal::Proof));
}

#[test]
fn a_control_connection_is_refused_by_the_data_plane() {
    let producer = || ServerHandshake::new(key(&SERVER), SERVER, [0x52; 32]);
    let (_, hello) = worker(control_key());
    assert_eq!(producer().handle(&mut hello.as_slice()), refused(Refusal::Role));
    // With the role of a consumer it still lacks the key.
    let (mut liar, mut hello) = worker(control_key());
    hello[9] = 1;
    let mut producer = producer();
    let challenge = sent(producer.handle(&mut hello.as_slice()));
    assert_eq!(liar.handle(&mut challenge.as_slice()), refused(Refusal::Proof));
    let label = "headgate client proof, link tcp, tls none\0";
    let forged = proof_message(&forge(&hex(KEY), label, &[&hello, &challenge]));
    assert_eq!(producer.handle(&mut forged.as_slice()), refused(Refusal::Proof));
}

#[test]
fn the_requested_exchange_is_read_from_the_whole_hello() {
    let hello = session().hello;
    let requested =
        |input: &[u8]| ServerHandshake::requested_exchange(input, VersionRange::SUPPORTED);
    for len in 0..hello.len() {
        assert_eq!(requested(&hello[..len]), Ok(None), "{len} bytes");
    }
    assert_eq!(requested(&hello), Ok(Some(EXCHANGE)));
    assert_eq!(requested(b"G"), Err(HandshakeError::BadMagic));
    assert_eq!(requested(b"HDGT\x02"), Err(HandshakeError::OutOfTurn { got: 2, want: 1 }));
}

#[test]
fn another_exchange_of_the_same_secret_is_refused() {
    let other = HandshakeConfig { exchange: [0x12; 16], ..CLIENT };
    let (_, hello) = ClientHandshake::start(control_key(), other, [0xC2; 32]);
    assert_eq!(coordinator().handle(&mut hello.as_slice()), refused(Refusal::Exchange));
    let key = Key::control(&secret(), &other.exchange);
    let (mut worker, hello) = worker(key);
    let challenge = sent(coordinator().handle(&mut hello.as_slice()));
    assert_eq!(worker.handle(&mut challenge.as_slice()), refused(Refusal::Proof));
}
