//! The positions of values in an array.

use std::io;

use allocator_api2::vec::Vec as StateVec;
use headgate_memory::StateMemory;

/// Most words of 64 positions per value for which there is a word each, also without values.
const SPARSE: usize = 4;

/// Positions that increase from row to row.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) first: i64,
    len: usize,
    /// None if no position is left out.
    words: Option<StateVec<Word, StateMemory>>,
}

/// Which of 64 positions have a row.
#[derive(Debug)]
struct Word {
    /// Of the words from the first position on.
    number: usize,
    bits: u64,
    /// Rows before.
    before: usize,
}

impl Places {
    /// Positions that follow each other.
    pub(crate) fn dense(first: i64, len: usize) -> Self {
        Self { first, len, words: None }
    }

    /// Increasing positions, at least one.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn of(positions: &[i64], memory: &StateMemory) -> io::Result<Self> {
        let (first, len) = (positions[0], positions.len());
        let span = offset(positions[len - 1], first) + 1;
        if span == len {
            return Ok(Self::dense(first, len));
        }
        let all = span / 64 <= SPARSE * len;
        let mut words: StateVec<Word, _> = StateVec::new_in(memory.clone());
        for (row, &position) in positions.iter().enumerate() {
            let at = offset(position, first);
            while words.last().is_none_or(|word| word.number < at / 64) {
                let number = if all { words.len() } else { at / 64 };
                words.try_reserve(1).map_err(|_| memory.failure())?;
                words.push(Word { number, bits: 0, before: row });
            }
            if let Some(word) = words.last_mut() {
                word.bits |= 1 << (at % 64);
            }
        }
        Ok(Self { first, len, words: Some(words) })
    }

    /// The row of a position that is not before the first.
    pub(crate) fn row(&self, position: i64) -> Option<usize> {
        let at = offset(position, self.first);
        let Some(words) = &self.words else { return (at < self.len).then_some(at) };
        let (number, bit) = (at / 64, 1_u64 << (at % 64));
        let word = words.get(number).filter(|word| word.number == number).or_else(|| {
            let index = words.binary_search_by_key(&number, |word| word.number).ok()?;
            words.get(index)
        })?;
        let before = (word.bits & (bit - 1)).count_ones();
        (word.bits & bit != 0).then_some(word.before + before as usize)
    }

    /// Appends the position of each row.
    pub(crate) fn write(&self, out: &mut Vec<i64>) {
        let Some(words) = &self.words else {
            out.extend((self.first..).take(self.len));
            return;
        };
        for word in words {
            let mut bits = word.bits;
            while bits != 0 {
                let at = word.number * 64 + bits.trailing_zeros() as usize;
                out.push(self.first.saturating_add_unsigned(at as u64));
                bits &= bits - 1;
            }
        }
    }
}

/// How far a position is behind the first one.
fn offset(position: i64, first: i64) -> usize {
    usize::try_from(position.saturating_sub(first)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_a_sorted_list(of in prop_oneof![
            prop::collection::btree_set(1..200_i64, 1..100),
            prop::collection::btree_set(1..1_000_000_i64, 1..20),
            (1..99_i64, 1..200_i64).prop_map(|(first, rows)| (first..first + rows).collect::<BTreeSet<_>>()),
        ]) {
            let positions: Vec<_> = of.into_iter().collect();
            let places = Places::of(&positions, &StateMemory::default()).unwrap();
            let mut written = Vec::new();
            places.write(&mut written);
            prop_assert_eq!(&written, &positions);
            let near = positions.iter().flat_map(|p| [p - 1, *p, p + 1]);
            for position in near.filter(|&p| p >= positions[0]) {
                prop_assert_eq!(places.row(position), positions.binary_search(&position).ok());
            }
        }
    }
}
