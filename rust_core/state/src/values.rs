//! Arrow values by position.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, GenericListArray, OffsetSizeTrait, StructArray, new_empty_array,
    new_null_array,
};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;

use crate::places::Places;
use crate::settle::{settled, want};
use crate::{Reserved, StateMemory};

/// Arrays are joined into one this many times as long as the longest of them, or longer.
const FAN: usize = 8;
/// Of this many values one may be dropped, and move with the others: choosing costs more than it does.
const FEW: usize = 16;

/// Failures of values.
#[derive(Debug, thiserror::Error)]
pub enum ValuesError {
    /// The values are of another type, or too large for one array.
    #[error("values do not fit into one array: {0}")]
    Arrow(#[from] ArrowError),
    /// There is no memory for the values.
    #[error("there is no room for more values: {0}")]
    NoRoom(std::io::Error),
    /// No value was put there, or it was dropped.
    #[error("position {0} holds no value")]
    NoValue(i64),
}

/// Values of one type, in arrays that never change. The position of a value never changes either, and is not used again.
///
/// A value that is dropped stays in its array. When more than half of an array is dropped, the others move to a new
/// one: an array at a time, so that no call takes time for all values. Small arrays that follow each other are joined.
#[derive(Debug)]
pub struct Values {
    data_type: DataType,
    arrays: Vec<Held>,
    next: i64,
    limits: Limits,
    memory: StateMemory,
    /// Values that moved.
    #[cfg(test)]
    moved: usize,
}

/// Values as they were at one moment.
#[derive(Debug)]
pub struct FrozenValues {
    data_type: DataType,
    parts: Vec<Arc<Part>>,
    memory: StateMemory,
}

#[derive(Debug)]
struct Part {
    values: ArrayRef,
    places: Places,
    /// The bytes of values that are not in blocks of the memory of state.
    _reserved: Option<Reserved>,
}

/// A part of the values, and which of them are not dropped.
#[derive(Debug)]
struct Held {
    part: Arc<Part>,
    is_alive: BooleanBufferBuilder,
    alive: usize,
    bytes: usize,
}

/// Most values and bytes of arrays that are joined into one.
#[derive(Clone, Copy, Debug)]
struct Limits {
    rows: usize,
    bytes: usize,
}

impl Values {
    /// Creates an empty store.
    #[must_use]
    pub fn new(data_type: &DataType, memory: &StateMemory) -> Self {
        Self {
            data_type: nullable(&new_empty_array(data_type)).data_type().clone(),
            arrays: Vec::new(),
            next: 1,
            limits: Limits { rows: 1 << 19, bytes: 1 << 26 },
            memory: memory.clone(),
            #[cfg(test)]
            moved: 0,
        }
    }

    /// Drops the values at some positions, as [`Self::drop_at`] does, and stores others. Returns the position of the
    /// first, which is at least 1; the others follow it.
    ///
    /// # Errors
    /// The values are of another type, and nothing is stored or dropped; or there is no memory.
    pub fn put(&mut self, values: &ArrayRef, replaced: &[i64]) -> Result<i64, ValuesError> {
        let values = nullable(values);
        if *values.data_type() != self.data_type {
            let types = format!("{} is not {}", values.data_type(), self.data_type);
            return Err(ArrowError::SchemaError(types).into());
        }
        self.bury(replaced);
        let (first, rows) = (self.next, values.len());
        if rows > 0 {
            self.next = first.saturating_add_unsigned(rows as u64);
            let mut is_alive = BooleanBufferBuilder::new(rows);
            is_alive.append_n(rows, true);
            let places = Places::dense(first, rows);
            self.arrays.push(Held::new(&values, places, is_alive, rows, &self.memory)?);
            self.tidy(self.arrays.len() - 1)?;
        }
        self.clean(1 + rows / self.limits.rows)?;
        Ok(first)
    }

    /// Drops the values at some positions. 0 is none, and a value may be dropped twice in one call.
    ///
    /// # Errors
    /// Values that move cannot be put into one array.
    pub fn drop_at(&mut self, positions: &[i64]) -> Result<(), ValuesError> {
        self.bury(positions);
        self.clean(1)
    }

    /// Returns the values as they are now. No value is copied.
    #[must_use]
    pub fn freeze(&self) -> FrozenValues {
        let parts = self.arrays.iter().map(|held| held.part.clone()).collect();
        let (data_type, memory) = (self.data_type.clone(), self.memory.clone());
        FrozenValues { data_type, parts, memory }
    }

    /// Returns the same values as structs of a type with more fields, which are null.
    ///
    /// # Errors
    /// The values or the type are no structs.
    pub fn evolved(&self, data_type: &DataType) -> Result<Self, ValuesError> {
        let mut evolved = Self::new(data_type, &self.memory);
        let DataType::Struct(fields) = &evolved.data_type else {
            return Err(ArrowError::SchemaError(format!("{data_type} is no struct")).into());
        };
        let arrays = self.arrays.iter().map(|held| {
            let values: ArrayRef = Arc::new(with_fields(&held.part.values, fields)?);
            held.with(&values, &self.memory)
        });
        evolved.arrays = arrays.collect::<Result<_, ValuesError>>()?;
        evolved.next = self.next;
        Ok(evolved)
    }

    /// Number of values in memory, with those that are dropped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arrays.iter().map(Held::len).sum()
    }

    /// True if there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    fn bury(&mut self, positions: &[i64]) {
        let firsts: Vec<_> = self.arrays.iter().map(|held| held.part.places.first).collect();
        for &position in positions {
            if let Some((at, row)) = place(&firsts, position, |at| &self.arrays[at].part) {
                let held = &mut self.arrays[at];
                held.alive -= usize::from(held.is_alive.get_bit(row));
                held.is_alive.set_bit(row, false);
            }
        }
    }

    /// Frees the arrays without values, and the dropped values of some of those that have mostly these.
    fn clean(&mut self, most: usize) -> Result<(), ValuesError> {
        self.arrays.retain(|held| held.alive > 0);
        for _ in 0..most {
            let worn = (0..self.arrays.len()).filter(|&at| self.arrays[at].is_worn());
            let Some(at) = worn.min_by_key(|&at| self.arrays[at].alive_share()) else { break };
            self.tidy(at)?;
        }
        Ok(())
    }

    /// Joins an array with those beside it into one that is [`FAN`] times as long as the longest, so that a value
    /// moves log(n) times; one that is worn moves alone if there are none.
    fn tidy(&mut self, at: usize) -> Result<(), ValuesError> {
        let mut best = self.arrays[at].is_worn().then(|| at..at + 1);
        let mut range = at..at + 1;
        let (mut rows, mut bytes) = (self.arrays[at].alive, self.arrays[at].alive_bytes());
        let mut longest = rows;
        loop {
            let before = range.start.checked_sub(1);
            let beside = [before, Some(range.end)].into_iter().flatten();
            let beside = beside.filter_map(|n| Some((n, self.arrays.get(n)?)));
            let Some((n, held)) = beside.min_by_key(|(_, held)| held.alive) else { break };
            rows += held.alive;
            bytes += held.alive_bytes();
            if rows > self.limits.rows || bytes > self.limits.bytes {
                break;
            }
            longest = longest.max(held.alive);
            range = range.start.min(n)..range.end.max(n + 1);
            if rows >= FAN * longest {
                best = Some(range.clone());
            }
        }
        best.map_or(Ok(()), |range| self.rewrite(range))
    }

    /// Moves the values of some arrays into one.
    fn rewrite(&mut self, range: Range<usize>) -> Result<(), ValuesError> {
        let held = &self.arrays[range.clone()];
        let arrays: Vec<_> = held.iter().map(|held| held.part.values.as_ref()).collect();
        let rows = held.iter().map(Held::len).sum();
        let alive = held.iter().map(|held| held.alive).sum();
        let mut positions = Vec::with_capacity(rows);
        let mut is_alive = BooleanBufferBuilder::new(rows);
        for held in held {
            held.part.places.write(&mut positions);
            is_alive.append_packed_range(0..held.len(), held.is_alive.as_slice());
        }
        let values = if (rows - alive) * FEW <= rows {
            concat(&arrays)?
        } else {
            let all = arrays.iter().enumerate();
            let all = all.flat_map(|(at, array)| (0..array.len()).map(move |row| (at, row)));
            let chosen: Vec<_> =
                all.enumerate().filter(|&(n, _)| is_alive.get_bit(n)).map(|(_, at)| at).collect();
            let mut n = 0..;
            positions.retain(|_| n.next().is_some_and(|n| is_alive.get_bit(n)));
            is_alive.truncate(0);
            is_alive.append_n(alive, true);
            interleave(&arrays, &chosen)?
        };
        #[cfg(test)]
        {
            self.moved += values.len();
        }
        let places = Places::of(&positions, &self.memory).map_err(ValuesError::NoRoom)?;
        let joined = Held::new(&values, places, is_alive, alive, &self.memory)?;
        self.arrays.splice(range, [joined]);
        Ok(())
    }
}

impl FrozenValues {
    /// Returns the values at positions in one array; null for 0.
    ///
    /// # Errors
    /// A position holds no value, or the values are too large for one array.
    pub fn take(&self, positions: &[i64]) -> Result<ArrayRef, ValuesError> {
        let firsts: Vec<_> = self.parts.iter().map(|part| part.places.first).collect();
        let null = positions.contains(&0).then(|| new_null_array(&self.data_type, 1));
        let mut arrays: Vec<&dyn Array> = null.iter().map(AsRef::as_ref).collect();
        // Of each part, its index among the arrays with any of the values.
        let mut indices = vec![None; self.parts.len()];
        let mut places = Vec::with_capacity(positions.len());
        for &position in positions {
            if position == 0 {
                places.push((0, 0));
                continue;
            }
            let place = place(&firsts, position, |at| &self.parts[at]);
            let (at, row) = place.ok_or(ValuesError::NoValue(position))?;
            let index = *indices[at].get_or_insert_with(|| {
                arrays.push(&self.parts[at].values);
                arrays.len() - 1
            });
            places.push((index, row));
        }
        if arrays.is_empty() {
            return Ok(new_empty_array(&self.data_type));
        }
        if self.memory.usage().in_files > 0 {
            for (at, array) in arrays.iter().enumerate() {
                let rows = places.iter().filter(|place| place.0 == at).map(|place| place.1);
                want(*array, &rows.collect::<Vec<_>>(), &self.memory);
            }
        }
        Ok(interleave(&arrays, &places)?)
    }
}

impl Held {
    /// Keeps values, in blocks of the memory of state if it has no room for them as they are.
    fn new(
        values: &ArrayRef,
        places: Places,
        is_alive: BooleanBufferBuilder,
        alive: usize,
        memory: &StateMemory,
    ) -> Result<Self, ValuesError> {
        let bytes = size_of(values);
        let reserved = memory.hold(bytes);
        let values = match reserved {
            Some(_) => values.clone(),
            None => settled(values, memory).map_err(ValuesError::NoRoom)?,
        };
        let part = Arc::new(Part { values, places, _reserved: reserved });
        Ok(Self { part, is_alive, alive, bytes })
    }

    /// The same with other values at the same positions.
    fn with(&self, values: &ArrayRef, memory: &StateMemory) -> Result<Self, ValuesError> {
        let mut is_alive = BooleanBufferBuilder::new(self.len());
        is_alive.append_packed_range(0..self.len(), self.is_alive.as_slice());
        let mut positions = Vec::with_capacity(self.len());
        self.part.places.write(&mut positions);
        let places = Places::of(&positions, memory).map_err(ValuesError::NoRoom)?;
        Self::new(values, places, is_alive, self.alive, memory)
    }

    fn len(&self) -> usize {
        self.part.values.len()
    }

    fn is_worn(&self) -> bool {
        2 * self.alive < self.len()
    }

    /// Values that are not dropped, of each 1024.
    fn alive_share(&self) -> usize {
        self.alive * 1024 / self.len()
    }

    /// Bytes of the values that are not dropped, about.
    fn alive_bytes(&self) -> usize {
        self.bytes / self.len() * self.alive
    }
}

/// The part and the row of a position.
fn place<'a>(
    firsts: &[i64],
    position: i64,
    part: impl FnOnce(usize) -> &'a Arc<Part>,
) -> Option<(usize, usize)> {
    let at = firsts.partition_point(|&first| first <= position).checked_sub(1)?;
    Some((at, part(at).places.row(position)?))
}

/// Bytes of an array, without those that its slices have and it has not.
fn size_of(array: &dyn Array) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_buffer_memory_size())
}

/// Returns structs with the fields of a type; those that they do not have are null.
fn with_fields(values: &ArrayRef, fields: &Fields) -> Result<StructArray, ArrowError> {
    let Some(old) = values.as_struct_opt() else {
        return Err(ArrowError::SchemaError(format!("{} is no struct", values.data_type())));
    };
    let columns = fields.iter().map(|field| {
        let column = old.column_by_name(field.name()).cloned();
        column.unwrap_or_else(|| new_null_array(field.data_type(), old.len()))
    });
    let nulls = old.nulls().cloned();
    StructArray::try_new_with_length(fields.clone(), columns.collect(), nulls, old.len())
}

/// Returns the array with fields that may be null and have no metadata, at any depth of structs and lists: pyarrow lets
/// others have nulls too, which arrow refuses to copy, and takes types with other metadata for the same.
fn nullable(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Struct(fields) => {
            let columns: Vec<_> = array.as_struct().columns().iter().map(nullable).collect();
            let fields = fields.iter().zip(&columns).map(|(field, column)| with(field, column));
            let nulls = array.nulls().cloned();
            let of =
                StructArray::try_new_with_length(fields.collect(), columns, nulls, array.len());
            of.map_or_else(|_| array.clone(), |of| Arc::new(of))
        }
        DataType::List(field) => nullable_list::<i32>(array, field),
        DataType::LargeList(field) => nullable_list::<i64>(array, field),
        _ => array.clone(),
    }
}

fn nullable_list<O: OffsetSizeTrait>(array: &ArrayRef, field: &FieldRef) -> ArrayRef {
    let list = array.as_list::<O>();
    let values = nullable(list.values());
    let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
    let of = GenericListArray::try_new(with(field, &values), offsets, values, nulls);
    of.map_or_else(|_| array.clone(), |of| Arc::new(of))
}

fn with(field: &Field, column: &ArrayRef) -> FieldRef {
    Arc::new(Field::new(field.name(), column.data_type().clone(), true))
}

#[cfg(test)]
mod tests;
