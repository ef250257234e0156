//! A stream under TLS, which never blocks.

use std::io::{self, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::Tls;

/// Bytes of records that wait for the socket, at most, beyond one write.
const UNSENT: usize = 256 << 10;
/// Bytes taken off the socket at once, as rustls asks for 4 KiB at a time.
const READ_AHEAD: usize = 64 << 10;
/// A caller that has room for fewer bytes, as before the peer's proof, takes no more off the socket than rustls asks for.
const READ_AHEAD_FROM: usize = 4 << 10;
/// Label of the exporter that binds the exchange's handshake to the session (RFC 9266).
const BINDING: &[u8] = b"EXPORTER-Channel-Binding";

/// A stream under TLS, over a socket that returns [`ErrorKind::WouldBlock`] rather than wait.
pub(crate) struct TlsStream<S> {
    socket: BufReader<S>,
    session: Connection,
}

impl<S: Read + Write> TlsStream<S> {
    /// The side that dialed.
    pub(crate) fn dialed(socket: S, peer: SocketAddr, tls: &Tls) -> io::Result<Self> {
        let name = ServerName::IpAddress(peer.ip().into());
        let session = ClientConnection::new(tls.configs().client, name);
        Ok(Self::new(socket, session.map_err(invalid)?.into()))
    }

    /// The side that accepted.
    pub(crate) fn accepted(socket: S, tls: &Tls) -> io::Result<Self> {
        let session = ServerConnection::new(tls.configs().server);
        Ok(Self::new(socket, session.map_err(invalid)?.into()))
    }

    fn new(socket: S, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(UNSENT));
        Self { socket: BufReader::with_capacity(READ_AHEAD, socket), session }
    }

    pub(crate) fn socket(&self) -> &S {
        self.socket.get_ref()
    }

    pub(crate) fn socket_mut(&mut self) -> &mut S {
        self.socket.get_mut()
    }

    /// Goes on over another socket, with nothing read ahead.
    pub(super) fn over<T: Read>(self, socket: T) -> TlsStream<T> {
        debug_assert!(self.socket.buffer().is_empty(), "bytes of the other socket are lost");
        TlsStream { socket: BufReader::with_capacity(READ_AHEAD, socket), session: self.session }
    }

    /// Returns bytes that only the two ends of this session know; None until its handshake is done.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        self.session.export_keying_material([0; 32], BINDING, None).ok()
    }

    /// Returns true if records wait for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
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
    pub(crate) fn say_end(&mut self) {
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
                done => return done,
            }
            self.take(ahead)?;
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
