//! Murmur3 x86 32-bit as Spark computes it (`Murmur3_x86_32`), on the bits of `i32` hashes.

/// The seed of Spark's hash partitioning.
pub(super) const SEED: u32 = 42;

/// Hash of four bytes.
#[inline]
pub(super) fn hash_int(value: u32, seed: u32) -> u32 {
    finish(mix_hash(seed, mix_key(value)), 4)
}

/// Hash of eight bytes, the low half first.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
pub(super) fn hash_long(value: u64, seed: u32) -> u32 {
    let hash = mix_hash(seed, mix_key(value as u32));
    finish(mix_hash(hash, mix_key((value >> 32) as u32)), 8)
}

/// Hash of any number of bytes. Each byte after the last full word is mixed as a word of its own,
/// sign-extended: that is where Spark leaves the reference Murmur3.
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
pub(super) fn pmod(hashes: &mut [u32], n: u32) {
    if n.is_power_of_two() {
        for hash in hashes {
            *hash &= n - 1;
        }
        return;
    }
    // A division by an invariant as two multiplications (Lemire's fastmod).
    let reciprocal = u64::MAX / u64::from(n) + 1;
    // A negative hash is its unsigned value minus 2^32.
    let wrap = n - u32::try_from((1u64 << 32) % u64::from(n)).expect("a remainder is below n");
    for hash in hashes {
        let low = reciprocal.wrapping_mul(u64::from(*hash));
        let mut rest = u64::from(multiply_high(low, n));
        rest += if hash.cast_signed() < 0 { u64::from(wrap) } else { 0 };
        rest -= if rest >= u64::from(n) { u64::from(n) } else { 0 };
        *hash = u32::try_from(rest).expect("a remainder is below n");
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the product is below n * 2^64")]
fn multiply_high(low: u64, n: u32) -> u32 {
    ((u128::from(low) * u128::from(n)) >> 64) as u32
}

#[inline]
fn mix_key(key: u32) -> u32 {
    key.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

#[inline]
fn mix_hash(hash: u32, key: u32) -> u32 {
    (hash ^ key).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

#[inline]
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
