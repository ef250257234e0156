//! Checks that no value of an array leads outside of the array, before values are followed.
//!
//! Arrow trusts the offsets, views, keys and run ends of arrays that come through its C interface.

use arrow_array::Array;
use arrow_array::GenericByteViewArray;
use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_buffer::ArrowNativeType;
use arrow_data::MAX_INLINE_VIEW_LEN;
use arrow_schema::{ArrowError, DataType};

/// An array, or one inside it, has a value that leads outside of it.
#[derive(Debug, thiserror::Error)]
pub enum OutOfBounds {
    /// Offsets decrease, or lead behind the values.
    #[error("the offsets of a {data_type} array are wrong at row {row} of {rows}")]
    Offsets {
        /// Type of the array.
        data_type: DataType,
        /// The first wrong row.
        row: usize,
        /// Rows of the array.
        rows: usize,
    },
    /// A view names bytes that no buffer has.
    #[error("a {data_type} array has a view outside of its buffers at row {row} of {rows}")]
    View {
        /// Type of the array.
        data_type: DataType,
        /// The first wrong row.
        row: usize,
        /// Rows of the array.
        rows: usize,
    },
    /// Arrow rejects the lengths, keys, sizes or run ends.
    #[error("a {data_type} array is damaged: {error}")]
    Other {
        /// Type of the array.
        data_type: DataType,
        /// Message of Arrow.
        error: ArrowError,
    },
}

/// Checks an array and those inside it. Takes one pass over offsets and the like, and none over other values.
///
/// # Errors
/// [`OutOfBounds`] for the first value that leads outside.
pub fn check_bounds(array: &dyn Array) -> Result<(), OutOfBounds> {
    use DataType as D;
    match array.data_type() {
        D::Utf8 => {
            let array = array.as_string::<i32>();
            offsets(array, array.offsets(), array.values().len())
        }
        D::LargeUtf8 => {
            let array = array.as_string::<i64>();
            offsets(array, array.offsets(), array.values().len())
        }
        D::Binary => {
            let array = array.as_binary::<i32>();
            offsets(array, array.offsets(), array.values().len())
        }
        D::LargeBinary => {
            let array = array.as_binary::<i64>();
            offsets(array, array.offsets(), array.values().len())
        }
        D::Utf8View => views(array.as_string_view()),
        D::BinaryView => views(array.as_binary_view()),
        D::List(_) => {
            let list = array.as_list::<i32>();
            offsets(list, list.offsets(), list.values().len())?;
            check_bounds(list.values())
        }
        D::LargeList(_) => {
            let list = array.as_list::<i64>();
            offsets(list, list.offsets(), list.values().len())?;
            check_bounds(list.values())
        }
        D::Map(_, _) => {
            let map = array.as_map();
            offsets(map, map.offsets(), map.entries().len())?;
            check_bounds(map.entries())
        }
        D::Struct(_) => {
            structure(array)?;
            array.as_struct().columns().iter().try_for_each(|column| check_bounds(column))
        }
        D::FixedSizeList(_, _) => {
            structure(array)?;
            check_bounds(array.as_fixed_size_list().values())
        }
        D::ListView(_) => {
            structure(array)?;
            check_bounds(array.as_list_view::<i32>().values())
        }
        D::LargeListView(_) => {
            structure(array)?;
            check_bounds(array.as_list_view::<i64>().values())
        }
        D::Dictionary(_, _) => {
            structure(array)?;
            check_bounds(array.as_any_dictionary().values())
        }
        D::RunEndEncoded(_, _) => {
            structure(array)?;
            let inside = array.to_data();
            inside
                .child_data()
                .iter()
                .try_for_each(|one| check_bounds(&arrow_array::make_array(one.clone())))
        }
        _ => Ok(()),
    }
}

fn offsets<O: ArrowNativeType>(
    array: &dyn Array,
    offsets: &[O],
    values: usize,
) -> Result<(), OutOfBounds> {
    if array.is_empty() {
        return Ok(()); // nothing is followed, and Arrow brings such an array without its values
    }
    // Without an early exit the compiler uses vectors. The first offset is not negative if none decreases below.
    let is_sorted = offsets.windows(2).fold(true, |sorted, pair| sorted & (pair[0] <= pair[1]));
    let is_inside = |offset: &O| offset.to_usize().is_some_and(|offset| offset <= values);
    let ends = [offsets.first(), offsets.last()];
    if is_sorted && ends.into_iter().flatten().all(is_inside) {
        return Ok(());
    }
    let row = offsets
        .windows(2)
        .position(|pair| !is_inside(&pair[0]) || !is_inside(&pair[1]) || pair[0] > pair[1]);
    let data_type = array.data_type().clone();
    Err(OutOfBounds::Offsets { data_type, row: row.unwrap_or(0), rows: array.len() })
}

fn views<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> Result<(), OutOfBounds> {
    let buffers = array.data_buffers();
    let is_inside = |view: &u128| {
        // Length, first four bytes, number of the buffer, offset: 32 bits each.
        #[expect(clippy::cast_possible_truncation, reason = "the four parts of a view")]
        let part = |number: u32| (*view >> (32 * number)) as u32;
        let (length, buffer, offset) = (part(0), part(2), part(3));
        length <= MAX_INLINE_VIEW_LEN
            || buffers
                .get(buffer as usize)
                .is_some_and(|buffer| u64::from(offset) + u64::from(length) <= buffer.len() as u64)
    };
    let wrong = array
        .views()
        .iter()
        .enumerate()
        .position(|(row, view)| array.is_valid(row) && !is_inside(view));
    match wrong {
        None => Ok(()),
        Some(row) => {
            let data_type = array.data_type().clone();
            Err(OutOfBounds::View { data_type, row, rows: array.len() })
        }
    }
}

/// Checks by Arrow's own code what is rare, or takes no pass over the rows.
fn structure(array: &dyn Array) -> Result<(), OutOfBounds> {
    let data = array.to_data();
    let valid = data.validate().and_then(|()| data.validate_values());
    valid.map_err(|error| OutOfBounds::Other { data_type: array.data_type().clone(), error })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{ListBuilder, StringBuilder, StringViewBuilder};
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, RunArray, StringArray, StructArray};
    use arrow_schema::Field;

    use super::*;

    #[test]
    fn arrays_and_their_slices_are_inside() {
        let strings =
            StringArray::from(vec![Some("a"), None, Some("more than twelve bytes"), Some("")]);
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("x"), None]);
        lists.append_null();
        lists.append_value([Some("y")]);
        lists.append_value(Vec::<Option<&str>>::new());
        let mut views = StringViewBuilder::new();
        views.append_value("more than twelve bytes");
        views.append_null();
        views.append_value("");
        views.append_value("b");
        let keys: DictionaryArray<Int32Type> =
            vec![Some("a"), None, Some("b"), Some("a")].into_iter().collect();
        let runs: RunArray<Int32Type> =
            vec![Some("a"), Some("a"), None, Some("b")].into_iter().collect();
        let field = Arc::new(Field::new("s", DataType::Utf8, true));
        let inside: ArrayRef = Arc::new(strings.clone());
        let all: Vec<ArrayRef> = vec![
            Arc::new(StructArray::from(vec![(field, inside)])),
            Arc::new(strings),
            Arc::new(lists.finish()),
            Arc::new(views.finish()),
            Arc::new(keys),
            Arc::new(runs),
        ];
        for array in all {
            for start in 0..4 {
                for end in start..=4 {
                    let slice = array.slice(start, end - start);
                    check_bounds(&slice).expect("it is a slice of a valid array");
                }
            }
        }
    }
}
