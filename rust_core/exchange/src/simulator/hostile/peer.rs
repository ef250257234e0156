//! The hostile end of a connection: it knows the secret, so it is let in.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use headgate_net::simulation::Stream;
use headgate_protocol::{
    Frame, FrameDecoder, FrameMask, HandshakeConfig, HandshakeError, Key, Limits, PartitionId,
    Side, Step, VersionRange,
};
use proptest::test_runner::TestRng;

use crate::address::Address;
use crate::config::Config;
use crate::simulator::hostile::scene::{HOSTILE, SEGMENT, Scene};
use crate::simulator::wire::{SimStream, address_of};

const HOSTILE_ID: [u8; 16] = [0x66; 16];

/// The hostile end of a connection.
pub(super) struct Hostile {
    stream: SimStream,
    pub(super) mask: FrameMask,
    input: VecDeque<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
    decoder: Option<FrameDecoder>,
    /// Bytes of a payload that are still to come.
    payload: usize,
    pub(super) gone: bool,
}

impl Hostile {
    pub(super) fn new(stream: SimStream) -> Self {
        Self {
            stream,
            mask: FrameMask::default(),
            input: VecDeque::new(),
            descriptors: Vec::new(),
            decoder: None,
            payload: 0,
            gone: false,
        }
    }

    /// A subpartition that it pretends to have.
    pub(super) fn address() -> Address {
        let at = address_of(HOSTILE);
        Address {
            host: at.ip().to_string(),
            port: at.port(),
            process: HOSTILE_ID,
            partition: PartitionId([3; 16]),
            subpartition: 0,
        }
    }

    pub(super) fn config() -> (Key, HandshakeConfig) {
        let config = Config::of_segments(1, SEGMENT);
        let key = Key::derive(&config.secret, &config.exchange, config.run, config.epoch);
        let config = HandshakeConfig {
            exchange: config.exchange,
            run: config.run,
            epoch: config.epoch,
            process: HOSTILE_ID,
            max_segment: SEGMENT as u32,
            versions: VersionRange::SUPPORTED,
        };
        (key, config)
    }

    /// Reads all that has arrived.
    pub(super) fn listen(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return self.gone = true,
                Ok(count) => self.input.extend(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.gone = true,
            }
            self.descriptors.extend(self.stream.take_descriptor());
        }
    }

    pub(super) fn say(&mut self, bytes: &[u8], descriptor: Option<&OwnedFd>) {
        let written = match descriptor {
            Some(descriptor) => self.stream.write_with(bytes, descriptor.as_fd()),
            None => self.stream.write(bytes),
        };
        self.gone |= written.is_err();
    }

    pub(super) fn say_frame(&mut self, frame: &Frame, descriptor: Option<&OwnedFd>) {
        let mut bytes = Vec::new();
        frame.encode(self.mask, &mut bytes);
        self.say(&bytes, descriptor);
    }

    /// Proves itself; the victim must let it in.
    pub(super) fn shake_hands(
        &mut self,
        scene: &mut Scene,
        rng: &mut TestRng,
        mut handle: impl Handle,
    ) {
        for _ in 0..4 {
            scene.settle(rng);
            self.listen();
            let bytes: Vec<u8> = self.input.drain(..).collect();
            let mut input = bytes.as_slice();
            let step = handle(&mut input).expect("it knows the secret");
            self.input.extend(input);
            let (send, mask) = match step {
                Step::NeedMore => continue,
                Step::Send(bytes) => (bytes, None),
                Step::Done { peer, send } => (send, Some(peer.mask)),
            };
            if !send.is_empty() {
                self.say(&send, None);
            }
            if let Some(mask) = mask {
                self.mask = mask;
                scene.settle(rng);
                return;
            }
        }
        panic!("no handshake");
    }

    /// Returns the next frame that has arrived; skips payloads.
    pub(super) fn next(&mut self, side: Side) -> Option<Frame> {
        self.listen();
        let limits = Limits::for_segment(SEGMENT as u32);
        let mask = self.mask;
        let decoder = self.decoder.get_or_insert_with(|| FrameDecoder::new(limits, side, mask));
        let skipped = self.payload.min(self.input.len());
        self.input.drain(..skipped);
        self.payload -= skipped;
        if self.payload > 0 {
            return None;
        }
        let bytes = self.input.make_contiguous();
        let mut input = &*bytes;
        let frame = decoder.decode(&mut input).expect("the victim is honest");
        let used = bytes.len() - input.len();
        self.input.drain(..used);
        if let Some(Frame::Buffer(header)) = &frame {
            self.payload = header.size as usize;
        }
        frame
    }
}

pub(super) trait Handle: FnMut(&mut &[u8]) -> Result<Step, HandshakeError> {}

impl<F: FnMut(&mut &[u8]) -> Result<Step, HandshakeError>> Handle for F {}
