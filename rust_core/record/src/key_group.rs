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
//! A null key is an error, as in Flink.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayAccessor, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Schema};

use crate::hash::{HashError, hash_int};
use crate::page::plain_type;

/// Maximum number of key groups.
pub const MAX_KEY_GROUPS: u32 = 1 << 15;

/// Returns the position of a key column.
///
/// # Errors
/// The name is missing or ambiguous, or the type of the column has no hash code.
pub fn resolve_key(schema: &Schema, name: &str) -> Result<usize, HashError> {
    let index = crate::hash::find_column(schema, name)?;
    if !can_hash(&plain_type(schema.field(index).data_type())) {
        return Err(crate::hash::unsupported(schema.field(index)));
    }
    Ok(index)
}

/// Writes the key group of each row into `out`.
///
/// # Errors
/// The position does not exist, the type of the column has no hash code, or a key is null; `out` is
/// unspecified then.
///
/// # Panics
/// If `max_parallelism` is 0.
pub fn key_groups(
    batch: &RecordBatch,
    column: usize,
    max_parallelism: u32,
    out: &mut Vec<u32>,
) -> Result<(), HashError> {
    assert!(max_parallelism > 0, "there is no group of none");
    let Some(array) = batch.columns().get(column) else {
        return Err(HashError::NoSuchColumn { index: column, columns: batch.num_columns() });
    };
    let unsupported = || crate::hash::unsupported(batch.schema_ref().field(column));
    let plain = plain_type(array.data_type());
    if !can_hash(&plain) {
        return Err(unsupported());
    }
    let array = if *array.data_type() == plain {
        ArrayRef::clone(array)
    } else {
        cast(array, &plain).map_err(|_| unsupported())?
    };
    if let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) {
        let row = nulls.iter().position(|valid| !valid).unwrap_or_default();
        let column = batch.schema_ref().field(column).name().clone();
        return Err(HashError::NullKey { column, row });
    }
    out.clear();
    hash_codes(array.as_ref(), out);
    for hash in out {
        *hash = non_negative(hash_int(*hash, 0)) % max_parallelism;
    }
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

fn can_hash(plain: &DataType) -> bool {
    use DataType::{Boolean, Float32, Float64, Int8, Int16, Int32, Int64, LargeUtf8, Utf8};
    matches!(plain, Boolean | Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Utf8 | LargeUtf8)
}

/// Java's hash codes, as bits. Requires a type that [`can_hash`] accepts, and no nulls. Adding 0.0 makes 0.0 of -0.0.
fn hash_codes(array: &dyn Array, out: &mut Vec<u32>) {
    match array.data_type() {
        DataType::Boolean => extend(array.as_boolean(), out, |v| if v { 1231 } else { 1237 }),
        DataType::Int8 => {
            extend(array.as_primitive::<Int8Type>(), out, |v| i32::from(v).cast_unsigned());
        }
        DataType::Int16 => {
            extend(array.as_primitive::<Int16Type>(), out, |v| i32::from(v).cast_unsigned());
        }
        DataType::Int32 => extend(array.as_primitive::<Int32Type>(), out, i32::cast_unsigned),
        DataType::Int64 => {
            extend(array.as_primitive::<Int64Type>(), out, |v| fold(v.cast_unsigned()));
        }
        DataType::Float32 => extend(array.as_primitive::<Float32Type>(), out, |v: f32| {
            if v.is_nan() { 0x7fc0_0000 } else { (v + 0.0).to_bits() }
        }),
        DataType::Float64 => extend(array.as_primitive::<Float64Type>(), out, |v: f64| {
            fold(if v.is_nan() { 0x7ff8_0000_0000_0000 } else { (v + 0.0).to_bits() })
        }),
        DataType::LargeUtf8 => extend(array.as_string::<i64>(), out, of_string),
        _ => extend(array.as_string::<i32>(), out, of_string),
    }
}

fn extend<A: ArrayAccessor>(array: A, out: &mut Vec<u32>, hash: impl Fn(A::Item) -> u32) {
    out.extend((0..array.len()).map(|row| hash(array.value(row))));
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

    use arrow_array::{Float64Array, Int32Array, StringArray};

    use super::*;

    fn groups(keys: ArrayRef, max_parallelism: u32) -> Result<Vec<u32>, HashError> {
        let batch = RecordBatch::try_from_iter([("k", keys)]).unwrap();
        let mut out = vec![9; 3];
        key_groups(&batch, 0, max_parallelism, &mut out).map(|()| out)
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
