//! The I/O thread: its start, its panic and its end.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::context::Context;
use crate::driver::Driver;
use crate::listeners::Listeners;
use crate::mailbox::{Command, Mailbox};

/// The I/O thread of an environment, and its mailbox.
pub struct Network {
    /// The queue of commands to the thread.
    pub mailbox: Arc<Mailbox>,
    /// The address that peers connect to; none without listeners.
    pub address: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

/// The operating system does not let the I/O thread start.
#[derive(Debug)]
pub enum StartError {
    /// It refused a descriptor that the thread needs.
    Descriptors(io::Error),
    /// It refused the thread.
    Thread(io::Error),
}

impl Network {
    /// Starts the I/O thread, with listeners if peers are to connect. A panic ends the thread, and is handed to
    /// `on_panic`.
    ///
    /// # Errors
    /// The operating system's.
    pub fn start(
        listeners: Option<Listeners>,
        make: impl FnOnce(Arc<Mailbox>) -> Context,
        on_panic: impl FnOnce(&(dyn Any + Send)) + Send + 'static,
    ) -> Result<Self, StartError> {
        let address = listeners.as_ref().and_then(|listeners| listeners.tcp.local_addr().ok());
        let poll = mio::Poll::new().map_err(StartError::Descriptors)?;
        let mailbox = Mailbox::new(poll.registry()).map_err(StartError::Descriptors)?;
        let mailbox = Arc::new(mailbox);
        let context = make(Arc::clone(&mailbox));
        let driver = Driver::new(poll, listeners, context).map_err(StartError::Descriptors)?;
        let thread = std::thread::Builder::new()
            .name("headgate-io".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || {
                let body = std::panic::AssertUnwindSafe(move || driver.run());
                if let Err(panic) = std::panic::catch_unwind(body) {
                    on_panic(&*panic);
                }
            })
            .map_err(StartError::Thread)?;
        Ok(Self { mailbox, address, thread: Some(thread) })
    }

    /// Starts no thread: the caller drives the connections.
    #[cfg(feature = "simulation")]
    pub fn by_hand(mailbox: Arc<Mailbox>, address: SocketAddr) -> Self {
        Self { mailbox, address: Some(address), thread: None }
    }

    /// Adds listeners to a running I/O thread.
    pub fn listen(&mut self, listeners: Listeners, address: SocketAddr) {
        self.address = Some(address);
        self.mailbox.post(Command::Listen(listeners));
    }

    /// Says goodbye on every connection and waits for the thread.
    pub fn stop(&mut self) {
        self.mailbox.post(Command::Shutdown);
        if let Some(thread) = self.thread.take() {
            // `on_panic` has already reported a panic to every gate and partition.
            let _ = thread.join();
        }
    }
}
