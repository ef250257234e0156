//! Operations on bitmaps, least significant bit first, as in Arrow.

use arrow_buffer::BooleanBuffer;
use arrow_buffer::bit_chunk_iterator::BitChunks;

/// Writes bits `at..at + n` of `target`, one per item, and clears the rest of the last byte.
///
/// Returns the number of ones.
pub(super) fn write(target: &mut [u8], at: usize, bits: impl Iterator<Item = bool>) -> usize {
    let mut bytes = target[at / 8..].iter_mut();
    let mut filled = at % 8;
    let mut byte = bytes.as_slice().first().map_or(0, |first| first & low_ones(filled));
    let mut ones = 0;
    for bit in bits {
        byte |= u8::from(bit) << filled;
        ones += usize::from(bit);
        filled += 1;
        if filled == 8 {
            *bytes.next().expect("the region holds a bit for each row") = byte;
            (byte, filled) = (0, 0);
        }
    }
    if filled > 0 {
        *bytes.next().expect("the region holds a bit for each row") = byte;
    }
    ones
}

/// Sets bits `at..at + n` of `target` and clears the rest of the last byte.
pub(super) fn set(target: &mut [u8], at: usize, n: usize) {
    if n == 0 {
        return;
    }
    let (first, end) = (at / 8, at + n);
    target[first] = (target[first] & low_ones(at % 8)) | !low_ones(at % 8);
    target[first + 1..end.div_ceil(8)].fill(0xff);
    clear_after(target, end);
}

/// Sets bits `0..n` of `target` and leaves the others alone.
pub(super) fn set_front(target: &mut [u8], n: usize) {
    target[..n / 8].fill(0xff);
    if !n.is_multiple_of(8) {
        target[n / 8] |= low_ones(n % 8);
    }
}

/// Writes the bits, combined with the mask if there is one, to the front of `target` and clears the
/// rest of the last byte.
pub(super) fn pack(target: &mut [u8], bits: &BooleanBuffer, mask: Option<&BooleanBuffer>) {
    let (bits, mask) = (bits.bit_chunks(), mask.map(BooleanBuffer::bit_chunks));
    let masks = mask.iter().flat_map(BitChunks::iter_padded).chain(std::iter::repeat(u64::MAX));
    for ((bytes, word), mask) in target.chunks_mut(8).zip(bits.iter_padded()).zip(masks) {
        bytes.copy_from_slice(&(word & mask).to_le_bytes()[..bytes.len()]);
    }
}

/// Iterates over the positions of all zeros.
pub(super) fn zeros(bits: &BooleanBuffer) -> impl Iterator<Item = usize> {
    let chunks = bits.bit_chunks();
    let behind = u64::MAX << chunks.remainder_len();
    let words = chunks.iter().chain([chunks.remainder_bits() | behind]).enumerate();
    words.flat_map(|(number, word)| ones(!word).map(move |bit| number * 64 + bit))
}

fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

/// Clears the bits from `end` to the end of its byte.
fn clear_after(target: &mut [u8], end: usize) {
    if !end.is_multiple_of(8) {
        target[end / 8] &= low_ones(end % 8);
    }
}

fn low_ones(n: usize) -> u8 {
    !(0xff_u8.checked_shl(u32::try_from(n).expect("at most 8 bits")).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(target: &[u8], i: usize) -> bool {
        target[i / 8] >> (i % 8) & 1 == 1
    }

    proptest! {
        #[test]
        fn maps_equal_lists_of_booleans(
            pieces in prop::collection::vec((prop::collection::vec(any::<bool>(), 0..40), any::<bool>()), 1..8),
            garbage in any::<u8>(),
        ) {
            let mut target = vec![garbage; 64];
            let mut model: Vec<bool> = Vec::new();
            for (bits, all) in pieces {
                if all {
                    set(&mut target, model.len(), bits.len());
                    model.extend(bits.iter().map(|_| true));
                } else {
                    let ones = write(&mut target, model.len(), bits.iter().copied());
                    prop_assert_eq!(ones, bits.iter().filter(|&&bit| bit).count());
                    model.extend(bits);
                }
            }
            for (i, &bit) in model.iter().enumerate() {
                prop_assert_eq!(get(&target, i), bit);
            }
            if !model.is_empty() {
                for i in model.len()..model.len().next_multiple_of(8) {
                    prop_assert!(!get(&target, i));
                }
            }
            let packed = BooleanBuffer::from(model.clone());
            for from in [0, 3, 64, 70] {
                let part = packed.slice(from.min(packed.len()), packed.len().saturating_sub(from));
                let expected: Vec<usize> = (0..part.len()).filter(|&i| !part.value(i)).collect();
                prop_assert_eq!(zeros(&part).collect::<Vec<_>>(), expected);
                let mut copy = vec![garbage; part.len().div_ceil(8)];
                pack(&mut copy, &part, None);
                let bits = (0..copy.len() * 8).map(|i| get(&copy, i));
                prop_assert!(bits.eq((0..copy.len() * 8).map(|i| i < part.len() && part.value(i))));
                let mask = !&part;
                pack(&mut copy, &part, Some(&mask));
                prop_assert!(copy.iter().all(|byte| *byte == 0));
            }
            let mut front = target.clone();
            set_front(&mut front, model.len());
            for i in 0..64 * 8 {
                prop_assert_eq!(get(&front, i), i < model.len() || get(&target, i));
            }
        }
    }
}
