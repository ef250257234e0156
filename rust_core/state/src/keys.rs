//! The bytes of keys by slot. Decision: ADR 0057.

use allocator_api2::collections::TryReserveError;
use allocator_api2::vec::Vec;

use crate::{ReadAhead, StateMemory};

/// Bytes that are not used, of which fewer are not worth moving the others.
const FEW: usize = 1 << 16;

/// Slots for each one that is asked for, up to which all of them are read at once.
const APART: usize = 64;

/// A text of bytes per slot.
#[derive(Debug)]
pub(crate) struct Keys {
    bytes: Vec<u8, StateMemory>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// All keys have so many bytes, slot after slot.
    Fixed { width: usize, slots: usize },
    /// Start and length of each key, and the number of bytes that belong to none.
    Free { spans: Vec<Span, StateMemory>, unused: usize },
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    len: usize,
}

impl Keys {
    /// Keeps keys of one width, or of any if it is `None`.
    pub(crate) fn new(width: Option<usize>, memory: &StateMemory) -> Self {
        let place = match width {
            Some(width) => Place::Fixed { width, slots: 0 },
            None => Place::Free { spans: Vec::new_in(memory.clone()), unused: 0 },
        };
        Self { bytes: Vec::new_in(memory.clone()), place }
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> usize {
        match &self.place {
            Place::Fixed { slots, .. } => *slots,
            Place::Free { spans, .. } => spans.len(),
        }
    }

    /// The key of a slot, which was added.
    pub(crate) fn get(&self, slot: u32) -> &[u8] {
        let slot = slot as usize;
        match &self.place {
            Place::Fixed { width, .. } => &self.bytes[slot * width..][..*width],
            Place::Free { spans, .. } => {
                let Span { start, len } = spans[slot];
                &self.bytes[start..][..len]
            }
        }
    }

    /// Lets the kernel read all keys ahead, for a pass over the slots in their order.
    pub(crate) fn read_ahead(&self) -> (ReadAhead, Option<ReadAhead>) {
        let memory = self.bytes.allocator();
        let spans = match &self.place {
            Place::Fixed { .. } => None,
            Place::Free { spans, .. } => Some(memory.read_ahead(spans)),
        };
        (memory.read_ahead(&self.bytes), spans)
    }

    /// Has the kernel begin to read the keys of many slots: all of those between them too, unless they are far apart.
    pub(crate) fn want(&self, slots: &[i64]) {
        let places = || slots.iter().filter_map(|&slot| usize::try_from(slot).ok());
        let (Some(first), Some(last)) = (places().min(), places().max()) else { return };
        if last >= self.len() {
            return;
        }
        if (last - first) / APART > slots.len() {
            return self.want_each(places());
        }
        let memory = self.bytes.allocator();
        match &self.place {
            Place::Fixed { width, .. } => {
                memory.want(&self.bytes, first * width..(last + 1) * width)
            }
            Place::Free { spans, .. } => memory.want(spans, first..last + 1),
        }
    }

    /// Has the kernel begin to read the keys of slots, before they are used one after another.
    pub(crate) fn want_each(&self, slots: impl Iterator<Item = usize> + Clone) {
        let memory = self.bytes.allocator();
        match &self.place {
            Place::Fixed { width, .. } => {
                memory.want_each(&self.bytes, slots.map(|slot| slot * width))
            }
            Place::Free { spans, .. } => {
                memory.want_each(spans, slots.clone());
                let starts = slots.filter_map(|slot| spans.get(slot)).map(|span| span.start);
                memory.want_each(&self.bytes, starts);
            }
        }
    }

    /// Adds a slot with a key.
    pub(crate) fn push(&mut self, key: &[u8]) -> Result<(), TryReserveError> {
        match &mut self.place {
            Place::Fixed { slots, .. } => {
                self.bytes.try_reserve(key.len())?;
                *slots += 1;
            }
            Place::Free { spans, .. } => {
                spans.try_reserve(1)?;
                self.bytes.try_reserve(key.len())?;
                spans.push(Span { start: self.bytes.len(), len: key.len() });
            }
        }
        self.bytes.extend_from_slice(key);
        Ok(())
    }

    /// Gives a slot another key.
    pub(crate) fn replace(&mut self, slot: u32, key: &[u8]) -> Result<(), TryReserveError> {
        match &mut self.place {
            Place::Fixed { width, .. } => {
                self.bytes[slot as usize * *width..][..*width].copy_from_slice(key);
            }
            Place::Free { spans, unused } => {
                self.bytes.try_reserve(key.len())?;
                let before = std::mem::replace(
                    &mut spans[slot as usize],
                    Span { start: self.bytes.len(), len: key.len() },
                );
                *unused += before.len;
                self.bytes.extend_from_slice(key);
                if *unused > FEW && *unused > self.bytes.len() / 2 {
                    self.compact()?;
                }
            }
        }
        Ok(())
    }

    /// Moves the keys into a block without unused bytes, slot by slot.
    fn compact(&mut self) -> Result<(), TryReserveError> {
        let Place::Free { spans, unused } = &mut self.place else { return Ok(()) };
        let mut bytes = Vec::new_in(self.bytes.allocator().clone());
        bytes.try_reserve_exact(self.bytes.len() - *unused)?;
        // Keys lie about in the order of their slots.
        let _ahead = self.bytes.allocator().read_ahead(&self.bytes);
        for span in spans.iter_mut() {
            let start = bytes.len();
            bytes.extend_from_slice(&self.bytes[span.start..][..span.len]);
            span.start = start;
        }
        *unused = 0;
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_a_list(steps in prop::collection::vec((0..8_usize, 0..40_000_usize), 1..60)) {
            let memory = StateMemory::limited(0, vec![]);
            let mut keys = Keys::new(None, &memory);
            let mut model: std::vec::Vec<std::vec::Vec<u8>> = vec![];
            for (slot, len) in steps {
                let key = vec![u8::try_from(len % 251).unwrap(); len];
                if slot < model.len() {
                    keys.replace(u32::try_from(slot).unwrap(), &key).unwrap();
                    model[slot] = key;
                } else {
                    keys.push(&key).unwrap();
                    model.push(key);
                }
                prop_assert_eq!(keys.len(), model.len());
                for (slot, key) in (0..).zip(&model) {
                    prop_assert_eq!(keys.get(slot), key);
                }
            }
            let live: usize = model.iter().map(std::vec::Vec::len).sum();
            prop_assert!(keys.bytes.len() <= 2 * live + FEW + 40_000);
        }
    }
}
