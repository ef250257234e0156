//! Arrays in the memory of keyed state.

use std::io;

use arrow_array::{Array, ArrayRef, OffsetSizeTrait, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use headgate_memory::StateMemory;

/// Bytes of a page of files on all machines, or part of one.
const LEAST_PAGE: usize = 4096;

/// Returns the same values in blocks of a memory.
///
/// # Errors
/// There is no room for a block.
pub(crate) fn settled(values: &ArrayRef, memory: &StateMemory) -> io::Result<ArrayRef> {
    Ok(make_array(copied(&values.to_data(), memory)?))
}

fn copied(data: &ArrayData, memory: &StateMemory) -> io::Result<ArrayData> {
    let buffers = data.buffers().iter().map(|buffer| Ok(Buffer::from(memory.copied(buffer)?)));
    let children = data.child_data().iter().map(|child| copied(child, memory));
    let builder = data.clone().into_builder();
    let builder = builder.buffers(buffers.collect::<io::Result<_>>()?);
    let builder = builder.child_data(children.collect::<io::Result<_>>()?);
    builder.build().map_err(io::Error::other)
}

/// Has the kernel begin to read the values of rows that are in files, before they are used one after another.
pub(crate) fn want(values: &dyn Array, rows: &[usize], memory: &StateMemory) {
    want_rows(&values.to_data(), rows, memory);
}

fn want_rows(data: &ArrayData, rows: &[usize], memory: &StateMemory) {
    let rows: Vec<_> = rows.iter().map(|row| row + data.offset()).collect();
    match data.data_type() {
        DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::Map(..) => {
            want_runs::<i32>(data, &rows, memory);
        }
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) => {
            want_runs::<i64>(data, &rows, memory);
        }
        DataType::Struct(_) => {
            data.child_data().iter().for_each(|child| want_rows(child, &rows, memory));
        }
        other => {
            let (Some(width), [values, ..]) = (other.primitive_width(), data.buffers()) else {
                return;
            };
            memory.want_each(values, rows.iter().map(|row| row * width));
        }
    }
}

/// The same for values that are runs of bytes or of a child's rows, between offsets.
fn want_runs<O: OffsetSizeTrait>(data: &ArrayData, rows: &[usize], memory: &StateMemory) {
    let offsets: &[O] = data.buffers()[0].typed_data();
    memory.want_each(offsets, rows.iter().copied());
    let run = |&row: &usize| offsets[row].as_usize()..offsets[row + 1].as_usize();
    match (data.buffers(), data.child_data()) {
        ([_, bytes], _) => {
            memory.want_each(bytes, rows.iter().flat_map(|row| run(row).step_by(LEAST_PAGE)));
        }
        (_, [child]) => want_rows(child, &rows.iter().flat_map(run).collect::<Vec<_>>(), memory),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{LargeStringBuilder, MapBuilder, StringBuilder};
    use arrow_array::{Int32Array, StringArray, StructArray};

    use super::*;
    use crate::Usage;

    #[test]
    fn rows_of_lists_are_asked_for() {
        let memory = StateMemory::limited(0, vec![]);
        let mut lists = MapBuilder::new(None, StringBuilder::new(), LargeStringBuilder::new());
        for row in 0..3000 {
            for element in 0..row % 4 {
                lists.keys().append_value(element.to_string());
                lists.values().append_option((row % 5 > 0).then(|| "x".repeat(row)));
            }
            lists.append(row % 7 > 0).unwrap();
        }
        let lists = settled(&(Arc::new(lists.finish()) as ArrayRef), &memory).unwrap();
        want(&lists, &[2999, 0, 1], &memory);
        want(&lists.slice(2999, 1), &[0], &memory);
        want(&lists.slice(0, 0), &[], &memory);
    }

    #[test]
    fn arrays_are_the_same_in_files() {
        let texts = (0..5000).map(|n| (n % 7 > 0).then(|| n.to_string()));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..5000));
        let pairs = StructArray::try_from(vec![("text", texts), ("number", numbers)]).unwrap();
        let pairs: ArrayRef = Arc::new(pairs.slice(10, 4900));
        let memory = StateMemory::limited(0, vec![]);
        let in_files = settled(&pairs, &memory).unwrap();
        assert!(memory.usage().in_files > 2 * 16_384);
        assert_eq!(&in_files, &pairs);
        let rows: Vec<_> = (0..in_files.len()).rev().collect();
        want(&in_files, &rows, &memory);
        want(&in_files.slice(7, 100), &rows[4800..], &memory);
        drop(in_files);
        assert_eq!(memory.usage(), Usage::default());
        assert_eq!(&settled(&pairs, &StateMemory::default()).unwrap(), &pairs);
    }
}
