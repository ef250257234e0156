//! Buffers lent by another process of this host (consumer's end).
//!
//! Decision: ADR 0019.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use headgate_memory::{Buffer, PeerRegion, PooledSegment};
use headgate_protocol::LentBuffer;
use rustix::system::sysinfo;

use crate::context::Context;
use crate::mailbox::{Command, Mailbox};
use crate::traffic::Traffic;

/// Most regions of one peer; a pool has far fewer.
const MAX_REGIONS: usize = 1024;

/// Bytes of memory and swap of this host: a pool on it cannot be larger.
fn memory_of_host() -> u64 {
    let host = sysinfo();
    (host.totalram.saturating_add(host.totalswap)).saturating_mul(host.mem_unit.into())
}

/// The memory that the peer of one connection lends.
pub(crate) struct Borrowing {
    mailbox: Weak<Mailbox>,
    connection: usize,
    traffic: Arc<Traffic>,
    lease: Option<Arc<OwnedFd>>,
    regions: HashMap<u32, Arc<PeerRegion>>,
    /// Bytes of all regions.
    bytes: u64,
}

/// One buffer on loan; dropping it returns the buffer to the producer.
struct Loan {
    mailbox: Weak<Mailbox>,
    connection: usize,
    loan: u64,
    /// Closed with the last loan, which tells the producer if the connection has ended before.
    _lease: Arc<OwnedFd>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(mailbox) = self.mailbox.upgrade() {
            let (connection, loan) = (self.connection, self.loan);
            mailbox.post(Command::Return { connection, loan });
        }
    }
}

impl Borrowing {
    pub(crate) fn new(connection: usize, context: &Context) -> Self {
        let mailbox = Arc::downgrade(&context.mailbox);
        let traffic = Arc::clone(&context.traffic);
        Self { mailbox, connection, traffic, lease: None, regions: HashMap::new(), bytes: 0 }
    }

    /// Takes the lease, which stays open as long as any buffer is on loan.
    pub(crate) fn begin(&mut self, lease: Option<OwnedFd>) -> Result<(), String> {
        let lease = lease.ok_or("a lease came without its descriptor")?;
        match self.lease.replace(Arc::new(lease)) {
            None => Ok(()),
            Some(_) => Err("a second lease".to_owned()),
        }
    }

    /// Maps a region in which buffers will be lent.
    pub(crate) fn add(&mut self, id: u32, size: u64, file: Option<OwnedFd>) -> Result<(), String> {
        let file = file.ok_or_else(|| format!("region {id} came without its descriptor"))?;
        if self.regions.len() == MAX_REGIONS {
            return Err(format!("more than {MAX_REGIONS} regions"));
        }
        let (bytes, limit) = (self.bytes.saturating_add(size), memory_of_host());
        if bytes > limit {
            return Err(format!(
                "region {id} of {size} bytes: its regions would have {bytes} bytes, more than the \
                 {limit} bytes of memory and swap of this host"
            ));
        }
        self.bytes = bytes;
        let region =
            PeerRegion::open(file, size).map_err(|error| format!("region {id}: {error}"))?;
        match self.regions.insert(id, Arc::new(region)) {
            None => Ok(()),
            Some(_) => Err(format!("region {id} came twice")),
        }
    }

    /// Borrows a buffer and charges it to a segment of this process.
    pub(crate) fn borrow(
        &self,
        lent: &LentBuffer,
        segment: PooledSegment,
    ) -> Result<Buffer, String> {
        let lease = self.lease.as_ref().ok_or("a buffer is lent without a lease")?;
        let LentBuffer { region: id, offset, size, loan, .. } = *lent;
        let region = self.regions.get(&id).ok_or_else(|| format!("region {id} is unknown"))?;
        let loan = Loan {
            mailbox: self.mailbox.clone(),
            connection: self.connection,
            loan,
            _lease: Arc::clone(lease),
        };
        let borrowed = Buffer::borrow(region, offset, size as usize, segment, Box::new(loan));
        let buffer = borrowed.map_err(|error| format!("a buffer lent in region {id}: {error}"))?;
        if !buffer.is_borrowed() {
            self.traffic.add_copied_unmapped(buffer.len());
        }
        Ok(buffer)
    }
}
