//! The compressed form of buffers: golden bytes, round trips, and hostile input.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

use headgate_record::compression::{Codec, Compressor, DecompressError, Decompressor, plain_len};
use proptest::prelude::*;

const CODECS: [Codec; 2] = [Codec::Lz4, Codec::Zstd];

fn compress(codec: Codec, plain: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = plain.to_vec();
    let len = Compressor::new(codec).compress(&mut bytes);
    if len.is_none() {
        assert_eq!(bytes, plain, "what is not worth it stays as it is");
    }
    bytes.truncate(len?);
    Some(bytes)
}

/// Decompresses into a target that is full of `old` bytes.
fn decompress(form: &[u8], room: usize, old: u8) -> Result<Vec<u8>, DecompressError> {
    let mut target = vec![old; room];
    let len = Decompressor::default().decompress(form, &mut target)?;
    assert!(target[len..].iter().all(|byte| *byte == old), "nothing is written behind the end");
    target.truncate(len);
    Ok(target)
}

#[test]
fn golden_bytes_of_both_codecs() {
    let plain = [7; 64];
    // One literal, a match of 58 bytes at distance 1, then five literals.
    let lz4 = [1, 0, 0, 0, 64, 0x1F, 7, 1, 0, 39, 0x50, 7, 7, 7, 7, 7];
    assert_eq!(decompress(&lz4, 64, 9).unwrap(), plain);
    let ours = compress(Codec::Lz4, &plain).unwrap();
    assert_eq!(ours[..9], lz4[..9]);
    assert_eq!(decompress(&ours, 64, 9).unwrap(), plain);
    // Magic, a header that declares 64 bytes in a single segment, one block that repeats a byte.
    let zstd = [2, 0, 0, 0, 64, 0x28, 0xB5, 0x2F, 0xFD, 0x20, 64, 0x03, 0x02, 0, 7];
    assert_eq!(decompress(&zstd, 64, 9).unwrap(), plain);
    let ours = compress(Codec::Zstd, &plain).unwrap();
    assert_eq!(ours[..11], zstd[..11]);
    assert_eq!(decompress(&ours, 64, 9).unwrap(), plain);
}

#[test]
fn bytes_that_do_not_shrink_stay_uncompressed() {
    let mut noise = vec![0_u8; 4096];
    let mut state = 1_u64;
    for byte in &mut noise {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    for codec in CODECS {
        assert_eq!(compress(codec, &noise), None, "{codec:?}");
        for len in 0..=8 {
            assert_eq!(compress(codec, &[1; 8][..len]), None, "{codec:?}, {len} bytes");
        }
    }
}

#[test]
fn one_compressor_and_one_decompressor_serve_many_buffers() {
    for codec in CODECS {
        let (mut compressor, mut decompressor) = (Compressor::new(codec), Decompressor::default());
        // Small and large buffers in turn: no state of one affects the next.
        for len in [100, 200_000, 64, 70_000, 1 << 20, 50] {
            let plain: Vec<u8> = (0..len).map(|at: usize| (at / 7) as u8).collect();
            let mut bytes = plain.clone();
            let form = compressor.compress(&mut bytes).unwrap();
            assert!(form < len);
            let mut target = vec![0xAA; len];
            assert_eq!(decompressor.decompress(&bytes[..form], &mut target), Ok(len));
            assert_eq!(target, plain, "{codec:?}");
        }
    }
}

#[test]
fn a_length_beyond_the_target_is_rejected_before_decompression() {
    for codec in CODECS {
        let form = compress(codec, &[3; 1000]).unwrap();
        assert_eq!(plain_len(&form, 1000), Ok(1000));
        let error = DecompressError::PlainLength { length: 1000, limit: 999 };
        assert_eq!(plain_len(&form, 999), Err(error.clone()));
        assert_eq!(decompress(&form, 999, 0), Err(error));
        for (length, bytes) in [(0, [0; 4]), (u32::MAX, [255; 4])] {
            let mut wrong = form.clone();
            wrong[1..5].copy_from_slice(&bytes);
            let error = DecompressError::PlainLength { length, limit: 2000 };
            assert_eq!(decompress(&wrong, 2000, 0), Err(error));
        }
    }
    assert_eq!(decompress(&[1, 0, 0, 0], 10, 0), Err(DecompressError::TooShort { length: 4 }));
    for id in [0, 3, 255] {
        let error = DecompressError::UnknownCodec { id };
        assert_eq!(decompress(&[id, 0, 0, 0, 1, 0], 10, 0), Err(error));
    }
}

#[test]
fn a_block_of_another_length_than_declared_is_rejected() {
    for codec in CODECS {
        let form = compress(codec, &[3; 1000]).unwrap();
        for said in [1_u32, 999, 1001] {
            let mut wrong = form.clone();
            wrong[1..5].copy_from_slice(&said.to_be_bytes());
            let error = decompress(&wrong, 2000, 0).unwrap_err();
            match said {
                1001 => assert_eq!(error, DecompressError::Length { got: 1000, want: 1001 }),
                _ => assert!(matches!(error, DecompressError::Damaged { .. }), "{error:?}"),
            }
        }
    }
}

/// The frame of a buffer has the checksum. Without it a flipped bit of a block may give other bytes, but not
/// more or fewer of them, and none that were in the target before.
#[test]
fn each_flipped_bit_of_a_compressed_buffer_is_refused_or_gives_as_many_bytes() {
    let plain: Vec<u8> = (0..96_u8).map(|at| at / 7 * 3).collect();
    for codec in CODECS {
        let form = compress(codec, &plain).unwrap();
        let (mut refused, mut read) = (0, 0);
        for bit in 0..8 * form.len() {
            let mut flipped = form.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let got = decompress(&flipped, 4096, 0xEE);
            assert_eq!(got, decompress(&flipped, 4096, 0x11), "{codec:?}, bit {bit}");
            match got {
                Ok(bytes) => {
                    assert!(bit >= 8 * 5, "{codec:?}, bit {bit}: codec and length are checked");
                    assert_eq!(bytes.len(), plain.len(), "{codec:?}, bit {bit}");
                    read += 1;
                }
                Err(error) => {
                    let is_named = error.to_string().contains(&format!("{codec:?}"));
                    let is_damaged = matches!(error, DecompressError::Damaged { .. });
                    assert!(!is_damaged || is_named, "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 40 && read > 0, "{codec:?}: {refused} refused, {read} read");
    }
}

/// LZ4 blocks that copy bytes that were never written.
#[test]
fn old_bytes_of_the_target_never_appear() {
    // A literal, then a match at distance 0, 2 and 65535; and a match before any literal.
    for block in [
        [0x1F, 7, 0, 0, 20, 0x50, 7, 7, 7, 7, 7].as_slice(),
        &[0x1F, 7, 2, 0, 20, 0x50, 7, 7, 7, 7, 7],
        &[0x1F, 7, 255, 255, 20, 0x50, 7, 7, 7, 7, 7],
        &[0x0F, 1, 0, 20, 0x50, 7, 7, 7, 7, 7],
    ] {
        for room in [44, 45, 64, 4096] {
            let form = [&[1, 0, 0, 0, 44], block].concat();
            match decompress(&form, room, 0xEE) {
                Ok(bytes) => assert!(!bytes.contains(&0xEE), "{block:?}"),
                Err(error) => {
                    assert!(matches!(error, DecompressError::Damaged { .. }), "{error:?}")
                }
            }
        }
    }
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::Lz4), Just(Codec::Zstd)]
}

proptest! {
    #[test]
    fn decompression_restores_the_bytes(codec in codecs(), words in prop::collection::vec("[a-d]{1,8}", 0..400)) {
        let plain = words.concat().into_bytes();
        if let Some(form) = compress(codec, &plain) {
            prop_assert!(form.len() < plain.len());
            prop_assert_eq!(decompress(&form, plain.len(), 1), Ok(plain));
        }
    }

    #[test]
    fn damaged_input_never_reveals_old_bytes(
        codec in codecs(),
        words in prop::collection::vec("[a-d]{1,8}", 50..100),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let plain = words.concat().into_bytes();
        let mut form = compress(codec, &plain).unwrap();
        let at = at.index(form.len());
        form[at] ^= flip;
        prop_assert_eq!(decompress(&form, 2000, 0), decompress(&form, 2000, 0xFF));
    }
}
