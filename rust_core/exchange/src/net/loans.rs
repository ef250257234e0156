//! Buffers that processes of this host read where they are (producer's end).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use headgate_memory::Buffer;
use headgate_protocol::Frame;

use crate::lock::lock;
use crate::net::lease::Lease;
use crate::net::outbox::{Descriptor, Outbox};

/// What is smaller goes with its bytes: giving it back, which wakes the I/O threads of both ends, would
/// cost more than its copy.
const LEAST_LENT: usize = 16 << 10;

/// All buffers that an environment has lent.
///
/// They leave this table when they are given back, or when all who could read them are gone, or with the
/// environment, whose memory nobody writes any more then; never with a connection alone.
#[derive(Default)]
pub(crate) struct Loans(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    lent: HashMap<u64, Buffer>,
    buffers: u64,
    bytes: u64,
}

/// How much is and was lent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LentStats {
    /// Buffers that are lent now.
    pub now: usize,
    /// Buffers that ever were.
    pub buffers: u64,
    /// Bytes of those.
    pub bytes: u64,
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
        // Behind the lock: whoever waits for its segment is told.
        drop(ended);
    }

    /// Nobody writes the memory of this environment any more, whoever still reads it.
    pub(crate) fn clear(&self) {
        let ended = std::mem::take(&mut lock(&self.0).lent);
        drop(ended);
    }

    pub(crate) fn stats(&self) -> LentStats {
        let table = lock(&self.0);
        LentStats { now: table.lent.len(), buffers: table.buffers, bytes: table.bytes }
    }
}

/// A buffer as its consumer finds it.
pub(crate) struct Place {
    pub(crate) loan: u64,
    pub(crate) region: u32,
    pub(crate) offset: u64,
}

/// What one connection's peer was lent.
pub(crate) struct Lending {
    loans: Arc<Loans>,
    /// The smallest buffer that is lent.
    least: usize,
    lease: Option<Lease>,
    /// What its peer has the descriptors of.
    regions: HashSet<u32>,
    lent: HashSet<u64>,
}

impl Lending {
    /// For buffers in segments of this size.
    pub(crate) fn new(loans: Arc<Loans>, segment: u32) -> Self {
        let least = LEAST_LENT.min(segment as usize / 4);
        Self { loans, least, lease: None, regions: HashSet::new(), lent: HashSet::new() }
    }

    /// Lends a buffer. None where it should go with the bytes: small ones, those that are compressed or
    /// lie in memory of this process alone, and what would leave the writers too little of the pool.
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
        // From now on it is on no writer's account, however long its reader keeps it.
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

    /// The peer gives a buffer back; false if it has none of this name.
    pub(crate) fn give_back(&mut self, loan: u64) -> bool {
        let known = self.lent.remove(&loan);
        if known {
            self.loans.end(loan);
        }
        known
    }

    /// The connection is gone: what its peer may still read, if there is any.
    pub(crate) fn into_outstanding(self) -> Option<Outstanding> {
        let Self { loans, lease, lent, .. } = self;
        let lease = lease.filter(|_| !lent.is_empty())?;
        Some(Outstanding { loans, lease, lent })
    }
}

/// What a peer whose connection is gone may still read.
pub(crate) struct Outstanding {
    loans: Arc<Loans>,
    pub(crate) lease: Lease,
    lent: HashSet<u64>,
}

impl Outstanding {
    /// Nobody reads it any more.
    pub(crate) fn end(self) {
        for loan in self.lent {
            self.loans.end(loan);
        }
    }
}
