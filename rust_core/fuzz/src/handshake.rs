//! Both sides of the handshake, on data connections and on control connections.

use headgate_protocol::{
    ClientHandshake, HandshakeConfig, HandshakeError, Key, MAX_HANDSHAKE_LEN, ServerHandshake,
    Step, VersionRange,
};

use crate::input::{pieces, take};

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

/// Checks that the steps do not depend on how the bytes are cut, that nothing follows the end, and
/// that no side reads more than the limit.
///
/// The bytes: flags (1 for the client, 2 for a control connection), number of sizes, sizes of pieces,
/// stream.
pub fn handshake(data: &[u8]) {
    let ([flags, sizes], rest) = take(data);
    let (sizes, stream) = rest.split_at(usize::from(sizes).min(rest.len()));
    let key = key_of(flags & 2 != 0);
    let side: fn(Key) -> Handle = if flags & 1 == 0 { server } else { client };
    let whole = steps(side(key.clone()), std::iter::once(stream));
    assert_eq!(steps(side(key), pieces(stream, sizes)), whole);
    let requested = ServerHandshake::requested_exchange(stream, VersionRange::SUPPORTED);
    if let Ok(Some(exchange)) = requested {
        assert_eq!(exchange, stream[10..26]);
    }
}

/// The bytes that an honest client sends, on a data or a control connection.
#[must_use]
pub fn client_session(is_control: bool) -> Vec<u8> {
    let key = key_of(is_control);
    let (mut client, hello) = start_client(key.clone());
    let mut server = start_server(key);
    let challenge = sent(server.handle(&mut hello.as_slice()));
    let proof = sent(client.handle(&mut challenge.as_slice()));
    [hello, proof].concat()
}

/// The bytes that an honest server sends, on a data or a control connection.
#[must_use]
pub fn server_session(is_control: bool) -> Vec<u8> {
    let key = key_of(is_control);
    let (mut client, hello) = start_client(key.clone());
    let mut server = start_server(key);
    let challenge = sent(server.handle(&mut hello.as_slice()));
    let proof = sent(client.handle(&mut challenge.as_slice()));
    let accept = sent(server.handle(&mut proof.as_slice()));
    [challenge, accept].concat()
}

type Handle = Box<dyn FnMut(&mut &[u8]) -> Result<Step, HandshakeError>>;

/// Returns the steps of one side and the error that ended them.
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
                    assert!(piece.is_empty(), "the handshake needs more bytes and left some");
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

fn key_of(is_control: bool) -> Key {
    if is_control {
        Key::control(&[7; 32], &CLIENT.exchange)
    } else {
        Key::derive(&[7; 32], &CLIENT.exchange, CLIENT.run, CLIENT.epoch)
    }
}

fn start_client(key: Key) -> (ClientHandshake, Vec<u8>) {
    ClientHandshake::start(key, CLIENT, [0xC2; 32])
}

fn start_server(key: Key) -> ServerHandshake {
    ServerHandshake::new(key, SERVER, [0x52; 32])
}

fn client(key: Key) -> Handle {
    let (mut client, _) = start_client(key);
    Box::new(move |input| client.handle(input))
}

fn server(key: Key) -> Handle {
    let mut server = start_server(key);
    Box::new(move |input| server.handle(input))
}

fn sent(step: Result<Step, HandshakeError>) -> Vec<u8> {
    match step {
        Ok(Step::Send(bytes) | Step::Done { send: bytes, .. }) => bytes,
        other => panic!("an honest session sends bytes, not {other:?}"),
    }
}
