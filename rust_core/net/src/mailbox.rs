//! Commands to the I/O thread.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headgate_memory::lock;
use headgate_protocol::{ChannelId, PartitionRequest};
use mio::{Registry, Token, Waker};

use crate::channel::{Channel, CreditSink, UpstreamMessage};
use crate::listeners::Listeners;

/// The token of the mailbox's waker. Tokens of connections begin at [`FIRST_CONNECTION`].
pub(crate) const WAKER: Token = Token(0);
pub(crate) const LISTENER: Token = Token(1);
pub(crate) const SAME_HOST_LISTENER: Token = Token(2);
pub(crate) const FIRST_CONNECTION: usize = 3;

/// A request of another thread.
pub enum Command {
    /// Request a subpartition for this channel.
    Open {
        /// The address of its process.
        peer: SocketAddr,
        /// The process that should answer.
        process: [u8; 16],
        /// The consumer's end.
        channel: Arc<dyn Channel>,
        /// The subpartition, and the credit of the channel.
        request: PartitionRequest,
    },
    /// Announce the channel's new credit.
    Credit(Arc<dyn Channel>),
    /// Close the channel.
    Cancel(Arc<dyn Channel>),
    /// Send a message to the channel's producer.
    Tell(Arc<dyn Channel>, UpstreamMessage),
    /// Resume a channel that a barrier blocks.
    Resume(Arc<dyn Channel>),
    /// Open a remote consumer's channel, whose partition now exists.
    PartitionCreated {
        /// The token of its connection.
        connection: usize,
        /// The consumer's number of the channel.
        channel: ChannelId,
    },
    /// Call this once the timeout has passed.
    After {
        /// The time from now on.
        timeout: Duration,
        /// The function.
        call: Box<dyn FnOnce() + Send>,
    },
    /// Send from a subpartition that has data, or report its failure.
    Data {
        /// The token of the consumer's connection.
        connection: usize,
        /// The consumer's number of the channel.
        channel: ChannelId,
    },
    /// Return a buffer that was borrowed over this connection.
    Return {
        /// The token of the connection.
        connection: usize,
        /// The number of the loan.
        loan: u64,
    },
    /// Accept connections on these listeners.
    Listen(Listeners),
    /// Send a goodbye on every connection and end the thread.
    Shutdown,
}

/// A queue of commands that wakes the I/O thread only while it sleeps.
pub struct Mailbox {
    queue: Mutex<Vec<Command>>,
    waker: Waker,
    /// Set by the I/O thread before it checks the queue a last time and sleeps, so a command posted
    /// after that check wakes it.
    asleep: AtomicBool,
}

impl Mailbox {
    /// Creates an empty mailbox that wakes the thread which polls this registry.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new(registry: &Registry) -> std::io::Result<Self> {
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

    /// Requests a subpartition of the process at `peer` for this channel.
    pub fn open(
        &self,
        peer: SocketAddr,
        process: [u8; 16],
        channel: Arc<dyn Channel>,
        request: PartitionRequest,
    ) {
        self.post(Command::Open { peer, process, channel, request });
    }

    /// Calls a function on the I/O thread once the timeout has passed.
    pub fn call_after(&self, timeout: Duration, call: impl FnOnce() + Send + 'static) {
        self.post(Command::After { timeout, call: Box::new(call) });
    }

    /// Moves all commands to `into`.
    pub fn drain(&self, into: &mut Vec<Command>) {
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
    fn credit_available(&self, channel: Arc<dyn Channel>) {
        self.post(Command::Credit(channel));
    }

    fn cancel(&self, channel: Arc<dyn Channel>) {
        self.post(Command::Cancel(channel));
    }

    fn resume(&self, channel: Arc<dyn Channel>) {
        self.post(Command::Resume(channel));
    }

    fn tell(&self, channel: Arc<dyn Channel>, message: UpstreamMessage) {
        self.post(Command::Tell(channel, message));
    }
}
