//! Only a holder of the key of this exchange, run and epoch completes the handshake.

mod attacks;
mod control;

use headgate_protocol::{
    ClientHandshake, FrameMask, HandshakeConfig, HandshakeError, Key, MAX_HANDSHAKE_LEN, Peer,
    ServerHandshake, Step, VersionRange,
};

use crate::hex;

/// The REJECT for every peer that is not authenticated.
const REFUSED: &str = "48444754 05 02 0000 0000";
/// Mask of the frames after this handshake, computed by another implementation of HMAC.
const MASK: FrameMask = FrameMask::new([0xD8, 0x4B, 0xF4, 0x0D]);
/// The session key of this handshake; from another implementation of HMAC.
const SESSION: &str = "5ad4694ccac54c9dc84a8cfca678be4db01870fa59a0810fa4a823f39452b94f";
const EXCHANGE: [u8; 16] = [0x11; 16];
const CLIENT: HandshakeConfig = HandshakeConfig {
    exchange: EXCHANGE,
    run: 3,
    epoch: 4,
    process: [0xC1; 16],
    max_segment: 65536,
    versions: VersionRange::SUPPORTED,
};
const SERVER: HandshakeConfig =
    HandshakeConfig { process: [0x51; 16], max_segment: 32768, ..CLIENT };

fn secret() -> [u8; 32] {
    std::array::from_fn(|at| at as u8)
}

fn key(config: &HandshakeConfig) -> Key {
    Key::derive(&secret(), &config.exchange, config.run, config.epoch)
}

fn client(config: HandshakeConfig) -> (ClientHandshake, Vec<u8>) {
    ClientHandshake::start(key(&config), config, [0xC2; 32])
}

fn server(config: HandshakeConfig) -> ServerHandshake {
    ServerHandshake::new(key(&config), config, [0x52; 32])
}

fn sent(step: Result<Step, HandshakeError>) -> Vec<u8> {
    match step {
        Ok(Step::Send(bytes)) => bytes,
        other => panic!("expected bytes to send, got {other:?}"),
    }
}

/// The four messages of a handshake that succeeds.
struct Session {
    hello: Vec<u8>,
    challenge: Vec<u8>,
    proof: Vec<u8>,
    accept: Vec<u8>,
}

fn session() -> Session {
    let (mut client, hello) = client(CLIENT);
    let mut server = server(SERVER);
    let challenge = sent(server.handle(&mut hello.as_slice()));
    let proof = sent(client.handle(&mut challenge.as_slice()));
    let Ok(Step::Done { peer, send: accept }) = server.handle(&mut proof.as_slice()) else {
        panic!("the server does not accept");
    };
    let (process, max_segment) = (CLIENT.process, 32768);
    assert_eq!(peer, Peer { process, version: 2, max_segment, mask: MASK, session: peer.session });
    assert_eq!(peer.session.as_bytes().as_slice(), hex(SESSION));
    let peer = Peer { process: SERVER.process, ..peer };
    let done = client.handle(&mut accept.as_slice());
    assert_eq!(done, Ok(Step::Done { peer, send: Vec::new() }));
    assert_eq!(client.handle(&mut &[][..]), Err(HandshakeError::Over));
    assert_eq!(server.handle(&mut &[][..]), Err(HandshakeError::Over));
    Session { hello, challenge, proof, accept }
}

fn proof_message(proof: &[u8]) -> Vec<u8> {
    [b"HDGT\x03".as_slice(), proof].concat()
}

#[test]
fn golden_bytes() {
    // Proofs and key were computed by another implementation of HKDF and HMAC.
    let session = session();
    let hello = format!(
        "48444754 01 0002 0002 01 {} 00000003 00000004 {} 00010000 {}",
        "11".repeat(16),
        "C1".repeat(16),
        "C2".repeat(32)
    );
    assert_eq!(session.hello, hex(&hello));
    let challenge = format!(
        "48444754 02 0002 {} 00008000 {} {}",
        "51".repeat(16),
        "52".repeat(32),
        "cbb9de38d94a808b02d9385a2ebd5e87ad7c8b5bba85b63b552fbad1dd98f56a"
    );
    assert_eq!(session.challenge, hex(&challenge));
    let proof = "5a5496a23e77fdb393073f75ec47940040d9a0bf04b61c13df613bf62202bed7";
    assert_eq!(session.proof, proof_message(&hex(proof)));
    assert_eq!(session.accept, hex("48444754 04"));
    assert!(session.hello.len() + session.proof.len() <= MAX_HANDSHAKE_LEN);
    assert!(session.challenge.len() + session.accept.len() <= MAX_HANDSHAKE_LEN);
}

#[test]
fn truncated_at_each_byte_and_one_byte_at_a_time() {
    let session = session();
    let (mut client, _) = client(CLIENT);
    let mut server = server(SERVER);
    let mut trickle = |bytes: &[u8], to_server: bool| {
        let mut last = Ok(Step::NeedMore);
        for byte in bytes {
            assert_eq!(last, Ok(Step::NeedMore), "a message is handled when it is complete");
            let input = &mut std::slice::from_ref(byte);
            last = if to_server { server.handle(input) } else { client.handle(input) };
            assert!(input.is_empty());
        }
        last
    };
    assert_eq!(trickle(&session.hello, true), Ok(Step::Send(session.challenge.clone())));
    assert_eq!(trickle(&session.challenge, false), Ok(Step::Send(session.proof.clone())));
    let accepted = trickle(&session.proof, true);
    assert!(matches!(accepted, Ok(Step::Done { send, .. }) if send == session.accept));
    assert!(matches!(trickle(&session.accept, false), Ok(Step::Done { .. })));
}

#[test]
fn bytes_after_the_handshake_are_not_consumed() {
    let session = session();
    let (mut client, _) = client(CLIENT);
    sent(client.handle(&mut session.challenge.as_slice()));
    let bytes = [session.accept.as_slice(), b"frames"].concat();
    let mut input = bytes.as_slice();
    assert!(matches!(client.handle(&mut input), Ok(Step::Done { .. })));
    assert_eq!(input, b"frames");
}

#[test]
fn both_sides_report_that_they_have_no_common_version() {
    let newer = VersionRange { min: 5, max: 7 };
    let older = VersionRange { min: 1, max: 4 };
    let (mut client, hello) = client(HandshakeConfig { versions: newer, ..CLIENT });
    let error = server(HandshakeConfig { versions: older, ..SERVER })
        .handle(&mut hello.as_slice())
        .unwrap_err();
    assert_eq!(error, HandshakeError::Version { ours: older, theirs: newer });
    let rejection = error.rejection().unwrap();
    assert_eq!(rejection, hex("48444754 05 01 0001 0004"));
    let error = client.handle(&mut rejection.as_slice()).unwrap_err();
    assert_eq!(error, HandshakeError::Version { ours: newer, theirs: older });
    assert_eq!(error.to_string(), "no common protocol version: here 5-7, there 1-4");
}

#[test]
fn the_highest_common_version_is_taken() {
    let versions = |min, max| VersionRange { min, max };
    for (client_range, server_range, want) in [
        (versions(1, 3), versions(2, 5), 3),
        (versions(2, 9), versions(1, 4), 4),
        (versions(2, 2), versions(2, 2), 2),
    ] {
        let (mut client, hello) = client(HandshakeConfig { versions: client_range, ..CLIENT });
        let mut server = server(HandshakeConfig { versions: server_range, ..SERVER });
        let challenge = sent(server.handle(&mut hello.as_slice()));
        let proof = sent(client.handle(&mut challenge.as_slice()));
        let done = server.handle(&mut proof.as_slice());
        assert!(matches!(done, Ok(Step::Done { peer, .. }) if peer.version == want));
    }
    // An empty range has no common version, and a version that was not offered is refused.
    let (_, hello) = client(HandshakeConfig { versions: versions(3, 1), ..CLIENT });
    let step = server(HandshakeConfig { versions: versions(1, 3), ..SERVER })
        .handle(&mut hello.as_slice());
    assert!(matches!(step, Err(HandshakeError::Version { .. })));
    let mut challenge = session().challenge;
    challenge[6] = 3;
    let step = client(CLIENT).0.handle(&mut challenge.as_slice());
    assert!(matches!(step, Err(HandshakeError::Version { .. })));
}

#[test]
fn segments_of_0_bytes_are_refused() {
    let (_, hello) = client(HandshakeConfig { max_segment: 0, ..CLIENT });
    let error = server(SERVER).handle(&mut hello.as_slice()).unwrap_err();
    assert_eq!(error, HandshakeError::ZeroSegment);
    assert_eq!(error.rejection(), Some(hex(REFUSED)));
}

#[test]
fn a_key_prints_nothing() {
    assert_eq!(format!("{:?}", key(&CLIENT)), "Key");
    let text = format!("{:?} {:?}", client(CLIENT).0, server(SERVER));
    // The key begins with 1bff02, the secret with 000102.
    assert!(!text.contains("27, 255, 2"), "{text}");
    assert!(!text.contains("0, 1, 2"), "{text}");
}
