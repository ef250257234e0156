//! Mixes one column at a time into the hashes of the rows.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayAccessor, ArrayRef, GenericListArray, OffsetSizeTrait, PrimitiveArray,
};
use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};
use fearless_simd::{Level, dispatch};

use super::murmur3::{hash_bytes, hash_int, hash_long};
use crate::page::plain_type;

/// Returns true if [`hash_into`] supports the type.
pub(super) fn can_hash(data_type: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Struct};
    match plain_type(data_type) {
        List(item) | LargeList(item) | FixedSizeList(item, _) => can_hash(item.data_type()),
        Struct(fields) => fields.iter().all(|field| can_hash(field.data_type())),
        flat => can_hash_flat(&flat),
    }
}

fn can_hash_flat(data_type: &DataType) -> bool {
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

/// Mixes a field of a column into the hashes of its rows; false if its type is not supported.
///
/// Each position in `fields` leads from a struct to one of its fields; without any it is the column. As
/// in Spark, the field of a null is null.
pub(super) fn hash_field_into(array: &ArrayRef, fields: &[usize], hashes: &mut [u32]) -> bool {
    let Some((&first, rest)) = fields.split_first() else {
        return hash_into(array, hashes);
    };
    let Some(field) = array.as_struct_opt().and_then(|it| it.columns().get(first)) else {
        return false;
    };
    let before = array.nulls().map(|nulls| (nulls, hashes.to_vec()));
    if !hash_field_into(field, rest, hashes) {
        return false;
    }
    if let Some((nulls, before)) = before {
        for (row, h) in hashes.iter_mut().enumerate().filter(|&(row, _)| nulls.is_null(row)) {
            *h = before[row];
        }
    }
    true
}

/// Mixes a column into the hashes of its rows; false if its type is not supported.
fn hash_into(array: &ArrayRef, hashes: &mut [u32]) -> bool {
    if can_hash_flat(array.data_type()) {
        return visit(array.as_ref(), AllRows(hashes)).is_some();
    }
    let Ok(plain) = cast(array, &plain_type(array.data_type())) else {
        return false;
    };
    let Some(hash) = row_hasher(plain.as_ref()) else {
        return false;
    };
    for (row, h) in hashes.iter_mut().enumerate() {
        *h = hash(row, *h);
    }
    true
}

/// Mixes the value of a row into a hash.
type RowHasher<'a> = Box<dyn Fn(usize, u32) -> u32 + 'a>;

/// Used for nested columns and their parents.
fn row_hasher(array: &dyn Array) -> Option<RowHasher<'_>> {
    let valid = |row: usize| nulls(array).is_none_or(|nulls| nulls.is_valid(row));
    Some(match array.data_type() {
        DataType::Struct(_) => {
            let fields = array.as_struct().columns().iter();
            let fields = fields.map(|field| row_hasher(field)).collect::<Option<Vec<_>>>()?;
            Box::new(move |row, h| {
                let all = || fields.iter().fold(h, |h, field| field(row, h));
                if valid(row) { all() } else { h }
            })
        }
        DataType::List(_) => elements_hasher(array, array.as_list::<i32>())?,
        DataType::LargeList(_) => elements_hasher(array, array.as_list::<i64>())?,
        DataType::FixedSizeList(_, _) => {
            let list = array.as_fixed_size_list();
            let (element, times) = (row_hasher(list.values())?, list.value_length().as_usize());
            Box::new(move |row, h| {
                let all = || (row * times..(row + 1) * times).fold(h, |h, row| element(row, h));
                if valid(row) { all() } else { h }
            })
        }
        _ => visit(array, OneRow)?,
    })
}

fn elements_hasher<'a, O: OffsetSizeTrait>(
    array: &'a dyn Array,
    list: &'a GenericListArray<O>,
) -> Option<RowHasher<'a>> {
    let element = row_hasher(list.values())?;
    let offsets = list.value_offsets();
    let nulls = nulls(array);
    Some(Box::new(move |row, h| {
        let all = || {
            let elements = offsets[row].as_usize()..offsets[row + 1].as_usize();
            elements.fold(h, |h, row| element(row, h))
        };
        if nulls.is_none_or(|nulls| nulls.is_valid(row)) { all() } else { h }
    }))
}

/// Operation on a flat column with the hash function of its type.
trait Visitor<'a> {
    type Output;

    fn nothing(self) -> Self::Output;

    fn words<T: ArrowPrimitiveType>(
        self,
        array: &'a PrimitiveArray<T>,
        hash: impl Fn(T::Native, u32) -> u32 + 'a,
    ) -> Self::Output;

    fn values<A: ArrayAccessor + 'a>(
        self,
        array: A,
        hash: impl Fn(A::Item, u32) -> u32 + 'a,
    ) -> Self::Output;
}

/// Mixes the values of all rows into their hashes.
struct AllRows<'h>(&'h mut [u32]);

impl<'a> Visitor<'a> for AllRows<'_> {
    type Output = ();

    fn nothing(self) {}

    fn words<T: ArrowPrimitiveType>(
        self,
        array: &'a PrimitiveArray<T>,
        hash: impl Fn(T::Native, u32) -> u32 + 'a,
    ) {
        let (values, hashes): (&[T::Native], _) = (array.values(), self.0);
        let level = Level::new();
        match nulls(array) {
            None => dispatch!(level, _simd => mix_all(values, hashes, &hash)),
            Some(nulls) => {
                let valid = nulls.inner().bit_chunks();
                dispatch!(level, _simd => mix_valid(values, valid.iter_padded(), hashes, &hash));
            }
        }
    }

    fn values<A: ArrayAccessor + 'a>(self, array: A, hash: impl Fn(A::Item, u32) -> u32 + 'a) {
        let hashes = self.0;
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
}

/// Returns the function that mixes the value of one row into a hash.
struct OneRow;

impl<'a> Visitor<'a> for OneRow {
    type Output = RowHasher<'a>;

    fn nothing(self) -> RowHasher<'a> {
        Box::new(|_, h| h)
    }

    fn words<T: ArrowPrimitiveType>(
        self,
        array: &'a PrimitiveArray<T>,
        hash: impl Fn(T::Native, u32) -> u32 + 'a,
    ) -> RowHasher<'a> {
        self.values(array, hash)
    }

    fn values<A: ArrayAccessor + 'a>(
        self,
        array: A,
        hash: impl Fn(A::Item, u32) -> u32 + 'a,
    ) -> RowHasher<'a> {
        Box::new(move |row, h| if array.is_valid(row) { hash(array.value(row), h) } else { h })
    }
}

/// Calls a visitor with a column, by the table in the parent module; `None` for an unsupported
/// type.
fn visit<'a, V: Visitor<'a>>(array: &'a dyn Array, visitor: V) -> Option<V::Output> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    Some(match array.data_type() {
        DataType::Null => visitor.nothing(),
        DataType::Boolean => visitor.values(array.as_boolean(), |v, h| hash_int(u32::from(v), h)),
        DataType::Int8 => ints::<Int8Type, _>(array, visitor, i32::from),
        DataType::Int16 => ints::<Int16Type, _>(array, visitor, i32::from),
        DataType::Int32 => ints::<Int32Type, _>(array, visitor, |v| v),
        DataType::Date32 => ints::<Date32Type, _>(array, visitor, |v| v),
        DataType::Int64 => longs::<Int64Type, _>(array, visitor, |v| v),
        DataType::Timestamp(Second, _) => {
            longs::<TimestampSecondType, _>(array, visitor, |v| v.wrapping_mul(1_000_000))
        }
        DataType::Timestamp(Millisecond, _) => {
            longs::<TimestampMillisecondType, _>(array, visitor, |v| v.wrapping_mul(1_000))
        }
        DataType::Timestamp(Microsecond, _) => {
            longs::<TimestampMicrosecondType, _>(array, visitor, |v| v)
        }
        DataType::Timestamp(Nanosecond, _) => {
            longs::<TimestampNanosecondType, _>(array, visitor, |v| v.div_euclid(1_000))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            visitor.words(array, |v, h| hash_int(float_bits(v), h))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            visitor.words(array, |v, h| hash_long(double_bits(v), h))
        }
        DataType::Decimal128(precision, _) if *precision <= MAX_LONG_DIGITS => {
            let array = array.as_primitive::<Decimal128Type>();
            visitor.words(array, |v, h| hash_long(low_half(v), h))
        }
        DataType::Decimal128(_, _) => {
            visitor.values(array.as_primitive::<Decimal128Type>(), |v, h| {
                let bytes = v.to_be_bytes();
                hash_bytes(&bytes[redundant_sign_bytes(v)..], h)
            })
        }
        DataType::Utf8 => {
            visitor.values(array.as_string::<i32>(), |v, h| hash_bytes(v.as_bytes(), h))
        }
        DataType::LargeUtf8 => {
            visitor.values(array.as_string::<i64>(), |v, h| hash_bytes(v.as_bytes(), h))
        }
        DataType::Utf8View => {
            visitor.values(array.as_string_view(), |v, h| hash_bytes(v.as_bytes(), h))
        }
        DataType::Binary => visitor.values(array.as_binary::<i32>(), hash_bytes),
        DataType::LargeBinary => visitor.values(array.as_binary::<i64>(), hash_bytes),
        DataType::BinaryView => visitor.values(array.as_binary_view(), hash_bytes),
        DataType::FixedSizeBinary(_) => visitor.values(array.as_fixed_size_binary(), hash_bytes),
        _ => return None,
    })
}

fn ints<'a, T: ArrowPrimitiveType, V: Visitor<'a>>(
    array: &'a dyn Array,
    visitor: V,
    widen: impl Fn(T::Native) -> i32 + 'a,
) -> V::Output {
    let array = array.as_primitive::<T>();
    visitor.words(array, move |v, h| hash_int(widen(v).cast_unsigned(), h))
}

fn longs<'a, T: ArrowPrimitiveType, V: Visitor<'a>>(
    array: &'a dyn Array,
    visitor: V,
    widen: impl Fn(T::Native) -> i64 + 'a,
) -> V::Output {
    let array = array.as_primitive::<T>();
    visitor.words(array, move |v, h| hash_long(widen(v).cast_unsigned(), h))
}

#[inline(always)]
fn mix_all<T: Copy>(values: &[T], hashes: &mut [u32], hash: &impl Fn(T, u32) -> u32) {
    for (h, &value) in hashes.iter_mut().zip(values) {
        *h = hash(value, *h);
    }
}

/// Mixes the values whose bit is set, in words of 64 bits.
#[inline(always)]
fn mix_valid<T: Copy>(
    values: &[T],
    valid: impl Iterator<Item = u64>,
    hashes: &mut [u32],
    hash: &impl Fn(T, u32) -> u32,
) {
    for ((hashes, values), valid) in hashes.chunks_mut(64).zip(values.chunks(64)).zip(valid) {
        for ((row, h), &value) in hashes.iter_mut().enumerate().zip(values) {
            let mixed = hash(value, *h);
            *h = if valid >> row & 1 == 1 { mixed } else { *h };
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

/// Number of leading bytes that only repeat the sign.
fn redundant_sign_bytes(value: i128) -> usize {
    let magnitude = if value < 0 { !value } else { value };
    // One bit more than the magnitude needs, for the sign.
    ((magnitude.leading_zeros() - 1) / 8) as usize
}

/// Maximum number of decimal digits in a long.
const MAX_LONG_DIGITS: u8 = 18;
