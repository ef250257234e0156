//! Commands to the I/O thread.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headgate_protocol::{ChannelId, PartitionId, PartitionRequest};
use mio::{Registry, Token, Waker};

use crate::gate::{CreditSink, LocalRequest, RemoteChannel, UpstreamMessage};
use crate::lock::lock;
use crate::net::listeners::Listeners;
use crate::view::DataListener;

/// The token of the mailbox's waker. Tokens of connections begin at [`FIRST_CONNECTION`].
pub(crate) const WAKER: Token = Token(0);
pub(crate) const LISTENER: Token = Token(1);
pub(crate) const SAME_HOST_LISTENER: Token = Token(2);
pub(crate) const FIRST_CONNECTION: usize = 3;

/// A request of another thread.
pub(crate) enum Command {
    /// Request a subpartition for this channel.
    Open {
        peer: SocketAddr,
        process: [u8; 16],
        channel: Arc<RemoteChannel>,
        request: PartitionRequest,
    },
    /// Announce the channel's new credit.
    Credit(Arc<RemoteChannel>),
    /// Close the channel.
    Cancel(Arc<RemoteChannel>),
    /// Send a message to the channel's producer.
    Tell(Arc<RemoteChannel>, UpstreamMessage),
    /// Resume a channel that a barrier blocks.
    Resume(Arc<RemoteChannel>),
    /// Open a remote consumer's channel, whose partition now exists.
    PartitionCreated { connection: usize, channel: ChannelId },
    /// Fail a local channel's request unless its partition appears within the timeout.
    AwaitPartition { timeout: Duration, id: PartitionId, request: Arc<LocalRequest> },
    /// Send from a subpartition that has data, or report its failure.
    Data { connection: usize, channel: ChannelId },
    /// Return a buffer that was borrowed over this connection.
    Return { connection: usize, loan: u64 },
    /// Accept connections on these listeners.
    Listen(Listeners),
    /// Send a goodbye on every connection and end the thread.
    Shutdown,
}

/// A queue of commands that wakes the I/O thread only while it sleeps.
pub(crate) struct Mailbox {
    queue: Mutex<Vec<Command>>,
    waker: Waker,
    /// Set by the I/O thread before it checks the queue a last time and sleeps, so a command posted
    /// after that check wakes it.
    asleep: AtomicBool,
}

impl Mailbox {
    pub(crate) fn new(registry: &Registry) -> std::io::Result<Self> {
        Ok(Self {
            queue: Mutex::default(),
            waker: Waker::new(registry, WAKER)?,
            asleep: AtomicBool::new(false),
        })
    }

    pub(crate) fn post(&self, command: Command) {
        lock(&self.queue).push(command);
        if self.asleep.swap(false, Ordering::AcqRel) {
            // Fails only after the I/O thread has ended and closed the eventfd.
            let _ = self.waker.wake();
        }
    }

    /// Moves all commands to `into`.
    pub(crate) fn drain(&self, into: &mut Vec<Command>) {
        into.append(&mut lock(&self.queue));
    }

    /// Prepares to sleep; returns true if the queue is empty, so that the I/O thread may sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        let empty = lock(&self.queue).is_empty();
        if !empty {
            self.asleep.store(false, Ordering::Release);
        }
        empty
    }

    pub(crate) fn woke(&self) {
        self.asleep.store(false, Ordering::Release);
    }
}

impl CreditSink for Mailbox {
    fn credit_available(&self, channel: Arc<RemoteChannel>) {
        self.post(Command::Credit(channel));
    }

    fn cancel(&self, channel: Arc<RemoteChannel>) {
        self.post(Command::Cancel(channel));
    }

    fn resume(&self, channel: Arc<RemoteChannel>) {
        self.post(Command::Resume(channel));
    }

    fn tell(&self, channel: Arc<RemoteChannel>, message: UpstreamMessage) {
        self.post(Command::Tell(channel, message));
    }
}

/// Notifies the I/O thread of data in a subpartition that it serves.
pub(crate) struct ToMailbox {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) connection: usize,
    pub(crate) channel: ChannelId,
    /// True if buffers are lent to the peer, which takes none in pieces.
    pub(crate) lends: bool,
}

impl DataListener for ToMailbox {
    fn takes_pieces(&self) -> bool {
        !self.lends
    }

    fn data_available(&self) {
        let (connection, channel) = (self.connection, self.channel);
        self.mailbox.post(Command::Data { connection, channel });
    }
}
