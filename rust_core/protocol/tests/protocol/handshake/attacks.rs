//! Attacks on the handshake, all refused.

use headgate_protocol::{
    ClientHandshake, HandshakeConfig, HandshakeError, Key, Refusal, ServerHandshake, Step,
};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use sha2::Sha256;

use super::{CLIENT, EXCHANGE, REFUSED, SERVER, client, key, proof_message, sent, server, session};
use crate::hex;

pub(super) fn refused(cause: Refusal) -> Result<Step, HandshakeError> {
    Err(HandshakeError::Refused { cause })
}

/// Computes the proof of a holder of `key`, without the crate under test.
pub(super) fn forge(key: &[u8], label: &str, transcript: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(label.as_bytes());
    transcript.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

#[test]
fn wrong_key() {
    let other = Key::derive(&[9; 32], &EXCHANGE, CLIENT.run, CLIENT.epoch);
    let (mut client, hello) = ClientHandshake::start(other.clone(), CLIENT, [0xC2; 32]);
    let challenge = sent(server(SERVER).handle(&mut hello.as_slice()));
    assert_eq!(client.handle(&mut challenge.as_slice()), refused(Refusal::Proof));
    assert_eq!(client.handle(&mut challenge.as_slice()), Err(HandshakeError::Over));
    // A client that ignores the server's wrong proof is refused as well.
    let mut server = server(SERVER);
    let challenge = sent(server.handle(&mut hello.as_slice()));
    let label = "headgate client proof, link tcp, tls none\0";
    let forged = proof_message(&forge(&[9; 32], label, &[&hello, &challenge]));
    assert_eq!(server.handle(&mut forged.as_slice()), refused(Refusal::Proof));
    assert_eq!(server.handle(&mut forged.as_slice()), Err(HandshakeError::Over));
}

#[test]
fn replay() {
    let old = session();
    let mut server = ServerHandshake::new(key(&SERVER), SERVER, [0x53; 32]);
    let challenge = sent(server.handle(&mut old.hello.as_slice()));
    assert_ne!(challenge, old.challenge);
    assert_eq!(server.handle(&mut old.proof.as_slice()), refused(Refusal::Proof));
    let (mut client, _) = ClientHandshake::start(key(&CLIENT), CLIENT, [0xC3; 32]);
    assert_eq!(client.handle(&mut old.challenge.as_slice()), refused(Refusal::Proof));
}

#[test]
fn reflect() {
    // A HELLO with the server's own process id, or its own nonce.
    let itself = HandshakeConfig { process: SERVER.process, ..CLIENT };
    let (_, hello) = client(itself);
    assert_eq!(server(SERVER).handle(&mut hello.as_slice()), refused(Refusal::Reflected));
    let (_, hello) = ClientHandshake::start(key(&CLIENT), CLIENT, [0x52; 32]);
    assert_eq!(server(SERVER).handle(&mut hello.as_slice()), refused(Refusal::Reflected));
    // A CHALLENGE with the client's own process id, its own nonce, and its own HELLO.
    let session = session();
    let own_process = [&session.challenge[..7], &CLIENT.process, &session.challenge[23..]].concat();
    let own_nonce = [&session.challenge[..27], &[0xC2; 32], &session.challenge[59..]].concat();
    for challenge in [own_process, own_nonce] {
        let step = client(CLIENT).0.handle(&mut challenge.as_slice());
        assert_eq!(step, refused(Refusal::Reflected));
    }
    let step = client(CLIENT).0.handle(&mut session.hello.as_slice());
    assert_eq!(step, Err(HandshakeError::OutOfTurn { got: 1, want: 2 }));
    // The server's proof, sent back as the client's.
    let mut server = server(SERVER);
    let challenge = sent(server.handle(&mut session.hello.as_slice()));
    let reflected = proof_message(&challenge[59..]);
    assert_eq!(server.handle(&mut reflected.as_slice()), refused(Refusal::Proof));
}

/// A proof with the label of the other side is refused, even if the key is right.
#[test]
fn role_swap() {
    let session = session();
    let mut hello = session.hello.clone();
    hello[9] = 2;
    assert_eq!(server(SERVER).handle(&mut hello.as_slice()), refused(Refusal::Role));
    let step = server(SERVER).handle(&mut session.challenge.as_slice());
    assert_eq!(step, Err(HandshakeError::OutOfTurn { got: 2, want: 1 }));
    let key = hex("1bff021fcd0f653b71c4e4f88aadf4346333340e670eb773412489044a0617ef");
    for (prover, accepted) in [("server", false), ("client", true)] {
        let mut server = server(SERVER);
        let challenge = sent(server.handle(&mut session.hello.as_slice()));
        let label = format!("headgate {prover} proof, link tcp, tls none\0");
        let proof = proof_message(&forge(&key, &label, &[&session.hello, &challenge]));
        assert_eq!(server.handle(&mut proof.as_slice()).is_ok(), accepted, "{prover}");
    }
}

#[test]
fn stale_attempt_and_cross_exchange() {
    let cases = [
        (HandshakeConfig { epoch: 3, ..CLIENT }, Refusal::StaleAttempt),
        (HandshakeConfig { epoch: 5, ..CLIENT }, Refusal::StaleAttempt),
        (HandshakeConfig { run: 2, ..CLIENT }, Refusal::StaleAttempt),
        (HandshakeConfig { exchange: [0x12; 16], ..CLIENT }, Refusal::Exchange),
    ];
    for (config, cause) in cases {
        let (_, hello) = client(config);
        assert_eq!(server(SERVER).handle(&mut hello.as_slice()), refused(cause));
        // It claims to be of ours, but its key is not.
        let (mut liar, hello) = ClientHandshake::start(key(&config), CLIENT, [0xC2; 32]);
        let challenge = sent(server(SERVER).handle(&mut hello.as_slice()));
        assert_eq!(liar.handle(&mut challenge.as_slice()), refused(Refusal::Proof));
    }
}

/// After any flipped bit, at most one side completes the handshake.
#[test]
fn tampering() {
    let honest = session();
    let messages = [&honest.hello, &honest.challenge, &honest.proof, &honest.accept];
    for (target, message) in messages.into_iter().enumerate() {
        for bit in 0..message.len() * 8 {
            let tamper = |at: usize, mut bytes: Vec<u8>| {
                if at == target {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                bytes
            };
            let (mut client, hello) = client(CLIENT);
            let mut server = server(SERVER);
            let both_in = (|| {
                let step = server.handle(&mut tamper(0, hello).as_slice()).ok()?;
                let Step::Send(challenge) = step else {
                    return None;
                };
                let step = client.handle(&mut tamper(1, challenge).as_slice()).ok()?;
                let Step::Send(proof) = step else { return None };
                let step = server.handle(&mut tamper(2, proof).as_slice()).ok()?;
                let Step::Done { send: accept, .. } = step else {
                    return None;
                };
                let step = client.handle(&mut tamper(3, accept).as_slice()).ok()?;
                matches!(step, Step::Done { .. }).then_some(())
            })();
            assert_eq!(both_in, None, "bit {bit} of message {target}");
        }
    }
}

#[test]
fn refusals_look_alike() {
    let causes = [
        Refusal::Exchange,
        Refusal::Proof,
        Refusal::Reflected,
        Refusal::Role,
        Refusal::StaleAttempt,
    ];
    let by_peer = HandshakeError::Refused { cause: Refusal::ByPeer };
    for cause in causes {
        let error = HandshakeError::Refused { cause };
        assert_eq!(error.to_string(), by_peer.to_string());
        let rejection = error.rejection().unwrap();
        assert_eq!(rejection, hex(REFUSED));
        let (mut client, _) = client(CLIENT);
        assert_eq!(client.handle(&mut rejection.as_slice()), Err(by_peer));
        let mut server = server(SERVER);
        assert_eq!(server.handle(&mut rejection.as_slice()), Err(by_peer));
    }
    // A peer that speaks another protocol, or sent a REJECT, gets no answer.
    let stray = HandshakeError::OutOfTurn { got: 4, want: 1 };
    for silent in [by_peer, HandshakeError::BadMagic, stray, HandshakeError::Over] {
        assert_eq!(silent.rejection(), None, "{silent:?}");
    }
}

#[test]
fn a_client_tells_the_word_of_a_proved_server_from_anyones() {
    let [ours, other] = [key(&SERVER), Key::derive(&[9; 32], &EXCHANGE, CLIENT.run, CLIENT.epoch)];
    let (_, hello) = client(CLIENT);
    let challenge = |key| {
        let mut server = ServerHandshake::new(key, SERVER, [0x52; 32]);
        sent(server.handle(&mut hello.as_slice()))
    };
    let unproved =
        [hex(REFUSED), challenge(other), b"SSH".to_vec(), challenge(ours.clone())[..90].to_vec()];
    for bytes in unproved {
        let (mut client, _) = client(CLIENT);
        let _ = client.handle(&mut bytes.as_slice());
        assert!(!client.has_server_proved(), "{bytes:?}");
    }
    let (mut client, _) = client(CLIENT);
    sent(client.handle(&mut challenge(ours).as_slice()));
    assert!(client.has_server_proved());
    assert_eq!(client.handle(&mut hex(REFUSED).as_slice()), refused(Refusal::ByPeer));
    assert!(client.has_server_proved());
}

#[test]
fn another_protocol_is_detected_at_its_first_byte() {
    assert_eq!(server(SERVER).handle(&mut b"G".as_slice()), Err(HandshakeError::BadMagic));
    assert_eq!(server(SERVER).handle(&mut b"HDGX".as_slice()), Err(HandshakeError::BadMagic));
    assert_eq!(client(CLIENT).0.handle(&mut b"HTTP".as_slice()), Err(HandshakeError::BadMagic));
}

proptest! {
    #[test]
    fn noise_never_gets_in(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 1u8..6) {
        let noise = [b"HDGT".as_slice(), &[kind], &bytes].concat();
        let (mut client, _) = client(CLIENT);
        let mut awaits_proof = server(SERVER);
        sent(awaits_proof.handle(&mut session().hello.as_slice()));
        for (side, step) in [
            ("client", client.handle(&mut noise.as_slice())),
            ("server", server(SERVER).handle(&mut noise.as_slice())),
            ("server after HELLO", awaits_proof.handle(&mut noise.as_slice())),
        ] {
            prop_assert!(matches!(step, Ok(Step::NeedMore) | Err(_)), "{}: {:?}", side, step);
        }
    }
}
