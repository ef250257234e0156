//! Buffers lent to other processes of this host (producer's end).
//!
//! Decision: ADR 0019.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use headgate_memory::{Buffer, lock};
use headgate_protocol::Frame;

use crate::lease::Lease;
use crate::outbox::{Descriptor, Outbox};

/// Smallest buffer that is lent. Smaller ones are sent, since a copy costs less than returning the
/// buffer, which wakes the I/O threads of both ends.
const LEAST_LENT: usize = 16 << 10;

/// Buffers lent to processes of the same host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LentStats {
    /// Buffers on loan now.
    pub now: usize,
    /// Buffers lent since the environment was created.
    pub buffers: u64,
    /// Bytes of those buffers.
    pub bytes: u64,
}

/// All buffers that an environment has lent.
///
/// A buffer leaves this table when the peer returns it, when its lease ends, or when the environment
/// ends, after which nobody writes the memory. The end of a connection alone does not remove it.
#[derive(Default)]
pub struct Loans(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    lent: HashMap<u64, Buffer>,
    buffers: u64,
    bytes: u64,
}

impl Loans {
    fn add(&self, buffer: Buffer) -> u64 {
        let mut table = lock(&self.0);
        let loan = table.next;
        table.next += 1;
        table.buffers += 1;
        table.bytes += buffer.len() as u64;
        table.lent.insert(loan, buffer);
        loan
    }

    fn end(&self, loan: u64) {
        let ended = lock(&self.0).lent.remove(&loan);
        // Dropped outside the lock, since it wakes a thread that waits for the segment.
        drop(ended);
    }

    /// Ends all loans with the environment: nobody writes its memory any more, so peers may read on.
    pub fn clear(&self) {
        let ended = std::mem::take(&mut lock(&self.0).lent);
        drop(ended);
    }

    /// A snapshot.
    pub fn stats(&self) -> LentStats {
        let table = lock(&self.0);
        LentStats { now: table.lent.len(), buffers: table.buffers, bytes: table.bytes }
    }
}

/// The place of a lent buffer in memory that the consumer maps.
pub(crate) struct Place {
    pub(crate) loan: u64,
    pub(crate) region: u32,
    pub(crate) offset: u64,
}

/// The buffers lent to the peer of one connection.
pub(crate) struct Lending {
    loans: Arc<Loans>,
    /// Size of the smallest buffer that is lent.
    least: usize,
    lease: Option<Lease>,
    /// Regions whose descriptors the peer has.
    regions: HashSet<u32>,
    lent: HashSet<u64>,
}

impl Lending {
    /// Lends buffers that lie in segments of this size.
    pub(crate) fn new(loans: Arc<Loans>, segment: u32) -> Self {
        let least = LEAST_LENT.min(segment as usize / 4);
        Self { loans, least, lease: None, regions: HashSet::new(), lent: HashSet::new() }
    }

    /// Lends a buffer. Returns `None` if its bytes must be sent instead: the buffer is small or
    /// compressed, lies in private memory, or would leave the writers too little of the pool.
    pub(crate) fn lend(&mut self, buffer: &Buffer, outbox: &mut Outbox) -> Option<Place> {
        if buffer.len() < self.least || buffer.is_compressed() {
            return None;
        }
        let (file, offset) = buffer.place()?;
        if self.lease.is_none() {
            let (ours, theirs) = Lease::new().ok()?;
            self.lease = Some(ours);
            outbox.push_with(&Frame::Lease, Descriptor::Lease(theirs));
        }
        // A pinned buffer is on no writer's account, however long its reader keeps it.
        if !buffer.pin() {
            return None;
        }
        let region = file.id();
        if self.regions.insert(region) {
            let frame = Frame::Region { region, size: file.size() };
            outbox.push_with(&frame, Descriptor::Region(file));
        }
        let loan = self.loans.add(buffer.clone());
        self.lent.insert(loan);
        Some(Place { loan, region, offset })
    }

    /// Ends a loan that the peer returns; returns false if there is no such loan.
    pub(crate) fn give_back(&mut self, loan: u64) -> bool {
        let known = self.lent.remove(&loan);
        if known {
            self.loans.end(loan);
        }
        known
    }

    /// Returns the buffers that the peer may still read after the connection has ended.
    pub(crate) fn into_outstanding(self) -> Option<Outstanding> {
        let Self { loans, lease, lent, .. } = self;
        let lease = lease.filter(|_| !lent.is_empty())?;
        Some(Outstanding { loans, lease, lent })
    }
}

/// Buffers that a peer may still read although its connection has ended.
pub(crate) struct Outstanding {
    loans: Arc<Loans>,
    pub(crate) lease: Lease,
    lent: HashSet<u64>,
}

impl Outstanding {
    /// Ends all loans: nobody reads the buffers any more.
    pub(crate) fn end(self) {
        for loan in self.lent {
            self.loans.end(loan);
        }
    }
}
