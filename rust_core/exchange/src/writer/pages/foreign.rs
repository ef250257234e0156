//! Batches that go to one place as they are: their pages are pieces of their own memory (ADR 0021).

use std::sync::Arc;

use headgate_memory::{Buffer, Charge};
use headgate_record::{Pieces, Source};

use super::OpenPages;
use crate::copies::Copies;
use crate::error::{Interrupt, Result};
use crate::lock::lock;
use crate::writer::{Emitted, Lane};

/// What became of a batch.
#[derive(Clone, Copy, Default)]
pub(in crate::writer) struct Sent {
    /// So many of its first rows are queued; the others are to be gathered.
    pub(in crate::writer) rows: usize,
    /// It is a small part of what it would have kept.
    pub(in crate::writer) compacts: bool,
}

impl OpenPages {
    /// Queues pages that are pieces of a batch, which keeps `pinned` bytes of memory, where all its readers
    /// take them as they are and it is worth it.
    ///
    /// # Errors
    /// The failure of the partition, or what the interrupt says.
    pub(in crate::writer) fn send_pieces(
        &self,
        lane: Lane,
        source: &Source,
        pinned: u64,
        interrupt: Interrupt<'_>,
    ) -> Result<Sent> {
        let segment = self.partition.segment_size();
        let targets = self.targets(lane.slot(&self.partition));
        let least = Emitted::least_in_pieces(segment);
        let Some(pieces) = Pieces::try_new(&self.schema, source, least as u64) else {
            return Ok(Sent::default());
        };
        let subpartitions = &self.partition.subpartitions()[targets.clone()];
        // Readers in this process need no segment for what they read; wide rows span as they do elsewhere.
        let is_local = !subpartitions.iter().any(|it| it.is_remote());
        let fits =
            if is_local && pieces.has_rows_within(segment) { LOCAL * segment } else { segment };
        let capacity = self.partition.buffer_size(targets.clone()).min(fits);
        if !self.takes_pieces(lane) || capacity < least {
            return Ok(Sent::default());
        }
        let pinned = pinned.max(pieces.pinned());
        if pieces.len().saturating_mul(MAX_PINNED) < pinned {
            return Ok(Sent { rows: 0, compacts: true });
        }
        let memory = pinned.saturating_add(pieces.written());
        let Some(charge) = self.charge(lane, memory.div_ceil(segment as u64), interrupt)? else {
            return Ok(Sent::default());
        };
        let charge = Arc::new(charge);
        let mut state = lock(&self.state);
        self.send_others(&mut state, lane);
        self.send(&mut state, lane.slot(&self.partition));
        let mut rows = 0;
        while rows < source.num_rows()
            && let Some(page) = pieces.cut(rows, capacity)
        {
            Copies::count(&self.partition.copies().scatter, page.copied);
            let memory = Arc::clone(self.partition.foreign());
            let buffer = Buffer::of_pieces(page.pieces, Arc::clone(&charge), memory);
            self.queue(targets.clone(), &buffer, page.len, page.rows as u64);
            rows += page.rows;
        }
        Ok(Sent { rows, compacts: false })
    }

    /// Whether all who will read what goes there are known, and take it in pieces.
    fn takes_pieces(&self, lane: Lane) -> bool {
        let targets = lane.targets(&self.partition);
        let all = || {
            let each = self.partition.subpartitions()[targets.clone()].iter();
            each.filter_map(|target| target.takes_pieces()).all(|takes| takes)
        };
        let is_read = !self.partition.kind().is_stored() && lane.is_wanted(&self.partition);
        is_read && all() && self.partition.leaves_plain(targets.clone())
    }

    /// So many segments, if they can be had. Waits for them, unless the last wait was in vain.
    fn charge(&self, lane: Lane, count: u64, interrupt: Interrupt<'_>) -> Result<Option<Charge>> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let request =
            |patient| self.partition.request_charge(lane.subpartition(), count, patient, interrupt);
        let mut charge = request(false)?;
        let waits = std::mem::replace(&mut lock(&self.state).waits_for_charge, charge.is_some());
        if charge.is_none() && waits {
            // What is open may be what holds the segments.
            self.flush();
            charge = request(true)?;
            lock(&self.state).waits_for_charge = charge.is_some();
        }
        Ok(charge)
    }
}

/// Pages for readers in this process have so many segments' bytes at most: a batch of little more than one
/// stays in one piece.
const LOCAL: usize = 2;
/// A batch keeps at most so many times its own bytes.
const MAX_PINNED: u64 = 4;
