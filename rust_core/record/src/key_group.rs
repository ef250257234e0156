//! Flink's key groups, `murmur(hashCode(key)) mod max_parallelism`, and the subtask that owns each.
//!
//! | Arrow type | hashes as the Java type |
//! |---|---|
//! | Boolean | `Boolean` |
//! | Int8, Int16, Int32 | `Byte`, `Short`, `Integer`: the value |
//! | Int64 | `Long`: xor of both halves |
//! | Float32, Float64 | `Float`, `Double`: the bits as an int or long; all NaNs are equal, and so are -0.0 and 0.0, as in SQL and unlike in Java |
//! | Utf8, also large and view | `String`: its UTF-16 code units in powers of 31 |
//! | Dictionary, run-end encoded | their decoded values |
//!
//! In Flink a key is one such column, and null is an error: [`Key::flink`]. The keys of keyed state are any columns, with
//! nulls: [`Key::of_state`].

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayAccessor, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};

use crate::hash::{self, HashError, KeyColumn, find_column, hash_int};
use crate::page::plain_type;

/// Maximum number of key groups.
pub const MAX_KEY_GROUPS: u32 = 1 << 15;

/// The columns of a key, and the hash that gives its key group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// One column, by Java's hash code.
    HashCode {
        /// Position of the column.
        column: usize,
        /// True if null has the group of the type's zero; false if it is an error.
        takes_null: bool,
    },
    /// Any columns, by Spark's hash.
    Hash(Vec<KeyColumn>),
}

impl Key {
    /// The key of Flink's `keyBy` over a named column, which is never null.
    ///
    /// # Errors
    /// The name is missing or ambiguous, or the type of the column has no hash code.
    pub fn flink(schema: &Schema, name: &str) -> Result<Self, HashError> {
        let column = find_column(schema, name)?;
        if !has_hash_code(&plain_type(schema.field(column).data_type())) {
            return Err(hash::unsupported(schema.field(column)));
        }
        Ok(Self::HashCode { column, takes_null: false })
    }

    /// The key of keyed state over columns at these positions. A single plain column has the groups of
    /// [`flink`](Self::flink), and null that of `false`, 0 or the empty string. Other keys have
    /// `pmod(murmur3(columns, 42), max_parallelism)`. Snapshots hold key groups, so this never changes.
    ///
    /// # Errors
    /// The type of a column cannot be hashed.
    pub fn of_state(schema: &Schema, columns: &[usize]) -> Result<Self, HashError> {
        if let &[column] = columns
            && is_plain(schema.field(column))
        {
            return Ok(Self::HashCode { column, takes_null: true });
        }
        hash::check_columns(schema, columns)?;
        Ok(Self::Hash(columns.iter().copied().map(KeyColumn::from).collect()))
    }

    /// The key of keyed state over named columns.
    ///
    /// # Errors
    /// As [`of_state`](Self::of_state), or a name is missing or ambiguous.
    pub fn of_state_by_name(schema: &Schema, names: &[String]) -> Result<Self, HashError> {
        let columns = names.iter().map(|name| find_column(schema, name));
        Self::of_state(schema, &columns.collect::<Result<Vec<_>, _>>()?)
    }

    /// Writes the key group of each row into `out`.
    ///
    /// # Errors
    /// A position does not exist, the type of a column has no hash, or a key is null that must not be; `out` is
    /// unspecified then.
    ///
    /// # Panics
    /// If `max_parallelism` is 0.
    pub fn groups(
        &self,
        batch: &RecordBatch,
        max_parallelism: u32,
        out: &mut Vec<u32>,
    ) -> Result<(), HashError> {
        assert!(max_parallelism > 0, "there is no group of none");
        match self {
            Self::Hash(columns) => hash::partition_ids(batch, columns, max_parallelism, out),
            Self::HashCode { column, takes_null } => {
                code_groups(batch, *column, *takes_null, out)?;
                for hash in out {
                    *hash = non_negative(hash_int(*hash, 0)) % max_parallelism;
                }
                Ok(())
            }
        }
    }
}

/// Writes the hash code of each row's key.
fn code_groups(
    batch: &RecordBatch,
    column: usize,
    takes_null: bool,
    out: &mut Vec<u32>,
) -> Result<(), HashError> {
    let Some(array) = batch.columns().get(column) else {
        return Err(HashError::NoSuchColumn { index: column, columns: batch.num_columns() });
    };
    let unsupported = || hash::unsupported(batch.schema_ref().field(column));
    let plain = plain_type(array.data_type());
    if !has_hash_code(&plain) {
        return Err(unsupported());
    }
    let array = if *array.data_type() == plain {
        ArrayRef::clone(array)
    } else {
        cast(array, &plain).map_err(|_| unsupported())?
    };
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(nulls) = nulls.filter(|_| !takes_null) {
        let row = nulls.iter().position(|valid| !valid).unwrap_or_default();
        let column = batch.schema_ref().field(column).name().clone();
        return Err(HashError::NullKey { column, row });
    }
    out.clear();
    hash_codes(array.as_ref(), out);
    Ok(())
}

/// Returns the subtask, of `parallelism`, that owns a key group.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "it is below the parallelism")]
pub fn operator_index(key_group: u32, parallelism: u32, max_parallelism: u32) -> u32 {
    let product = u64::from(key_group) * u64::from(parallelism);
    (product / u64::from(max_parallelism)) as u32
}

/// Flink's rule for a negative hash: its absolute value, or 0 for `i32::MIN`.
fn non_negative(hash: u32) -> u32 {
    let hash = hash.cast_signed();
    if hash == i32::MIN { 0 } else { hash.unsigned_abs() }
}

fn has_hash_code(plain: &DataType) -> bool {
    use DataType::{Boolean, Float32, Float64, Int8, Int16, Int32, Int64, LargeUtf8, Utf8};
    matches!(plain, Boolean | Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Utf8 | LargeUtf8)
}

/// Returns true for a column whose own type has a hash code: no dictionary, view or extension.
fn is_plain(field: &Field) -> bool {
    has_hash_code(field.data_type()) && field.extension_type_name().is_none()
}

/// Java's hash codes, as bits. Requires a type that [`has_hash_code`] accepts. Adding 0.0 makes 0.0 of -0.0.
fn hash_codes(array: &dyn Array, out: &mut Vec<u32>) {
    match array.data_type() {
        DataType::Boolean => {
            extend(array.as_boolean(), out, FALSE, |v| if v { TRUE } else { FALSE })
        }
        DataType::Int8 => {
            extend(array.as_primitive::<Int8Type>(), out, 0, |v| i32::from(v).cast_unsigned());
        }
        DataType::Int16 => {
            extend(array.as_primitive::<Int16Type>(), out, 0, |v| i32::from(v).cast_unsigned());
        }
        DataType::Int32 => extend(array.as_primitive::<Int32Type>(), out, 0, i32::cast_unsigned),
        DataType::Int64 => {
            extend(array.as_primitive::<Int64Type>(), out, 0, |v| fold(v.cast_unsigned()));
        }
        DataType::Float32 => extend(array.as_primitive::<Float32Type>(), out, 0, |v: f32| {
            if v.is_nan() { 0x7fc0_0000 } else { (v + 0.0).to_bits() }
        }),
        DataType::Float64 => extend(array.as_primitive::<Float64Type>(), out, 0, |v: f64| {
            fold(if v.is_nan() { 0x7ff8_0000_0000_0000 } else { (v + 0.0).to_bits() })
        }),
        DataType::LargeUtf8 => extend(array.as_string::<i64>(), out, 0, of_string),
        _ => extend(array.as_string::<i32>(), out, 0, of_string),
    }
}

/// Hash codes of Java's `Boolean`.
const TRUE: u32 = 1231;
const FALSE: u32 = 1237;

/// Appends the hash of each value, and `zero` for null.
fn extend<A: ArrayAccessor>(
    array: A,
    out: &mut Vec<u32>,
    zero: u32,
    hash: impl Fn(A::Item) -> u32,
) {
    let rows = 0..array.len();
    if array.null_count() == 0 {
        out.extend(rows.map(|row| hash(array.value(row))));
    } else {
        out.extend(rows.map(|row| if array.is_null(row) { zero } else { hash(array.value(row)) }));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
fn fold(value: u64) -> u32 {
    (value ^ (value >> 32)) as u32
}

fn of_string(text: &str) -> u32 {
    let units = text.encode_utf16();
    units.fold(0, |hash: u32, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BooleanArray, Float64Array, Int32Array, RecordBatchOptions, StringArray};

    use super::*;

    fn groups(keys: ArrayRef, max_parallelism: u32) -> Result<Vec<u32>, HashError> {
        let batch = RecordBatch::try_from_iter([("k", keys)]).unwrap();
        let mut out = vec![9; 3];
        let key = Key::flink(&batch.schema(), "k")?;
        key.groups(&batch, max_parallelism, &mut out).map(|()| out)
    }

    /// The hashes themselves: no group is as large as their number.
    fn hashes(keys: impl Array + 'static) -> Vec<u32> {
        groups(Arc::new(keys), 1 << 31).unwrap()
    }

    #[test]
    fn ints_have_the_groups_that_flink_gives_them() {
        let keys = [0, 1, 2, 3, 42, -1, 1000, i32::MAX, i32::MIN];
        let expected = [
            593_689_054,
            68_075_478,
            1_085_422_463,
            847_579_505,
            1_134_849_565,
            1_982_413_648,
            3_506_311,
            1_653_689_534,
            1_718_298_732,
        ];
        assert_eq!(hashes(Int32Array::from(keys.to_vec())), expected);
        let in_128 = groups(Arc::new(Int32Array::from(keys.to_vec())), 128).unwrap();
        assert_eq!(in_128, [94, 86, 127, 113, 29, 80, 7, 62, 108]);
    }

    #[test]
    fn strings_have_the_groups_that_flink_gives_them() {
        let keys = ["", "a", "hello", "flink", "key-1"];
        let expected = [593_689_054, 1_455_541_201, 1_715_862_179, 1_330_823_394, 23_124_534];
        assert_eq!(hashes(StringArray::from(keys.to_vec())), expected);
        let in_128 = groups(Arc::new(StringArray::from(keys.to_vec())), 128).unwrap();
        assert_eq!(in_128, [94, 81, 35, 98, 54]);
    }

    #[test]
    fn a_null_key_is_named() {
        let keys = Float64Array::from(vec![Some(1.0), Some(f64::NAN), None]);
        let error = groups(Arc::new(keys), 128).unwrap_err();
        assert_eq!(error, HashError::NullKey { column: "k".to_owned(), row: 2 });
    }

    /// The key groups of keyed state over all columns.
    fn of_state(columns: Vec<ArrayRef>) -> Vec<u32> {
        let columns = columns.into_iter().enumerate();
        let columns = columns.map(|(at, column)| (at.to_string(), column, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let all: Vec<_> = (0..batch.num_columns()).collect();
        let key = Key::of_state(&batch.schema(), &all).unwrap();
        let mut out = Vec::new();
        key.groups(&batch, MAX_KEY_GROUPS, &mut out).unwrap();
        out
    }

    #[test]
    fn a_null_key_of_state_has_the_group_of_its_types_zero() {
        let ints = of_state(vec![Arc::new(Int32Array::from(vec![Some(1), None, Some(0)]))]);
        assert_eq!(ints, [68_075_478, 593_689_054, 593_689_054].map(|hash| hash % MAX_KEY_GROUPS));
        let texts = of_state(vec![Arc::new(StringArray::from(vec![None, Some(""), Some("a")]))]);
        assert_eq!(texts[0], texts[1]);
        assert_ne!(texts[0], texts[2]);
        let flags =
            of_state(vec![Arc::new(BooleanArray::from(vec![None, Some(false), Some(true)]))]);
        assert_eq!(flags[0], flags[1]);
        assert_ne!(flags[0], flags[2]);
    }

    #[test]
    fn keys_of_state_that_are_no_single_plain_column_have_the_hash_of_spark() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b")]));
        let ints: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None]));
        let view = cast(&texts, &DataType::Utf8View).unwrap();
        let key = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let dictionary = cast(&texts, &key).unwrap();
        for columns in [vec![Arc::clone(&texts), ints], vec![view], vec![dictionary], vec![]] {
            let pairs =
                columns.iter().enumerate().map(|(at, array)| (at.to_string(), array.clone()));
            let rows = RecordBatchOptions::new().with_row_count(Some(3));
            let pairs: Vec<_> = pairs.collect();
            let fields = pairs.iter().map(|(n, c)| Field::new(n, c.data_type().clone(), true));
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let batch = RecordBatch::try_new_with_options(schema, columns, &rows).unwrap();
            let all: Vec<_> = (0..batch.num_columns()).collect();
            let (mut groups, mut ids) = (Vec::new(), Vec::new());
            let key = Key::of_state(&batch.schema(), &all).unwrap();
            key.groups(&batch, 128, &mut groups).unwrap();
            let all: Vec<_> = all.into_iter().map(KeyColumn::from).collect();
            hash::partition_ids(&batch, &all, 128, &mut ids).unwrap();
            assert_eq!(groups, ids);
            assert_eq!(groups.len(), 3);
        }
    }

    #[test]
    fn zeros_have_one_group() {
        let zeros = hashes(Float64Array::from(vec![0.0, -0.0]));
        assert_eq!(zeros[0], zeros[1]);
    }

    #[test]
    fn the_smallest_hash_has_no_opposite() {
        assert_eq!(non_negative(0x8000_0000), 0);
        assert_eq!(non_negative(u32::MAX), 1);
        assert_eq!(non_negative(7), 7);
    }
}
