//! Murmur3 x86 32-bit as Spark computes it (`Murmur3_x86_32`), on the bits of `i32` hashes.

use fearless_simd::{Level, dispatch};

/// The seed of Spark's hash partitioning.
pub(super) const SEED: u32 = 42;

/// Hash of four bytes.
#[inline(always)]
pub(crate) fn hash_int(value: u32, seed: u32) -> u32 {
    finish(mix_hash(seed, mix_key(value)), 4)
}

/// Hash of eight bytes, the low half first.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
pub(super) fn hash_long(value: u64, seed: u32) -> u32 {
    let hash = mix_hash(seed, mix_key(value as u32));
    finish(mix_hash(hash, mix_key((value >> 32) as u32)), 8)
}

/// Hash of any number of bytes. Like Spark, and unlike the reference Murmur3, mixes each byte after
/// the last full word as a sign-extended word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "Spark's lengths are 32 bits wide")]
pub(super) fn hash_bytes(bytes: &[u8], seed: u32) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut hash = seed;
    for word in words {
        hash = mix_hash(hash, mix_key(u32::from_le_bytes(*word)));
    }
    for &byte in tail {
        hash = mix_hash(hash, mix_key(i32::from(byte.cast_signed()).cast_unsigned()));
    }
    finish(hash, bytes.len() as u32)
}

/// Replaces each hash, read as signed, by its non-negative remainder modulo `n`.
///
/// # Panics
/// If `n` is 0 or above `i32::MAX`, the maximum in Spark.
pub(super) fn pmod(hashes: &mut [u32], n: u32) {
    assert!(n > 0 && n <= i32::MAX.cast_unsigned(), "{n} partitions cannot be numbered");
    dispatch!(Level::new(), _simd => reduce(hashes, n));
}

#[inline(always)]
fn reduce(hashes: &mut [u32], n: u32) {
    if n.is_power_of_two() {
        for hash in hashes {
            *hash &= n - 1;
        }
        return;
    }
    let reciprocal = 1.0 / f64::from(n);
    for hash in hashes {
        // The quotient is rounded to the nearest integer, so the remainder is within -n..n.
        let quotient = f64::from(hash.cast_signed()) * reciprocal;
        let rest = hash.wrapping_sub(low_word(quotient + ROUND).wrapping_mul(n));
        *hash = rest.wrapping_add(if rest.cast_signed() < 0 { n } else { 0 });
    }
}

/// Mask of the low mantissa bits. After an addition of [`ROUND`] they hold the nearest integer.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lowest 32 bits are what is wanted")]
fn low_word(number: f64) -> u32 {
    number.to_bits() as u32
}

/// 1.5 * 2^52: a double of this size has no fraction bits, so adding it rounds to an integer.
const ROUND: f64 = 6_755_399_441_055_744.0;

#[inline(always)]
fn mix_key(key: u32) -> u32 {
    key.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

#[inline(always)]
fn mix_hash(hash: u32, key: u32) -> u32 {
    (hash ^ key).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

#[inline(always)]
fn finish(hash: u32, length: u32) -> u32 {
    let mut hash = hash ^ length;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pmod_equals_the_signed_remainder(
            hash in any::<u32>(),
            n in prop_oneof![1u32..300, 1u32..=0x7fff_ffff],
        ) {
            let edges = [hash, 0, 1, n, n - 1, 0x7fff_ffff, 0x8000_0000, u32::MAX];
            let mut hashes = edges;
            pmod(&mut hashes, n);
            for (given, got) in edges.into_iter().zip(hashes) {
                let expected = i64::from(given.cast_signed()).rem_euclid(i64::from(n));
                prop_assert_eq!(i64::from(got), expected);
            }
        }
    }
}
