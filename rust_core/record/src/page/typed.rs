//! Builds arrays of flat columns directly from their buffers.

use std::sync::Arc;

use arrow_array::types::ByteArrayType;
use arrow_array::{ArrayRef, ArrowPrimitiveType, GenericByteArray, PrimitiveArray};
use arrow_array::{downcast_primitive, types};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

/// Builds an array of fixed-width values; the buffer has one value per row.
///
/// Returns `None` if the type has no fast path, or if the buffer is not aligned.
pub(super) fn fixed(
    plain: &DataType,
    values: Buffer,
    rows: usize,
    nulls: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    macro_rules! primitive_of {
        ($t:ty) => {
            primitive::<$t>(plain, values, rows, nulls)
        };
    }
    downcast_primitive! {
        plain => (primitive_of),
        _ => None,
    }
}

fn primitive<T: ArrowPrimitiveType>(
    plain: &DataType,
    values: Buffer,
    rows: usize,
    nulls: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    let values = scalars::<T::Native>(values, rows)?;
    let array = PrimitiveArray::<T>::try_new(values, nulls.cloned()).ok()?;
    let is_of_type = *plain == T::DATA_TYPE;
    Some(Arc::new(if is_of_type { array } else { array.with_data_type(plain.clone()) }))
}

/// Builds an array of strings or binaries; the offsets ascend from 0.
///
/// Returns `None` if a string is not valid UTF-8, a buffer is not aligned, or there are no rows.
pub(super) fn var(
    plain: &DataType,
    offsets: Buffer,
    data: Buffer,
    rows: usize,
    nulls: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    match plain {
        DataType::Utf8 => byte_array::<types::Utf8Type>(offsets, data, rows, nulls),
        DataType::LargeUtf8 => byte_array::<types::LargeUtf8Type>(offsets, data, rows, nulls),
        DataType::Binary => byte_array::<types::BinaryType>(offsets, data, rows, nulls),
        DataType::LargeBinary => byte_array::<types::LargeBinaryType>(offsets, data, rows, nulls),
        _ => None,
    }
}

fn byte_array<T: ByteArrayType>(
    offsets: Buffer,
    data: Buffer,
    rows: usize,
    nulls: Option<&NullBuffer>,
) -> Option<ArrayRef> {
    if rows == 0 {
        return None;
    }
    let offsets = OffsetBuffer::new(scalars::<T::Offset>(offsets, rows + 1)?);
    let array = GenericByteArray::<T>::try_new(offsets, data, nulls.cloned()).ok()?;
    Some(Arc::new(array))
}

fn scalars<N: ArrowNativeType>(buffer: Buffer, len: usize) -> Option<ScalarBuffer<N>> {
    let is_aligned = buffer.as_ptr().align_offset(align_of::<N>()) == 0;
    is_aligned.then(|| ScalarBuffer::new(buffer, 0, len))
}
