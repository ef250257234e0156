//! Arrays in the memory of keyed state.

use std::io;

use arrow_array::{ArrayRef, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use headgate_memory::StateMemory;

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int32Array, StringArray, StructArray};

    use super::*;
    use crate::Usage;

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
        drop(in_files);
        assert_eq!(memory.usage(), Usage::default());
        assert_eq!(&settled(&pairs, &StateMemory::default()).unwrap(), &pairs);
    }
}
