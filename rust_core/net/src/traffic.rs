//! Counters of an environment's connections and their bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Open connections, by the link they run over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connections {
    /// Connections over TCP.
    pub tcp: usize,
    /// Connections within the host, which share memory.
    pub same_host: usize,
}

/// Bytes sent, received and copied, and the connections past their handshake.
#[derive(Debug, Default)]
pub struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
    /// Bytes of lent buffers that were copied, since their memory could not be mapped.
    copied_unmapped: AtomicU64,
    tcp: AtomicUsize,
    same_host: AtomicUsize,
}

/// Counts one connection until it is dropped.
pub(crate) struct Counted {
    traffic: Arc<Traffic>,
    is_same_host: bool,
}

impl Traffic {
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_copied_unmapped(&self, bytes: usize) {
        self.copied_unmapped.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes of lent buffers that were copied, since their memory could not be mapped.
    pub fn copied_unmapped(&self) -> u64 {
        self.copied_unmapped.load(Ordering::Relaxed)
    }

    /// Returns the bytes sent and the bytes received, frames included.
    pub fn totals(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    /// Returns the open connections.
    pub fn connections(&self) -> Connections {
        let [tcp, same_host] = [false, true].map(|near| self.count(near).load(Ordering::Relaxed));
        Connections { tcp, same_host }
    }

    fn count(&self, is_same_host: bool) -> &AtomicUsize {
        if is_same_host { &self.same_host } else { &self.tcp }
    }
}

impl Counted {
    pub(crate) fn new(traffic: &Arc<Traffic>, is_same_host: bool) -> Self {
        traffic.count(is_same_host).fetch_add(1, Ordering::Relaxed);
        Self { traffic: Arc::clone(traffic), is_same_host }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.traffic.count(self.is_same_host).fetch_sub(1, Ordering::Relaxed);
    }
}
