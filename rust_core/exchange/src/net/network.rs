//! The I/O thread: its start, its panic and its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::net::context::Context;
use crate::net::driver::Driver;
use crate::net::listeners::Listeners;
use crate::net::mailbox::{Command, Mailbox};
use crate::panic_text::panic_text;
use crate::threads;

/// The I/O thread of an environment, and its mailbox.
pub(crate) struct Network {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) address: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Starts the I/O thread, with listeners if peers are to connect.
    pub(crate) fn start(
        listeners: Option<Listeners>,
        make: impl FnOnce(Arc<Mailbox>) -> Context,
        on_panic: impl FnOnce(ExchangeError) + Send + 'static,
    ) -> Result<Self> {
        let address = listeners.as_ref().and_then(|listeners| listeners.tcp.local_addr().ok());
        let io = |error| descriptors::refused("cannot start the I/O thread", error);
        let poll = mio::Poll::new().map_err(io)?;
        let mailbox = Arc::new(Mailbox::new(poll.registry()).map_err(io)?);
        let context = make(Arc::clone(&mailbox));
        let driver = Driver::new(poll, listeners, context).map_err(io)?;
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
            .map_err(|error| threads::refused("I/O thread headgate-io", error))?;
        Ok(Self { mailbox, address, thread: Some(thread) })
    }

    /// Starts no thread: the caller drives the connections.
    #[cfg(test)]
    pub(crate) fn by_hand(mailbox: Arc<Mailbox>, address: SocketAddr) -> Self {
        Self { mailbox, address: Some(address), thread: None }
    }

    /// Adds listeners to a running I/O thread.
    pub(crate) fn listen(&mut self, listeners: Listeners, address: SocketAddr) {
        self.address = Some(address);
        self.mailbox.post(Command::Listen(listeners));
    }

    /// Says goodbye on every connection and waits for the thread.
    pub(crate) fn stop(&mut self) {
        self.mailbox.post(Command::Shutdown);
        if let Some(thread) = self.thread.take() {
            // `on_panic` has already reported a panic to every gate and partition.
            let _ = thread.join();
        }
    }
}
