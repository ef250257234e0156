//! The memory of events that arrived and that nobody has read yet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use headgate_memory::Buffer;
use headgate_protocol::{BufferHeader, DataType};

use crate::error::Result;
use crate::peer_error;

/// Most bytes of unread events of one connection.
const LIMIT: usize = 8 << 20;
/// Bytes that an event takes besides its content.
const COST: usize = 256;

/// Counts the events of one connection, which need no credit and so no segment.
#[derive(Default)]
pub(crate) struct UnreadEvents(Arc<AtomicUsize>);

/// An event; it is counted until its bytes are gone.
struct Counted {
    bytes: Vec<u8>,
    charge: usize,
    unread: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.unread.fetch_sub(self.charge, Ordering::Relaxed);
    }
}

impl UnreadEvents {
    /// Refuses an event that is one too many, before its payload is read.
    pub(crate) fn check(&self, header: &BufferHeader, peer: SocketAddr) -> Result<()> {
        let unread = self.0.load(Ordering::Relaxed);
        if charge(header) == 0 || unread + charge(header) <= LIMIT {
            return Ok(());
        }
        let detail = format!(
            "{unread} bytes of events wait for their reader, and one of {} bytes follows: at most \
             {LIMIT} bytes may wait, with {COST} more for each event",
            header.size
        );
        Err(peer_error::protocol(&detail, peer))
    }

    pub(crate) fn count(&self, bytes: Vec<u8>, header: &BufferHeader) -> Buffer {
        let charge = charge(header);
        if charge == 0 {
            return Buffer::from(Bytes::from(bytes));
        }
        self.0.fetch_add(charge, Ordering::Relaxed);
        let unread = Arc::clone(&self.0);
        Buffer::from(Bytes::from_owner(Counted { bytes, charge, unread }))
    }
}

/// The end of a partition comes once for each channel, so it costs nothing.
fn charge(header: &BufferHeader) -> usize {
    match header.data_type {
        DataType::EndOfPartition => 0,
        _ => COST + header.size as usize,
    }
}
