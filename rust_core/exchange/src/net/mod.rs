//! Moving buffers between processes: one I/O thread, one connection per pair of processes.
//!
//! ```text
//!   threads of the user                I/O thread
//!   subpartition.add -- Mailbox -->  Driver --> Peers --> Connection --> Serve   (producer's end, spec 9.4)
//!   channel.offer    -- Mailbox -->                                 \-> Fetch   (consumer's end, spec 9.5)
//! ```
//!
//! Everything about connections lives on the I/O thread; other threads only post commands. The
//! I/O thread never blocks on a lock that is held across a system call, and never touches Python.

mod borrowing;
mod client;
mod connection;
mod driver;
mod fetch;
mod lease;
mod link;
mod loans;
mod mailbox;
mod outbox;
mod peer_error;
mod peers;
mod requests;
mod same_host;
mod sending;
mod serve;
mod sockets;
mod task_event;
mod tcp;
mod traffic;
mod wire_error;

#[cfg(test)]
mod simulator;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use headgate_protocol::{HandshakeConfig, Key};

use crate::copies::Copies;
use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::manager::PartitionManager;
use crate::panic_text::panic_text;

#[cfg(test)]
pub(crate) use link::Link;
pub use loans::LentStats;
pub(crate) use loans::Loans;
pub(crate) use mailbox::{Command, Mailbox};
#[cfg(test)]
pub(crate) use peers::Peers;
pub use traffic::Connections;
pub(crate) use traffic::Traffic;

/// Where others connect: over TCP, and beside that within the host.
pub(crate) struct Listeners {
    pub(crate) tcp: TcpListener,
    pub(crate) same_host: Option<UnixListener>,
}

impl Listeners {
    /// Listens beside TCP too, unless that is not wanted or cannot be.
    pub(crate) fn new(tcp: TcpListener, same_host: bool) -> std::io::Result<Self> {
        tcp.set_nonblocking(true)?;
        let address = tcp.local_addr()?;
        let same_host = if same_host { same_host::listen(address) } else { None };
        Ok(Self { tcp, same_host })
    }
}

/// What every connection of the environment shares; fixed at its start.
pub(crate) struct Context {
    pub(crate) key: Key,
    pub(crate) handshake: HandshakeConfig,
    pub(crate) partitions: Arc<PartitionManager>,
    /// As in [`Config`](crate::Config).
    pub(crate) partition_request_timeout: Duration,
    /// As in [`Config`](crate::Config).
    pub(crate) idle_timeout: Duration,
    /// As in [`Config`](crate::Config).
    pub(crate) same_host_link: bool,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) copies: Arc<Copies>,
    pub(crate) loans: Arc<Loans>,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// The I/O thread and the way to reach it.
pub(crate) struct Network {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) address: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Starts the I/O thread; with a listener if others are to connect.
    pub(crate) fn start(
        listeners: Option<Listeners>,
        make: impl FnOnce(Arc<Mailbox>) -> Context,
        on_panic: impl FnOnce(ExchangeError) + Send + 'static,
    ) -> Result<Self> {
        let address = listeners.as_ref().and_then(|listeners| listeners.tcp.local_addr().ok());
        let io = |error: std::io::Error| {
            let exhausted = descriptors::exhausted("cannot start the I/O thread", &error);
            exhausted.unwrap_or_else(|| ExchangeError::Memory(error.to_string()))
        };
        let poll = mio::Poll::new().map_err(io)?;
        let mailbox = Arc::new(Mailbox::new(poll.registry()).map_err(io)?);
        let context = make(Arc::clone(&mailbox));
        let driver = driver::Driver::new(poll, listeners, context).map_err(io)?;
        let thread = std::thread::Builder::new()
            .name("headgate-io".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || {
                let body = std::panic::AssertUnwindSafe(move || driver.run());
                if let Err(panic) = std::panic::catch_unwind(body) {
                    let text = panic_text(&*panic);
                    on_panic(ExchangeError::Internal(format!("the I/O thread panicked: {text}")));
                }
            })
            .map_err(io)?;
        Ok(Self { mailbox, address, thread: Some(thread) })
    }

    /// Without a thread: whoever calls this drives the connections.
    #[cfg(test)]
    pub(crate) fn by_hand(mailbox: Arc<Mailbox>, address: SocketAddr) -> Self {
        Self { mailbox, address: Some(address), thread: None }
    }

    /// Listens as well, from now on.
    pub(crate) fn listen(&mut self, listeners: Listeners, address: SocketAddr) {
        self.address = Some(address);
        self.mailbox.post(Command::Listen(listeners));
    }

    /// Says goodbye on every connection and waits for the thread.
    pub(crate) fn stop(&mut self) {
        self.mailbox.post(Command::Shutdown);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported to every gate and partition already.
            let _ = thread.join();
        }
    }
}
