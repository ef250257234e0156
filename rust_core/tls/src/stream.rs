//! A stream under TLS, which never blocks.

use std::io::{self, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::endpoint::Tls;

/// Bytes of records that wait for the socket, at most, beyond one write.
const UNSENT: usize = 256 << 10;
/// Bytes taken off the socket at once, as rustls asks for 4 KiB at a time.
const READ_AHEAD: usize = 64 << 10;
/// A caller that has room for fewer bytes, as before the peer's proof, takes no more off the socket than rustls asks for.
const READ_AHEAD_FROM: usize = 4 << 10;
/// Bytes that may come without content: more than a handshake with the longest chain of certificates.
const OVERHEAD: usize = 128 << 10;
/// Bytes that each byte of content may take besides: a record of one byte has 23.
const OVERHEAD_OF_BYTE: usize = 32;
/// Label of the exporter that binds the exchange's handshake to the session (RFC 9266).
const BINDING: &[u8] = b"EXPORTER-Channel-Binding";

/// A stream under TLS, over a socket that returns [`ErrorKind::WouldBlock`] rather than wait.
pub struct TlsStream<S> {
    socket: BufReader<S>,
    session: Connection,
    /// Bytes taken in, less those that the content so far may take. The session alone would take tickets of
    /// a server in without end, and the I/O thread with them.
    overhead: usize,
}

impl<S: Read + Write> TlsStream<S> {
    /// The side that dialed.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn dialed(socket: S, peer: SocketAddr, tls: &Tls) -> io::Result<Self> {
        let name = ServerName::IpAddress(peer.ip().into());
        let session = ClientConnection::new(tls.configs().client, name);
        Ok(Self::new(socket, session.map_err(invalid)?.into()))
    }

    /// The side that accepted.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn accepted(socket: S, tls: &Tls) -> io::Result<Self> {
        let session = ServerConnection::new(tls.configs().server);
        Ok(Self::new(socket, session.map_err(invalid)?.into()))
    }

    fn new(socket: S, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(UNSENT));
        Self { socket: BufReader::with_capacity(READ_AHEAD, socket), session, overhead: 0 }
    }

    /// Returns the socket.
    pub fn socket(&self) -> &S {
        self.socket.get_ref()
    }

    /// Returns the socket. What is read off it, or written to it, is not TLS any more.
    pub fn socket_mut(&mut self) -> &mut S {
        self.socket.get_mut()
    }

    /// Goes on over another socket, with nothing read ahead.
    pub(crate) fn over<T: Read>(self, socket: T) -> TlsStream<T> {
        debug_assert!(self.socket.buffer().is_empty(), "bytes of the other socket are lost");
        let Self { session, overhead, .. } = self;
        TlsStream { socket: BufReader::with_capacity(READ_AHEAD, socket), session, overhead }
    }

    /// Returns bytes that only the two ends of this session know; None until its handshake is done.
    pub fn binding(&self) -> Option<[u8; 32]> {
        self.session.export_keying_material([0; 32], BINDING, None).ok()
    }

    /// Returns true if records wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Takes bytes of the peer in.
    fn take(&mut self, ahead: bool) -> io::Result<usize> {
        if ahead || !self.socket.buffer().is_empty() {
            self.session.read_tls(&mut self.socket)
        } else {
            self.session.read_tls(self.socket.get_mut())
        }
    }

    /// Tells the peer that nothing follows, so that it can tell this end from a cut.
    pub fn say_end(&mut self) {
        self.session.send_close_notify();
        // The socket may be full or broken, and the peer then sees a cut.
        let _ = self.flush();
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let ahead = slices.iter().map(|slice| slice.len()).sum::<usize>() >= READ_AHEAD_FROM;
        loop {
            // An end without the peer's notice is an error, since anyone can cut a TCP connection.
            match self.session.reader().read_vectored(slices) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    self.overhead = self.overhead.saturating_sub(count * OVERHEAD_OF_BYTE);
                    return Ok(count);
                }
            }
            if self.overhead > OVERHEAD {
                let taken = self.overhead;
                let text = format!("the peer sent {taken} bytes of TLS with hardly any content");
                return Err(invalid(rustls::Error::General(text)));
            }
            self.overhead += self.take(ahead)?;
            if let Err(error) = self.session.process_new_packets() {
                // The alert tells the peer the reason, if the socket takes it.
                let _ = self.flush();
                return Err(invalid(error));
            }
        }
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Only a socket that has taken all records makes room for more.
        self.flush()?;
        match self.session.writer().write_vectored(slices)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// Writes the records that wait.
    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(self.socket.get_mut())?;
        }
        Ok(())
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
    use rustls::crypto::ring::cipher_suite::TLS13_AES_256_GCM_SHA384;
    use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion, SupportedCipherSuite};

    use super::*;

    /// Bytes after which a stream counts as reading without end.
    const ENDLESS: usize = 4 << 20;

    /// A peer's end of a socket.
    enum Peer {
        /// Says this, and waits.
        Said(VecDeque<u8>),
        /// Says the next bytes whenever there is nothing left.
        Floods { said: VecDeque<u8>, next: Box<dyn FnMut() -> Vec<u8>> },
    }

    /// A socket of this process; what is written to it is kept.
    struct Socket {
        peer: Peer,
        written: Vec<u8>,
        /// Bytes read from the peer.
        taken: usize,
    }

    impl Socket {
        fn of(peer: Peer) -> Self {
            Self { peer, written: Vec::new(), taken: 0 }
        }

        fn flooded(next: impl FnMut() -> Vec<u8> + 'static) -> Self {
            Self::of(Peer::Floods { said: VecDeque::new(), next: Box::new(next) })
        }
    }

    impl Read for Socket {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let said = match &mut self.peer {
                Peer::Said(said) if said.is_empty() => return Err(ErrorKind::WouldBlock.into()),
                Peer::Said(said) => said,
                Peer::Floods { said, next } => {
                    while said.len() < buffer.len() {
                        said.extend(next());
                    }
                    said
                }
            };
            let count = said.read(buffer)?;
            self.taken += count;
            assert!(self.taken < ENDLESS, "the stream reads without end");
            Ok(count)
        }
    }

    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn accepted(socket: Socket) -> TlsStream<Socket> {
        TlsStream::accepted(socket, &Tls::ephemeral().expect("random bytes")).expect("its own key")
    }

    /// Reads from a flood until an error; returns it and the bytes that the flood could place.
    fn drown(stream: &mut TlsStream<Socket>, room: usize) -> (String, usize) {
        let before = stream.socket().taken;
        let mut buffer = vec![0; room];
        let error = loop {
            match stream.read(&mut buffer) {
                Ok(count) => assert_ne!(count, 0, "a flood has no end"),
                Err(error) => break error,
            }
        };
        (error.to_string(), stream.socket().taken - before)
    }

    /// A record in the clear.
    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).expect("a record is short");
        [&[kind, 3, 3], &length.to_be_bytes()[..], body].concat()
    }

    const CHANGE_OF_CIPHER: u8 = 20;
    const ALERT: u8 = 21;
    const HANDSHAKE: u8 = 22;
    const DATA: u8 = 23;
    const CLIENT_HELLO: u8 = 1;

    /// Room of a caller before the proof, and behind it.
    const ROOMS: [usize; 2] = [512, 1 << 20];

    #[test]
    fn floods_before_the_session_end_within_a_bounded_number_of_bytes() {
        type Flood = (&'static str, fn() -> Box<dyn FnMut() -> Vec<u8>>);
        let floods: [Flood; 8] = [
            ("noise", || {
                let mut random = fastrand::Rng::with_seed(1);
                Box::new(move || std::iter::repeat_with(|| random.u8(..)).take(1000).collect())
            }),
            ("handshake records of noise", || {
                let mut random = fastrand::Rng::with_seed(2);
                Box::new(move || {
                    let noise: Vec<u8> =
                        std::iter::repeat_with(|| random.u8(..)).take(1000).collect();
                    record(HANDSHAKE, &noise)
                })
            }),
            ("a message of the largest size", || {
                let mut head = Some([CLIENT_HELLO, 0xFF, 0xFF, 0xFF].as_slice());
                Box::new(move || record(HANDSHAKE, head.take().unwrap_or(&[0; 16_000])))
            }),
            ("a message of 65,535 bytes", || {
                let mut head = Some([CLIENT_HELLO, 0, 0xFF, 0xFF].as_slice());
                Box::new(move || record(HANDSHAKE, head.take().unwrap_or(&[0; 16_000])))
            }),
            ("a message in records of a byte", || {
                let mut head = Some([CLIENT_HELLO, 0, 0xFF, 0xFF].as_slice());
                Box::new(move || record(HANDSHAKE, head.take().unwrap_or(&[0])))
            }),
            ("empty records", || Box::new(|| record(HANDSHAKE, &[]))),
            ("changes of cipher", || Box::new(|| record(CHANGE_OF_CIPHER, &[1]))),
            ("warnings", || Box::new(|| record(ALERT, &[1, 90]))),
        ];
        for (name, flood) in floods {
            for room in ROOMS {
                let mut stream = accepted(Socket::flooded(flood()));
                let (error, taken) = drown(&mut stream, room);
                assert!(taken <= OVERHEAD + READ_AHEAD, "{name}: {taken} bytes, {error}");
                assert_eq!(stream.binding(), None, "{name}");
                // Closing the connection reads what is left, and finds the error again.
                let (again, more) = drown(&mut stream, room);
                assert!(more <= READ_AHEAD, "{name}: {more} bytes after {error}, {again}");
            }
        }
    }

    #[test]
    fn data_before_the_session_is_refused_at_its_first_record() {
        let mut stream = accepted(Socket::flooded(|| record(DATA, &[7; 1000])));
        let (error, taken) = drown(&mut stream, 512);
        assert!(error.contains("ApplicationData"), "{error}");
        assert!(taken <= READ_AHEAD, "{taken} bytes");
    }

    /// Encrypts records of an end whose session is done.
    struct Sealer {
        encrypter: Box<dyn MessageEncrypter>,
        sequence: u64,
    }

    impl Sealer {
        fn seal(&mut self, kind: ContentType, content: &[u8]) -> Vec<u8> {
            let version = ProtocolVersion::TLSv1_3;
            let payload = OutboundChunks::Single(content);
            let message = OutboundPlainMessage { typ: kind, version, payload };
            let sealed = self.encrypter.encrypt(message, self.sequence).expect("a short record");
            self.sequence += 1;
            sealed.encode()
        }
    }

    /// Does the handshake of TLS; returns the end that dialed and the one that accepted.
    fn session() -> [TlsStream<Socket>; 2] {
        let mut configs = Tls::ephemeral().expect("random bytes").configs();
        Arc::get_mut(&mut configs.client).expect("not shared yet").enable_secret_extraction = true;
        Arc::get_mut(&mut configs.server).expect("not shared yet").enable_secret_extraction = true;
        let none = || Socket::of(Peer::Said(VecDeque::new()));
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let client = ClientConnection::new(configs.client, name).expect("random bytes");
        let server = ServerConnection::new(configs.server).expect("random bytes");
        let (client, server) =
            (TlsStream::new(none(), client.into()), TlsStream::new(none(), server.into()));
        let mut ends = [client, server];
        for turn in 0..6 {
            let said = {
                let from = &mut ends[turn % 2];
                from.flush().expect("it keeps all");
                std::mem::take(&mut from.socket_mut().written)
            };
            let to = &mut ends[1 - turn % 2];
            to.socket_mut().peer = Peer::Said(said.into());
            let waits = to.read(&mut [0; 512]).expect_err("no data");
            assert_eq!(waits.kind(), ErrorKind::WouldBlock, "{waits}");
        }
        assert!(ends.iter().all(|end| end.binding().is_some()));
        ends
    }

    /// Takes the place of one end of a session.
    fn sealer(end: TlsStream<Socket>) -> Sealer {
        let secrets = end.session.dangerous_extract_secrets().expect("asked for");
        let (sequence, ConnectionTrafficSecrets::Aes256Gcm { key, iv }) = secrets.tx else {
            panic!("another cipher");
        };
        let SupportedCipherSuite::Tls13(suite) = TLS13_AES_256_GCM_SHA384;
        Sealer { encrypter: suite.aead_alg.encrypter(key, iv), sequence }
    }

    /// A consumer whose session is done, and the records of a producer that says this again and again.
    fn dialed_flood(kind: ContentType, content: Vec<u8>) -> TlsStream<Socket> {
        let [mut client, server] = session();
        let mut sealer = sealer(server);
        client.socket_mut().peer = Socket::flooded(move || sealer.seal(kind, &content)).peer;
        client
    }

    /// A producer whose session is done, and the records of a consumer that says this again and again.
    fn accepted_flood(kind: ContentType, content: Vec<u8>) -> TlsStream<Socket> {
        let [client, mut server] = session();
        let mut sealer = sealer(client);
        server.socket_mut().peer = Socket::flooded(move || sealer.seal(kind, &content)).peer;
        server
    }

    /// Anyone can have a session, so its records are no proof.
    #[test]
    fn records_without_content_end_the_stream_within_a_bounded_number_of_bytes() {
        // A ticket for a later session: lifetime, a number, no nonce, one byte of the ticket, no extensions.
        let ticket = [4, 0, 0, 14, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0];
        let new_keys = [24, 0, 0, 1, 1];
        type Flooded = fn(ContentType, Vec<u8>) -> TlsStream<Socket>;
        let cases: [(&str, Flooded, ContentType, Vec<u8>); 5] = [
            ("nothing to a producer", accepted_flood, ContentType::ApplicationData, vec![]),
            ("nothing to a consumer", dialed_flood, ContentType::ApplicationData, vec![]),
            ("new keys to a producer", accepted_flood, ContentType::Handshake, new_keys.to_vec()),
            ("a ticket to a producer", accepted_flood, ContentType::Handshake, ticket.to_vec()),
            ("tickets to a consumer", dialed_flood, ContentType::Handshake, ticket.repeat(800)),
        ];
        for (name, flooded, kind, content) in cases {
            for room in ROOMS {
                let mut stream = flooded(kind, content.clone());
                let (error, taken) = drown(&mut stream, room);
                assert!(taken <= OVERHEAD + READ_AHEAD, "{name}: {taken} bytes, {error}");
                let (again, more) = drown(&mut stream, room);
                assert!(more <= READ_AHEAD, "{name}: {more} bytes after {error}, {again}");
            }
        }
        let mut stream = dialed_flood(ContentType::Handshake, ticket.repeat(800));
        let error = drown(&mut stream, 512).0;
        assert!(error.contains("hardly any content"), "{error}");
    }

    /// The first message of an end that dials.
    fn greeting() -> Vec<u8> {
        let peer = (Ipv4Addr::LOCALHOST, 1).into();
        let tls = Tls::ephemeral().expect("random bytes");
        let mut end = TlsStream::dialed(Socket::of(Peer::Said(VecDeque::new())), peer, &tls)
            .expect("its own key");
        end.flush().expect("it keeps all");
        // Behind the head of the record.
        end.socket().written[5..].to_vec()
    }

    /// TLS 1.3 has no renegotiation: who asks for one is disconnected at once.
    #[test]
    fn a_second_handshake_in_a_session_is_refused_at_its_first_record() {
        let hello_request = vec![0, 0, 0, 0];
        // No context, no extensions.
        let certificate_request = vec![13, 0, 0, 3, 0, 0, 0];
        type Flooded = fn(ContentType, Vec<u8>) -> TlsStream<Socket>;
        let cases: [(&str, Flooded, Vec<u8>); 5] = [
            ("a greeting to a producer", accepted_flood, greeting()),
            ("a greeting to a consumer", dialed_flood, greeting()),
            ("a request for a greeting to a producer", accepted_flood, hello_request.clone()),
            ("a request for a greeting to a consumer", dialed_flood, hello_request),
            ("a request for a certificate", dialed_flood, certificate_request),
        ];
        for (name, flooded, content) in cases {
            let mut stream = flooded(ContentType::Handshake, content);
            let (error, taken) = drown(&mut stream, 512);
            assert!(taken <= READ_AHEAD, "{name}: {taken} bytes, {error}");
            assert!(!error.contains("hardly any content"), "{name}: {error}");
        }
    }

    /// An honest peer's smallest writes are never too much.
    #[test]
    fn records_of_a_byte_pass_without_end() {
        for mut stream in
            [accepted_flood, dialed_flood].map(|it| it(ContentType::ApplicationData, vec![9]))
        {
            let mut got = 0;
            while stream.socket().taken < 4 * OVERHEAD {
                got += stream.read(&mut [0; 512]).expect("content");
            }
            assert!(got > OVERHEAD / 8, "{got} bytes");
        }
    }
}
