//! Keys of any columns to slots. Decision: ADR 0057.

use ahash::RandomState;
use allocator_api2::vec::Vec as StateVec;
use arrow_array::ArrayRef;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, DataType};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::keys::Keys;
use crate::{Numbers, StateMemory};

/// Failures of an index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The columns have no row format, or are not those of the index.
    #[error("the columns are not keys of this index: {0}")]
    Columns(#[from] ArrowError),
    /// There is no further slot.
    #[error("an index holds at most {SLOTS} keys")]
    Full,
    /// A slot holds no key.
    #[error("slot {0} holds no key")]
    NoKey(i64),
    /// There is no memory for more keys.
    #[error("there is no room for more keys: {0}")]
    NoRoom(std::io::Error),
}

/// The keys of a batch: each row's distinct key, and each distinct key's slot.
#[derive(Debug, Default)]
pub struct Resolved {
    /// For each row, the position of its key among the distinct ones, which are in order of their first rows.
    pub rows: Numbers,
    /// Slot of each distinct key.
    pub slots: Numbers,
    /// First row of each distinct key.
    pub first: Numbers,
    /// Positions of distinct keys that the index did not hold before.
    pub new: Numbers,
}

/// An index from keys to slots. Nulls are equal to each other; floats are if their bits are, so the caller gives all NaNs
/// the same bits, and both zeros. The slot of a removed key is given to another key.
pub struct KeyIndex {
    converter: RowConverter,
    /// Random, so that nobody can choose keys whose hashes collide.
    hasher: RandomState,
    /// Slots by the hashes of their keys. Hashes are not kept: slots alone are so small that the table stays in memory when
    /// the keys do not.
    table: HashTable<u32, StateMemory>,
    /// The key of each slot; stale if the slot is free.
    keys: Keys,
    /// True for each slot that has a key.
    held: StateVec<bool, StateMemory>,
    free: StateVec<u32, StateMemory>,
    memory: StateMemory,
}

/// Slots are below it.
const SLOTS: u32 = u32::MAX;

impl KeyIndex {
    /// Creates an index over key columns of these types.
    ///
    /// # Errors
    /// Arrow has no row format for a type.
    pub fn try_new(types: &[DataType], memory: &StateMemory) -> Result<Self, IndexError> {
        let fields = types.iter().cloned().map(SortField::new).collect();
        let width = types.iter().map(row_width).sum();
        Ok(Self {
            converter: RowConverter::new(fields)?,
            hasher: RandomState::new(),
            table: HashTable::new_in(memory.clone()),
            keys: Keys::new(width, memory),
            held: StateVec::new_in(memory.clone()),
            free: StateVec::new_in(memory.clone()),
            memory: memory.clone(),
        })
    }

    /// Returns the slots of the keys in these columns; gives a slot to each key that has none.
    ///
    /// # Errors
    /// The columns are not of the index's types, all slots are taken, or there is no memory; earlier keys may have got
    /// slots then.
    pub fn resolve(&mut self, columns: &[ArrayRef]) -> Result<Resolved, IndexError> {
        let rows = self.converter.convert_columns(columns)?;
        let mut found =
            Resolved { rows: Vec::with_capacity(rows.num_rows()), ..Resolved::default() };
        let hashes = self.distinct(&rows, &mut found);
        self.want(&hashes);
        for (hash, &first) in hashes.into_iter().zip(&found.first) {
            let row = rows.row(place_of(first)).data();
            let slot = match self.table.find(hash, |&slot| self.keys.get(slot) == row) {
                Some(&slot) => slot,
                None => {
                    found.new.push(number_of(found.slots.len()));
                    self.add(hash, row)?
                }
            };
            found.slots.push(i64::from(slot));
        }
        Ok(found)
    }

    /// Finds the distinct keys of a batch, so that the table, which is large, is asked once for each. Returns their hashes.
    fn distinct(&self, rows: &Rows, found: &mut Resolved) -> Vec<u64> {
        let mut hashes = Vec::with_capacity(rows.num_rows());
        let mut positions = HashTable::with_capacity(rows.num_rows());
        for (row, number) in rows.iter().zip(0_i64..) {
            let row = row.data();
            let hash = self.hasher.hash_one(row);
            let is_same = |&at: &usize| {
                hashes[at] == hash && rows.row(place_of(found.first[at])).data() == row
            };
            let position = match positions.entry(hash, is_same, |&at| hashes[at]) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let position = hashes.len();
                    entry.insert(position);
                    hashes.push(hash);
                    found.first.push(number);
                    position
                }
            };
            found.rows.push(number_of(position));
        }
        hashes
    }

    /// Returns the slot of the key of each row, or -1 for a key without one.
    ///
    /// # Errors
    /// The columns are not of the index's types.
    pub fn find(&self, columns: &[ArrayRef]) -> Result<Numbers, IndexError> {
        let rows = self.converter.convert_columns(columns)?;
        let hashes: Vec<_> = rows.iter().map(|row| self.hasher.hash_one(row.data())).collect();
        self.want(&hashes);
        let slot_of = |(hash, row): (u64, &[u8])| {
            self.table.find(hash, |&slot| self.keys.get(slot) == row).map_or(-1, |&s| i64::from(s))
        };
        Ok(hashes.into_iter().zip(rows.iter().map(|row| row.data())).map(slot_of).collect())
    }

    /// Returns the keys of slots, as columns.
    ///
    /// # Errors
    /// A slot holds no key.
    pub fn keys(&self, of: &[i64]) -> Result<Vec<ArrayRef>, IndexError> {
        self.keys.want(of);
        let parser = self.converter.parser();
        let mut rows = Vec::with_capacity(of.len());
        for &slot in of {
            rows.push(parser.parse(self.keys.get(self.held(slot)?)));
        }
        Ok(self.converter.convert_rows(rows)?)
    }

    /// Removes the keys of slots, which may be given to other keys from now on.
    ///
    /// # Errors
    /// A slot holds no key, or there is no memory; earlier ones are removed then.
    pub fn remove(&mut self, of: &[i64]) -> Result<(), IndexError> {
        for &slot in of {
            let held = self.held(slot)?;
            self.free.try_reserve(1).map_err(|_| IndexError::NoRoom(self.memory.failure()))?;
            let hash = self.hasher.hash_one(self.keys.get(held));
            let entry = self.table.find_entry(hash, |&other| other == held);
            entry.map_err(|_| IndexError::NoKey(slot))?.remove();
            self.held[held as usize] = false;
            self.free.push(held);
        }
        Ok(())
    }

    /// Makes room for more keys at once, for those who know how many are to come.
    ///
    /// # Errors
    /// There is no memory.
    pub fn reserve(&mut self, more: usize) -> Result<(), IndexError> {
        let room = self.table.len() + more;
        if room <= self.table.capacity() {
            return Ok(());
        }
        self.held
            .try_reserve(more.saturating_sub(self.free.len()))
            .map_err(|_| IndexError::NoRoom(self.memory.failure()))?;
        self.rebuild(room)
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Number of slots that were ever given: all slots are below it.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.keys.len()
    }

    /// The slot that holds a key.
    fn held(&self, slot: i64) -> Result<u32, IndexError> {
        let number = u32::try_from(slot).map_err(|_| IndexError::NoKey(slot))?;
        let held = self.held.get(number as usize).copied().unwrap_or(false);
        held.then_some(number).ok_or(IndexError::NoKey(slot))
    }

    /// Has the kernel begin to read the keys that may be those of hashes.
    fn want(&self, hashes: &[u64]) {
        let slots = hashes.iter().flat_map(|&hash| self.table.iter_hash(hash));
        self.keys.want_each(slots.map(|&slot| slot as usize));
    }

    /// Gives a slot to a key that has none.
    fn add(&mut self, hash: u64, row: &[u8]) -> Result<u32, IndexError> {
        self.make_room()?;
        let no_room = |_| IndexError::NoRoom(self.memory.failure());
        let slot = if let Some(&slot) = self.free.last() {
            self.keys.replace(slot, row).map_err(no_room)?;
            self.free.pop();
            slot
        } else {
            let slot = u32::try_from(self.keys.len()).unwrap_or(SLOTS);
            if slot == SLOTS {
                return Err(IndexError::Full);
            }
            self.held.try_reserve(1).map_err(no_room)?;
            self.keys.push(row).map_err(no_room)?;
            self.held.push(false);
            slot
        };
        self.held[slot as usize] = true;
        let (hasher, keys) = (&self.hasher, &self.keys);
        self.table.insert_unique(hash, slot, |&other| hasher.hash_one(keys.get(other)));
        Ok(slot)
    }

    /// Makes the table larger if it is full: from the keys in the order of their slots, since a table of keys that are not in
    /// memory would read them one by one, each from another place.
    fn make_room(&mut self) -> Result<(), IndexError> {
        if self.table.len() < self.table.capacity() {
            return Ok(());
        }
        self.rebuild((2 * self.table.len()).max(14))
    }

    fn rebuild(&mut self, room: usize) -> Result<(), IndexError> {
        let mut table = HashTable::new_in(self.memory.clone());
        let hash_of = |slot: &u32| self.hasher.hash_one(self.keys.get(*slot));
        let reserved = table.try_reserve(room, hash_of);
        reserved.map_err(|_| IndexError::NoRoom(self.memory.failure()))?;
        let _ahead = (self.memory.read_ahead(&self.held), self.keys.read_ahead());
        for (&held, slot) in self.held.iter().zip(0_u32..) {
            if held {
                table.insert_unique(hash_of(&slot), slot, hash_of);
            }
        }
        self.table = table;
        Ok(())
    }
}

/// Bytes of a value in Arrow's row format, if all values have as many.
fn row_width(of: &DataType) -> Option<usize> {
    let bytes = match of {
        DataType::Boolean => 1,
        DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).ok()?,
        other => other.primitive_width()?,
    };
    Some(1 + bytes)
}

fn number_of(position: usize) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

fn place_of(row: i64) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
    use proptest::prelude::*;

    use super::*;

    type Key = (Option<i64>, Option<String>);

    fn columns(keys: &[Key]) -> Vec<ArrayRef> {
        vec![
            Arc::new(Int64Array::from_iter(keys.iter().map(|key| key.0))),
            Arc::new(StringArray::from_iter(keys.iter().map(|key| key.1.as_deref()))),
        ]
    }

    fn types(columns: &[ArrayRef]) -> Vec<DataType> {
        columns.iter().map(|column| column.data_type().clone()).collect()
    }

    fn keys() -> impl Strategy<Value = Vec<Key>> {
        let key = (prop::option::of(0..6_i64), prop::option::of("[ab]{0,2}"));
        prop::collection::vec(key, 0..20)
    }

    /// Compares an index over some columns of the keys with a map, while keys come and go.
    fn is_a_map(
        batches: &[(Vec<Key>, Vec<Key>)],
        of: impl Fn(&[Key]) -> Vec<ArrayRef>,
        same: impl Fn(&Key) -> Key,
    ) {
        let mut index = KeyIndex::try_new(&types(&of(&[])), &StateMemory::default()).unwrap();
        let mut model: HashMap<Key, i64> = HashMap::new();
        for (more, (added, removed)) in batches.iter().enumerate() {
            index.reserve(20 * more).unwrap();
            let added: Vec<_> = added.iter().map(&same).collect();
            let removed: Vec<_> = removed.iter().map(&same).collect();
            let found = index.resolve(&of(&added)).unwrap();
            let mut distinct: Vec<Key> = Vec::new();
            for (row, key) in added.iter().enumerate() {
                if !distinct.contains(key) {
                    let position = distinct.len();
                    assert_eq!(found.first[position], i64::try_from(row).unwrap());
                    let is_new = found.new.contains(&i64::try_from(position).unwrap());
                    assert_eq!(is_new, !model.contains_key(key));
                    assert_eq!(
                        *model.entry(key.clone()).or_insert(found.slots[position]),
                        found.slots[position]
                    );
                    distinct.push(key.clone());
                }
                assert_eq!(&distinct[usize::try_from(found.rows[row]).unwrap()], key);
            }
            assert_eq!(found.slots.len(), distinct.len());
            let slots: std::collections::HashSet<_> = model.values().collect();
            assert_eq!(slots.len(), model.len());
            assert!(slots.iter().all(|slot| usize::try_from(**slot).unwrap() < index.slots()));
            let back = index.keys(&found.slots).unwrap();
            let batch = |columns: Vec<ArrayRef>| {
                RecordBatch::try_from_iter(
                    columns.into_iter().enumerate().map(|(n, c)| (n.to_string(), c)),
                )
                .unwrap()
            };
            assert_eq!(batch(back).columns(), batch(of(&distinct)).columns());
            let expected: Vec<_> =
                removed.iter().map(|key| model.get(key).copied().unwrap_or(-1)).collect();
            assert_eq!(index.find(&of(&removed)).unwrap(), expected);
            for key in removed {
                if let Some(slot) = model.remove(&key) {
                    index.remove(&[slot]).unwrap();
                    assert!(matches!(index.remove(&[slot]), Err(IndexError::NoKey(_))));
                    assert!(matches!(index.keys(&[slot]), Err(IndexError::NoKey(_))));
                }
            }
            assert_eq!(index.len(), model.len());
        }
    }

    proptest! {
        #[test]
        fn long_keys_are_a_map(batches in prop::collection::vec((keys(), keys()), 1..6)) {
            is_a_map(&batches, columns, Key::clone);
        }

        #[test]
        fn short_keys_are_a_map(batches in prop::collection::vec((keys(), keys()), 1..6)) {
            is_a_map(&batches, |keys| columns(keys)[..1].to_vec(), |key| (key.0, None));
        }
    }

    #[test]
    fn floats_are_keys_by_their_bits() {
        let keys = vec![f64::NAN, f64::NAN, 0.0, -0.0];
        let mut index = KeyIndex::try_new(&[DataType::Float64], &StateMemory::default()).unwrap();
        let found = index.resolve(&[Arc::new(Float64Array::from(keys)) as ArrayRef]).unwrap();
        assert_eq!(found.rows, [0, 0, 1, 2]);
    }

    #[test]
    fn columns_of_other_types_are_refused() {
        let mut index = KeyIndex::try_new(&[DataType::Int64], &StateMemory::default()).unwrap();
        let other: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert!(matches!(index.resolve(&[other]), Err(IndexError::Columns(_))));
        assert!(index.is_empty());
    }

    #[test]
    fn many_keys_are_found_again_in_files() {
        let memory = StateMemory::limited(0, vec![]);
        for long in [false, true] {
            let of = |numbers: std::ops::Range<i64>| -> Vec<ArrayRef> {
                match long {
                    false => vec![Arc::new(Int64Array::from_iter_values(numbers))],
                    true => vec![Arc::new(StringArray::from_iter_values(
                        numbers.map(|number| format!("a key of number {number}")),
                    ))],
                }
            };
            let mut index = KeyIndex::try_new(&types(&of(0..0)), &memory).unwrap();
            for first in (0..50_000).step_by(10_000) {
                let found = index.resolve(&of(first..first + 10_000)).unwrap();
                assert!(found.slots.iter().copied().eq(first..first + 10_000));
            }
            assert!(memory.usage().in_files > 0);
            assert!(index.find(&of(0..50_000)).unwrap().into_iter().eq(0..50_000));
            index.remove(&(0..50_000).step_by(2).collect::<Vec<_>>()).unwrap();
            let again = index.resolve(&of(50_000..90_000)).unwrap();
            assert_eq!((again.new.len(), index.len(), index.slots()), (40_000, 65_000, 65_000));
            assert_eq!(index.find(&of(50_000..90_000)).unwrap(), again.slots);
            assert!(
                index.find(&of(0..1)).unwrap() == [-1] && index.find(&of(1..2)).unwrap() == [1]
            );
        }
        assert_eq!(memory.usage(), crate::Usage::default());
    }
}
