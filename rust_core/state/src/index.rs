//! Keys of any columns to slots.

use ahash::RandomState;
use arrow_array::ArrayRef;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::Numbers;

/// Failures of an index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The columns have no row format, or are not those of the index.
    #[error("the columns are not keys of this index: {0}")]
    Columns(#[from] ArrowError),
    /// There is no further slot.
    #[error("an index holds at most {} keys", u32::MAX)]
    Full,
    /// A slot holds no key.
    #[error("slot {0} holds no key")]
    NoKey(i64),
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
    /// Bytes of each key's row, if all rows have as many.
    width: Option<usize>,
    table: Table,
}

enum Table {
    /// Keys whose rows have a fixed width of at most 16 bytes, which saves following a pointer.
    Short(Slots<[u8; SHORT]>),
    Long(Slots<Box<[u8]>>),
}

macro_rules! either {
    ($table:expr, $slots:ident => $result:expr) => {
        match $table {
            Table::Short($slots) => $result,
            Table::Long($slots) => $result,
        }
    };
}

impl KeyIndex {
    /// Creates an index over key columns of these types.
    ///
    /// # Errors
    /// Arrow has no row format for a type.
    pub fn try_new(types: &[DataType]) -> Result<Self, IndexError> {
        let fields = types.iter().cloned().map(SortField::new).collect();
        let converter = RowConverter::new(fields)?;
        let width = types.iter().map(row_width).sum::<Option<usize>>();
        let table = match width {
            Some(width) if width <= SHORT => Table::Short(Slots::default()),
            _ => Table::Long(Slots::default()),
        };
        Ok(Self { converter, width, table })
    }

    /// Returns the slots of the keys in these columns; gives a slot to each key that has none.
    ///
    /// # Errors
    /// The columns are not of the index's types, or all slots are taken; earlier keys may have got slots then.
    pub fn resolve(&mut self, columns: &[ArrayRef]) -> Result<Resolved, IndexError> {
        let rows = self.converter.convert_columns(columns)?;
        either!(&mut self.table, slots => slots.resolve(rows.iter().map(|row| row.data())))
    }

    /// Returns the slot of the key of each row, or -1 for a key without one.
    ///
    /// # Errors
    /// The columns are not of the index's types.
    pub fn find(&self, columns: &[ArrayRef]) -> Result<Numbers, IndexError> {
        let rows = self.converter.convert_columns(columns)?;
        Ok(either!(&self.table, slots => rows.iter().map(|row| slots.find(row.data())).collect()))
    }

    /// Returns the keys of slots, as columns.
    ///
    /// # Errors
    /// A slot holds no key.
    pub fn keys(&self, of: &[i64]) -> Result<Vec<ArrayRef>, IndexError> {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(of.len());
        for &slot in of {
            let held = either!(&self.table, slots => slots.write(slot, &mut bytes));
            held.ok_or(IndexError::NoKey(slot))?;
            // Cuts off the padding of a short key.
            bytes.truncate(self.width.map_or(bytes.len(), |width| (ends.len() + 1) * width));
            ends.push(bytes.len());
        }
        let parser = self.converter.parser();
        let mut start = 0;
        let rows = ends
            .into_iter()
            .map(|end| parser.parse(&bytes[std::mem::replace(&mut start, end)..end]));
        Ok(self.converter.convert_rows(rows)?)
    }

    /// Removes the keys of slots, which may be given to other keys from now on.
    ///
    /// # Errors
    /// A slot holds no key; earlier ones are removed then.
    pub fn remove(&mut self, of: &[i64]) -> Result<(), IndexError> {
        for &slot in of {
            either!(&mut self.table, slots => slots.remove(slot)).ok_or(IndexError::NoKey(slot))?;
        }
        Ok(())
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        either!(&self.table, slots => slots.table.len())
    }

    /// True if there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of slots that were ever given: all slots are below it.
    #[must_use]
    pub fn slots(&self) -> usize {
        either!(&self.table, slots => slots.keys.len())
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

/// Bytes of the longest key that is stored without a pointer.
const SHORT: usize = 16;

/// A key as its row's bytes.
trait Stored {
    fn new(row: &[u8]) -> Self;
    fn is(&self, row: &[u8]) -> bool;
    fn bytes(&self) -> &[u8];
}

impl Stored for Box<[u8]> {
    fn new(row: &[u8]) -> Self {
        row.into()
    }

    fn is(&self, row: &[u8]) -> bool {
        **self == *row
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Stored for [u8; SHORT] {
    /// Pads the row; all rows of an index have the same width.
    fn new(row: &[u8]) -> Self {
        let mut key = [0; SHORT];
        key[..row.len()].copy_from_slice(row);
        key
    }

    fn is(&self, row: &[u8]) -> bool {
        *self == Self::new(row)
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}

struct Slots<K> {
    /// Random, so that nobody can choose keys whose hashes collide.
    hasher: RandomState,
    /// Hash and slot of each key.
    table: HashTable<(u64, u32)>,
    /// Hash and key of each slot; stale if the slot is free.
    keys: Vec<(u64, K)>,
    /// For each slot, the last batch that had its key, and the key's position there.
    seen: Vec<(u64, i64)>,
    free: Vec<u32>,
    /// Number of the current batch. `FREE` marks free slots in `seen`.
    batch: u64,
}

const FREE: u64 = u64::MAX;

impl<K> Default for Slots<K> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            table: HashTable::new(),
            keys: Vec::new(),
            seen: Vec::new(),
            free: Vec::new(),
            batch: 0,
        }
    }
}

impl<K: Stored> Slots<K> {
    fn resolve<'a>(
        &mut self,
        rows: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<Resolved, IndexError> {
        self.batch += 1;
        let mut found = Resolved { rows: Vec::with_capacity(rows.len()), ..Resolved::default() };
        for (row, number) in rows.zip(0_i64..) {
            let hash = self.hasher.hash_one(row);
            let same =
                |&(other, slot): &(u64, u32)| other == hash && self.keys[slot as usize].1.is(row);
            let slot = match self.table.entry(hash, same, |entry| entry.0) {
                Entry::Occupied(entry) => entry.get().1,
                Entry::Vacant(place) => {
                    let slot = match self.free.pop() {
                        Some(slot) => {
                            self.keys[slot as usize] = (hash, K::new(row));
                            self.seen[slot as usize].0 = 0;
                            slot
                        }
                        None => {
                            let slot =
                                u32::try_from(self.keys.len()).map_err(|_| IndexError::Full)?;
                            self.keys.push((hash, K::new(row)));
                            self.seen.push((0, 0));
                            slot
                        }
                    };
                    place.insert((hash, slot));
                    found.new.push(position(&found.slots));
                    slot
                }
            };
            let seen = &mut self.seen[slot as usize];
            if seen.0 != self.batch {
                *seen = (self.batch, position(&found.slots));
                found.slots.push(i64::from(slot));
                found.first.push(number);
            }
            found.rows.push(seen.1);
        }
        Ok(found)
    }

    fn find(&self, row: &[u8]) -> i64 {
        let hash = self.hasher.hash_one(row);
        let same =
            |&(other, slot): &(u64, u32)| other == hash && self.keys[slot as usize].1.is(row);
        self.table.find(hash, same).map_or(-1, |&(_, slot)| i64::from(slot))
    }

    /// Index of a slot that holds a key.
    fn held(&self, slot: i64) -> Option<usize> {
        let index = usize::try_from(slot).ok()?;
        self.seen.get(index).filter(|seen| seen.0 != FREE).map(|_| index)
    }

    fn write(&self, slot: i64, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(self.keys[self.held(slot)?].1.bytes());
        Some(())
    }

    fn remove(&mut self, slot: i64) -> Option<()> {
        let index = self.held(slot)?;
        let number = u32::try_from(index).ok()?;
        self.table.find_entry(self.keys[index].0, |entry| entry.1 == number).ok()?.remove();
        self.seen[index].0 = FREE;
        self.free.push(number);
        Some(())
    }
}

fn position(slots: &[i64]) -> i64 {
    i64::try_from(slots.len()).unwrap_or(i64::MAX)
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
        let mut index = KeyIndex::try_new(&types(&of(&[]))).unwrap();
        let mut model: HashMap<Key, i64> = HashMap::new();
        for (added, removed) in batches {
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
        let mut index = KeyIndex::try_new(&[DataType::Float64]).unwrap();
        let found = index.resolve(&[Arc::new(Float64Array::from(keys)) as ArrayRef]).unwrap();
        assert_eq!(found.rows, [0, 0, 1, 2]);
    }

    #[test]
    fn columns_of_other_types_are_refused() {
        let mut index = KeyIndex::try_new(&[DataType::Int64]).unwrap();
        let other: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert!(matches!(index.resolve(&[other]), Err(IndexError::Columns(_))));
        assert!(index.is_empty());
    }
}
