//! Both sides of the handshake.

use headgate_protocol::{
    ClientHandshake, HandshakeConfig, HandshakeError, Key, MAX_HANDSHAKE_LEN, ServerHandshake,
    Step, VersionRange,
};

const CLIENT: HandshakeConfig = HandshakeConfig {
    exchange: [0x11; 16],
    run: 3,
    epoch: 4,
    process: [0xC1; 16],
    max_segment: 65_536,
    versions: VersionRange::SUPPORTED,
};
const SERVER: HandshakeConfig =
    HandshakeConfig { process: [0x51; 16], max_segment: 32_768, ..CLIENT };

/// The same steps however the bytes are cut; nothing after the end; no more than the limit is read.
///
/// The bytes: 1 for the client, how many sizes follow, sizes of pieces, stream.
pub fn handshake(data: &[u8]) {
    let ([flags, sizes], rest) = crate::take(data);
    let (sizes, stream) = rest.split_at(usize::from(sizes).min(rest.len()));
    let side: fn() -> Handle = if flags & 1 == 0 { server } else { client };
    let whole = steps(side(), std::iter::once(stream));
    assert_eq!(steps(side(), crate::pieces(stream, sizes)), whole);
}

/// What an honest client sends.
#[must_use]
pub fn client_session() -> Vec<u8> {
    let (mut client, hello) = start_client();
    let mut server = start_server();
    let challenge = sent(server.handle(&mut hello.as_slice()));
    let proof = sent(client.handle(&mut challenge.as_slice()));
    [hello, proof].concat()
}

/// What an honest server sends.
#[must_use]
pub fn server_session() -> Vec<u8> {
    let (mut client, hello) = start_client();
    let mut server = start_server();
    let challenge = sent(server.handle(&mut hello.as_slice()));
    let proof = sent(client.handle(&mut challenge.as_slice()));
    let accept = sent(server.handle(&mut proof.as_slice()));
    [challenge, accept].concat()
}

type Handle = Box<dyn FnMut(&mut &[u8]) -> Result<Step, HandshakeError>>;

/// Everything said by one side, and how it ended.
fn steps<'a>(
    mut handle: Handle,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Step>, Option<HandshakeError>) {
    let (mut steps, mut read) = (Vec::new(), 0);
    for mut piece in pieces {
        loop {
            let before = piece.len();
            let step = handle(&mut piece);
            read += before - piece.len();
            assert!(read <= MAX_HANDSHAKE_LEN, "{read} bytes were read");
            match step {
                Ok(Step::NeedMore) => {
                    assert!(piece.is_empty(), "it wants more and leaves some");
                    break;
                }
                Ok(Step::Send(bytes)) => steps.push(Step::Send(bytes)),
                Ok(done) => {
                    steps.push(done);
                    assert_eq!(handle(&mut &[][..]), Err(HandshakeError::Over));
                    return (steps, None);
                }
                Err(error) => {
                    assert_eq!(handle(&mut &[][..]), Err(HandshakeError::Over));
                    return (steps, Some(error));
                }
            }
        }
    }
    (steps, None)
}

fn key() -> Key {
    Key::derive(&[7; 32], &CLIENT.exchange, CLIENT.run, CLIENT.epoch)
}

fn start_client() -> (ClientHandshake, Vec<u8>) {
    ClientHandshake::start(key(), CLIENT, [0xC2; 32])
}

fn start_server() -> ServerHandshake {
    ServerHandshake::new(key(), SERVER, [0x52; 32])
}

fn client() -> Handle {
    let (mut client, _) = start_client();
    Box::new(move |input| client.handle(input))
}

fn server() -> Handle {
    let mut server = start_server();
    Box::new(move |input| server.handle(input))
}

fn sent(step: Result<Step, HandshakeError>) -> Vec<u8> {
    match step {
        Ok(Step::Send(bytes) | Step::Done { send: bytes, .. }) => bytes,
        other => panic!("an honest session sends something: {other:?}"),
    }
}
