//! The parts of a channel state.

use headgate_protocol::{
    ChannelStateBuffer, ChannelStateBuilder, ChannelStateError, ChannelStateReader, crc32c,
};

/// Checks that buffers are read again as they were read, with the checksums of the bytes and with right
/// ones, as a fuzzer does not find a checksum.
pub fn channel_state(data: &[u8]) {
    check(data);
    let mut repaired = data.to_vec();
    repair(&mut repaired);
    check(&repaired);
}

fn check(data: &[u8]) {
    let read: Result<Vec<_>, _> = ChannelStateReader::new(data).collect();
    let buffers = match read {
        Ok(buffers) => buffers,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            // It ends after an error.
            let mut reader = ChannelStateReader::new(data);
            assert!(reader.by_ref().any(|buffer| buffer.is_err()));
            assert!(reader.next().is_none());
            return;
        }
    };
    let mut part = ChannelStateBuilder::default();
    for buffer in &buffers {
        let ChannelStateBuffer { data_type, is_compressed, payload } = *buffer;
        part.push(data_type, is_compressed, payload.len(), payload.chunks(7));
    }
    let bytes = part.finish();
    let again: Result<Vec<_>, ChannelStateError> = ChannelStateReader::new(&bytes).collect();
    assert_eq!(again, Ok(buffers));
}

/// Computes the checksums of all parts and buffers that are complete.
fn repair(mut parts: &mut [u8]) {
    while parts.len() >= 17 {
        let crc = crc32c(&parts[..13]);
        parts[13..17].copy_from_slice(&crc.to_be_bytes());
        let len = u64::from_be_bytes(parts[5..13].try_into().expect("8 bytes"));
        let rest = &mut parts[17..];
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
        let (mut buffers, after) = rest.split_at_mut(len);
        while buffers.len() >= 10 {
            let len = u32::from_be_bytes(buffers[..4].try_into().expect("4 bytes")) as usize;
            let Some(payload) = buffers.get(10..).and_then(|rest| rest.get(..len)) else { break };
            let crc = crc32c(&[&buffers[..6], payload].concat());
            buffers[6..10].copy_from_slice(&crc.to_be_bytes());
            buffers = &mut buffers[10 + len..];
        }
        parts = after;
    }
}
