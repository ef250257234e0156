//! TLS whose bytes the caller carries: that of control connections, whose sockets belong to Python.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use crate::endpoint::Tls;
use crate::stream::TlsStream;

/// One end of TLS without I/O: bytes in, bytes out.
pub struct TlsSession(TlsStream<Carried>);

/// Bytes from the peer that have not been read, and bytes that are to be sent to it.
#[derive(Default)]
struct Carried {
    input: VecDeque<u8>,
    output: Vec<u8>,
}

impl TlsSession {
    /// The side that dialed.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn dial(tls: &Tls) -> io::Result<Self> {
        // The name is neither sent nor checked.
        let peer = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self::started(TlsStream::dialed(Carried::default(), peer, tls)?)
    }

    /// The side that accepted.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn accept(tls: &Tls) -> io::Result<Self> {
        Self::started(TlsStream::accepted(Carried::default(), tls)?)
    }

    fn started(mut stream: TlsStream<Carried>) -> io::Result<Self> {
        stream.flush()?;
        Ok(Self(stream))
    }

    /// Takes bytes of the peer, cut anywhere; returns the clear bytes that are complete.
    ///
    /// # Errors
    /// When the bytes are not TLS or were altered. Then the output holds the alert for the peer.
    pub fn receive(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.0.socket_mut().input.extend(bytes);
        let mut clear = Vec::new();
        match self.0.read_to_end(&mut clear) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        self.0.flush()?;
        Ok(clear)
    }

    /// Encrypts bytes into the output.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    /// Takes the bytes to write.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0.socket_mut().output)
    }

    /// Returns bytes that only the two ends of this session know; None until its handshake is done.
    #[must_use]
    pub fn binding(&self) -> Option<[u8; 32]> {
        self.0.binding()
    }

    /// Goes on over a socket of the peer, which must not block.
    pub fn over(self, socket: TcpStream) -> TlsStream<TcpStream> {
        self.0.over(socket)
    }
}

impl Read for Carried {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.input.read(buffer)
    }
}

impl Write for Carried {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
