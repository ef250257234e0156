//! One column at a time into the running hashes.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayAccessor};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

use super::murmur3::{hash_bytes, hash_int, hash_long};

/// Whether [`hash_into`] takes columns of this type.
pub(super) fn can_hash(data_type: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Boolean, Date32, Decimal128, FixedSizeBinary, Float32, Float64, Int8,
        Int16, Int32, Int64, LargeBinary, LargeUtf8, Null, Timestamp, Utf8, Utf8View,
    };
    matches!(
        data_type,
        Null | Boolean
            | Int8
            | Int16
            | Int32
            | Int64
            | Float32
            | Float64
            | Date32
            | Utf8
            | LargeUtf8
            | Utf8View
            | Binary
            | LargeBinary
            | BinaryView
            | FixedSizeBinary(_)
            | Timestamp(_, _)
            | Decimal128(_, _)
    )
}

/// Mixes a column into the hashes of its rows; false if its type is not supported.
pub(super) fn hash_into(array: &dyn Array, hashes: &mut [u32]) -> bool {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    match array.data_type() {
        DataType::Null => {}
        DataType::Boolean => {
            each(array.as_boolean(), hashes, |v, h| hash_int(u32::from(v), h));
        }
        DataType::Int8 => ints::<Int8Type>(array, hashes, i32::from),
        DataType::Int16 => ints::<Int16Type>(array, hashes, i32::from),
        DataType::Int32 => ints::<Int32Type>(array, hashes, |v| v),
        DataType::Date32 => ints::<Date32Type>(array, hashes, |v| v),
        DataType::Int64 => longs::<Int64Type>(array, hashes, |v| v),
        DataType::Timestamp(Second, _) => {
            longs::<TimestampSecondType>(array, hashes, |v| v.wrapping_mul(1_000_000));
        }
        DataType::Timestamp(Millisecond, _) => {
            longs::<TimestampMillisecondType>(array, hashes, |v| v.wrapping_mul(1_000));
        }
        DataType::Timestamp(Microsecond, _) => {
            longs::<TimestampMicrosecondType>(array, hashes, |v| v);
        }
        DataType::Timestamp(Nanosecond, _) => {
            longs::<TimestampNanosecondType>(array, hashes, |v| v.div_euclid(1_000));
        }
        DataType::Float32 => {
            primitives::<Float32Type>(array, hashes, |v, h| hash_int(float_bits(v), h))
        }
        DataType::Float64 => {
            primitives::<Float64Type>(array, hashes, |v, h| hash_long(double_bits(v), h))
        }
        DataType::Decimal128(precision, _) if *precision <= MAX_LONG_DIGITS => {
            primitives::<Decimal128Type>(array, hashes, |v, h| hash_long(low_half(v), h));
        }
        DataType::Decimal128(_, _) => primitives::<Decimal128Type>(array, hashes, |v, h| {
            let bytes = v.to_be_bytes();
            hash_bytes(&bytes[redundant_sign_bytes(v)..], h)
        }),
        DataType::Utf8 => {
            each(array.as_string::<i32>(), hashes, |v, h| hash_bytes(v.as_bytes(), h));
        }
        DataType::LargeUtf8 => {
            each(array.as_string::<i64>(), hashes, |v, h| hash_bytes(v.as_bytes(), h));
        }
        DataType::Utf8View => {
            each(array.as_string_view(), hashes, |v, h| hash_bytes(v.as_bytes(), h));
        }
        DataType::Binary => each(array.as_binary::<i32>(), hashes, hash_bytes),
        DataType::LargeBinary => each(array.as_binary::<i64>(), hashes, hash_bytes),
        DataType::BinaryView => each(array.as_binary_view(), hashes, hash_bytes),
        DataType::FixedSizeBinary(_) => each(array.as_fixed_size_binary(), hashes, hash_bytes),
        _ => return false,
    }
    true
}

fn ints<T: ArrowPrimitiveType>(
    array: &dyn Array,
    hashes: &mut [u32],
    widen: impl Fn(T::Native) -> i32,
) {
    primitives::<T>(array, hashes, |v, h| hash_int(widen(v).cast_unsigned(), h));
}

fn longs<T: ArrowPrimitiveType>(
    array: &dyn Array,
    hashes: &mut [u32],
    widen: impl Fn(T::Native) -> i64,
) {
    primitives::<T>(array, hashes, |v, h| hash_long(widen(v).cast_unsigned(), h));
}

fn primitives<T: ArrowPrimitiveType>(
    array: &dyn Array,
    hashes: &mut [u32],
    hash: impl Fn(T::Native, u32) -> u32,
) {
    let values = array.as_primitive::<T>().values();
    match nulls(array) {
        None => {
            for (h, &value) in hashes.iter_mut().zip(values.iter()) {
                *h = hash(value, *h);
            }
        }
        Some(nulls) => {
            for ((h, &value), valid) in hashes.iter_mut().zip(values.iter()).zip(nulls.iter()) {
                *h = if valid { hash(value, *h) } else { *h };
            }
        }
    }
}

fn each<A: ArrayAccessor>(array: A, hashes: &mut [u32], hash: impl Fn(A::Item, u32) -> u32) {
    match nulls(&array) {
        None => {
            for (row, h) in hashes.iter_mut().enumerate() {
                *h = hash(array.value(row), *h);
            }
        }
        Some(nulls) => {
            for ((row, h), valid) in hashes.iter_mut().enumerate().zip(nulls.iter()) {
                if valid {
                    *h = hash(array.value(row), *h);
                }
            }
        }
    }
}

fn nulls<A: Array + ?Sized>(array: &A) -> Option<&NullBuffer> {
    array.nulls().filter(|nulls| nulls.null_count() > 0)
}

fn float_bits(value: f32) -> u32 {
    if value.is_nan() {
        0x7fc0_0000
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

fn double_bits(value: f64) -> u64 {
    if value.is_nan() {
        0x7ff8_0000_0000_0000
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "18 digits fit a long")]
fn low_half(value: i128) -> u64 {
    value as u64
}

/// How many leading bytes only repeat the sign.
fn redundant_sign_bytes(value: i128) -> usize {
    let magnitude = if value < 0 { !value } else { value };
    // One bit more than the magnitude needs, for the sign.
    ((magnitude.leading_zeros() - 1) / 8) as usize
}

/// More digits than this do not fit a long.
const MAX_LONG_DIGITS: u8 = 18;
