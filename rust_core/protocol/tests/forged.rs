//! Forged handshakes: whatever a stranger says, no server accepts it, reads much, or allocates for it.
//!
//! `HEADGATE_FORGED` is the number of tries and `HEADGATE_FORGED_SEED` the seed of the first one.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeMap;

use allocation_counter::measure;
use fastrand::Rng;
use headgate_protocol::{
    ClientHandshake, HandshakeConfig, HandshakeError, Key, MAX_HANDSHAKE_LEN, Refusal,
    ServerHandshake, Step, VersionRange,
};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Number of tries, unless the environment variable sets another.
const TRIES: u64 = 10_000;
/// Most bytes that a server has allocated at any time for a peer that has proved nothing.
const MOST_ALLOCATED: u64 = 1024;
/// Longest stream of a stranger that never stops.
const FLOOD: usize = 64 << 10;

const SECRET: [u8; 32] = [7; 32];
const HERE: HandshakeConfig = HandshakeConfig {
    exchange: [0x11; 16],
    run: 3,
    epoch: 4,
    process: [0x51; 16],
    max_segment: 65_536,
    versions: VersionRange::SUPPORTED,
};
const WRONG_PROOF: &str = "wrong proof";
const HELLO_LEN: usize = 86;
const TLS_LABEL: &str = "headgate client proof, link tcp, tls exporter\0";
const LABEL: &str = "headgate client proof, link tcp, tls none\0";

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Forgery {
    AnotherEpoch,
    AnotherSecret,
    ChangedHello,
    ControlKey,
    CutOff,
    Flood,
    InTheMiddle,
    NearProof,
    Noise,
    OutOfTurn,
    RandomProof,
    Reflected,
    Replayed,
    ServersLabel,
}

use Forgery::*;

const ALL: [Forgery; 14] = [
    AnotherEpoch,
    AnotherSecret,
    ChangedHello,
    ControlKey,
    CutOff,
    Flood,
    InTheMiddle,
    NearProof,
    Noise,
    OutOfTurn,
    RandomProof,
    Reflected,
    Replayed,
    ServersLabel,
];

/// Returns what the stranger says to a challenge.
type Answer = Box<dyn FnOnce(&mut Rng, &[u8]) -> Vec<u8>>;

/// A server, and the bytes that it read and allocated.
struct Server {
    inner: ServerHandshake,
    read: usize,
    allocated: u64,
    most_allocated: u64,
}

impl Server {
    fn new(rng: &mut Rng, binding: Option<[u8; 32]>) -> Self {
        let key = Key::derive(&SECRET, &HERE.exchange, HERE.run, HERE.epoch);
        let mut inner = ServerHandshake::new(key, HERE, nonce(rng));
        inner.bind(binding);
        Self { inner, read: 0, allocated: 0, most_allocated: 0 }
    }

    /// Hands over bytes in one piece; returns the step.
    fn hear(&mut self, bytes: &[u8]) -> Result<Step, HandshakeError> {
        let mut input = bytes;
        let mut step = Err(HandshakeError::Over);
        let spent = measure(|| step = self.inner.handle(&mut input));
        self.read += bytes.len() - input.len();
        self.most_allocated = self.most_allocated.max(self.allocated + spent.bytes_max);
        self.allocated = self.allocated.saturating_add_signed(spent.bytes_current);
        step
    }
}

fn nonce(rng: &mut Rng) -> [u8; 32] {
    std::array::from_fn(|_| rng.u8(..))
}

fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

/// Starts an honest client of this exchange with a key that may be another one.
fn client(rng: &mut Rng, key: Key) -> (ClientHandshake, Vec<u8>) {
    let process = std::array::from_fn(|_| rng.u8(..));
    ClientHandshake::start(key, HandshakeConfig { process, ..HERE }, nonce(rng))
}

fn right_key() -> Key {
    Key::derive(&SECRET, &HERE.exchange, HERE.run, HERE.epoch)
}

fn expanded(secret: &[u8; 32], info: &[&[u8]]) -> [u8; 32] {
    let mut key = [0; 32];
    Hkdf::<Sha256>::new(None, secret).expand_multi_info(info, &mut key).unwrap();
    key
}

/// Computes a proof without the crate under test.
fn proof(key: &[u8; 32], label: &str, transcript: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(label.as_bytes());
    transcript.iter().for_each(|part| mac.update(part));
    [b"HDGT\x03".as_slice(), &mac.finalize().into_bytes()].concat()
}

/// Returns the right proof of an honest client for this challenge.
fn honest(client: &mut ClientHandshake, challenge: &[u8]) -> Vec<u8> {
    match client.handle(&mut &*challenge) {
        Ok(Step::Send(proof)) => proof,
        other => panic!("an honest client proves itself: {other:?}"),
    }
}

/// A session that the stranger has recorded.
fn recorded(rng: &mut Rng) -> [Vec<u8>; 2] {
    let mut server = Server::new(rng, None);
    let (mut client, hello) = client(rng, right_key());
    let Ok(Step::Send(challenge)) = server.hear(&hello) else { panic!("a right HELLO") };
    let proof = honest(&mut client, &challenge);
    assert!(matches!(server.hear(&proof), Ok(Step::Done { .. })));
    [hello, proof]
}

/// Plays one forgery. Returns the server and its last word.
fn forge(
    forgery: Forgery,
    rng: &mut Rng,
    old: &[Vec<u8>; 2],
) -> (Server, Result<Step, HandshakeError>) {
    let tls = matches!(forgery, InTheMiddle | RandomProof | Reflected).then(|| nonce(rng));
    let mut server = Server::new(rng, tls);
    let (mut client, hello) = client(rng, right_key());
    let (claimed, answer): (Vec<u8>, Answer) = match forgery {
        AnotherEpoch => {
            let epoch = rng.u32(..).max(5);
            let info: [&[u8]; 4] =
                [b"headgate v1", &HERE.exchange, &HERE.run.to_be_bytes(), &epoch.to_be_bytes()];
            let key = expanded(&SECRET, &info);
            let said = hello.clone();
            (hello, Box::new(move |_, challenge| proof(&key, LABEL, &[&said, challenge])))
        }
        AnotherSecret => {
            let key = nonce(rng);
            let said = hello.clone();
            (hello, Box::new(move |_, challenge| proof(&key, LABEL, &[&said, challenge])))
        }
        ChangedHello => {
            let mut changed = hello.clone();
            let bit = rng.usize(..changed.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
            let key = data_key();
            // The client proves what it said, not what arrived.
            (changed, Box::new(move |_, challenge| proof(&key, LABEL, &[&hello, challenge])))
        }
        ControlKey => {
            let key = expanded(&SECRET, &[b"headgate control v2", &HERE.exchange]);
            let said = hello.clone();
            let label = "headgate client proof, control, link tcp, tls none\0";
            (hello, Box::new(move |_, challenge| proof(&key, label, &[&said, challenge])))
        }
        CutOff => {
            if rng.bool() {
                let step = server.hear(&hello[..rng.usize(..HELLO_LEN)]);
                return (server, step);
            }
            let key = nonce(rng);
            let said = hello.clone();
            let cut = move |rng: &mut Rng, challenge: &[u8]| {
                let proof = proof(&key, LABEL, &[&said, challenge]);
                proof[..rng.usize(..proof.len())].to_vec()
            };
            (hello, Box::new(cut))
        }
        Flood => {
            let hello = if rng.bool() { hello } else { b"HDGT\x01".to_vec() };
            let proof = if rng.bool() { b"HDGT\x03".to_vec() } else { Vec::new() };
            let noise = noise(rng, 64);
            let tail: Vec<u8> =
                proof.into_iter().chain(noise.into_iter().cycle().take(FLOOD)).collect();
            let stream = [hello.as_slice(), &tail].concat();
            let step = server.hear(&stream);
            if !matches!(step, Ok(Step::Send(_))) {
                return (server, step);
            }
            let step = server.hear(&tail);
            return (server, step);
        }
        InTheMiddle => {
            // The right proof, for the session between the client and somebody in the middle.
            let (key, theirs, said) = (data_key(), nonce(rng), hello.clone());
            let transcript = move |_: &mut Rng, challenge: &[u8]| {
                proof(&key, TLS_LABEL, &[&theirs, &said, challenge])
            };
            (hello, Box::new(transcript))
        }
        NearProof => {
            let near = move |rng: &mut Rng, challenge: &[u8]| {
                let mut proof = honest(&mut client, challenge);
                let bit = rng.usize(5 * 8..proof.len() * 8);
                proof[bit / 8] ^= 1 << (bit % 8);
                proof
            };
            (hello, Box::new(near))
        }
        Noise => {
            let len = rng.usize(..300);
            let head = [b"HDGT".as_slice(), &[rng.u8(..7)]].concat();
            let head = &head[..rng.usize(..=head.len())];
            let hello = [head, &noise(rng, len)].concat();
            let len = rng.usize(..80);
            (hello, Box::new(move |rng, _| noise(rng, len)))
        }
        OutOfTurn => {
            let mut said = Vec::new();
            for _ in 0..rng.usize(1..4) {
                let one = match rng.u8(..5) {
                    0 => hello.clone(),
                    1 => [b"HDGT\x02".as_slice(), &noise(rng, 86)].concat(),
                    2 => [b"HDGT\x03".as_slice(), &noise(rng, 32)].concat(),
                    3 => b"HDGT\x04".to_vec(),
                    _ => [b"HDGT\x05".as_slice(), &noise(rng, 5)].concat(),
                };
                said.push(one);
            }
            let mut last = Ok(Step::NeedMore);
            for one in said {
                last = server.hear(&one);
            }
            return (server, last);
        }
        RandomProof => {
            let proof = [b"HDGT\x03".as_slice(), &noise(rng, 32)].concat();
            (hello, Box::new(move |_, _| proof))
        }
        Reflected => {
            let back =
                |_: &mut Rng, challenge: &[u8]| [b"HDGT\x03".as_slice(), &challenge[59..]].concat();
            (hello, Box::new(back))
        }
        Replayed => {
            let [hello, proof] = old.clone();
            (hello, Box::new(move |_, _| proof))
        }
        ServersLabel => {
            let key = data_key();
            let said = hello.clone();
            let label = "headgate server proof, link tcp, tls none\0";
            (hello, Box::new(move |_, challenge| proof(&key, label, &[&said, challenge])))
        }
    };
    let challenge = match server.hear(&claimed) {
        Ok(Step::Send(challenge)) => challenge,
        other => return (server, other),
    };
    let answer = answer(rng, &challenge);
    // Some strangers send a byte at a time.
    if rng.u8(..8) == 0 {
        let mut last = Ok(Step::NeedMore);
        for byte in answer {
            last = server.hear(&[byte]);
        }
        return (server, last);
    }
    let step = server.hear(&answer);
    (server, step)
}

fn data_key() -> [u8; 32] {
    let info: [&[u8]; 4] =
        [b"headgate v1", &HERE.exchange, &HERE.run.to_be_bytes(), &HERE.epoch.to_be_bytes()];
    expanded(&SECRET, &info)
}

fn number_of(variable: &str, unasked: u64) -> u64 {
    std::env::var(variable).map_or(unasked, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number"))
    })
}

/// The word of a server, for the table.
fn word(step: &Result<Step, HandshakeError>) -> &'static str {
    match step {
        Ok(Step::Done { .. }) => "accepted",
        Ok(Step::NeedMore) => "waits",
        Ok(Step::Send(_)) => "challenged",
        Err(HandshakeError::Refused { cause: Refusal::Proof }) => WRONG_PROOF,
        Err(_) => "refused",
    }
}

#[test]
fn no_forgery_is_accepted_or_costs_memory() {
    let tries = number_of("HEADGATE_FORGED", TRIES);
    let first = number_of("HEADGATE_FORGED_SEED", 0);
    let old = recorded(&mut Rng::with_seed(u64::MAX));
    let mut outcomes: BTreeMap<(Forgery, &str), u64> = BTreeMap::new();
    let (mut most_read, mut most_allocated) = (0, 0);
    for seed in first..first + tries {
        let rng = &mut Rng::with_seed(seed);
        let forgery = ALL[(seed % ALL.len() as u64) as usize];
        let (mut server, last) = forge(forgery, rng, &old);
        let outcome = word(&last);
        assert_ne!(outcome, "accepted", "HEADGATE_FORGED_SEED={seed}: {forgery:?}");
        // After a refusal not even an honest client gets in.
        if last.is_err() {
            let (mut late, hello) = client(rng, right_key());
            assert_eq!(server.hear(&hello), Err(HandshakeError::Over), "{seed}: {forgery:?}");
            assert!(late.handle(&mut &[][..]).is_ok());
        }
        most_read = most_read.max(server.read);
        most_allocated = most_allocated.max(server.most_allocated);
        assert!(server.read <= MAX_HANDSHAKE_LEN, "{seed}: {forgery:?} had {} read", server.read);
        assert!(
            server.most_allocated <= MOST_ALLOCATED,
            "{seed}: {forgery:?} had {} bytes allocated",
            server.most_allocated
        );
        *outcomes.entry((forgery, outcome)).or_default() += 1;
        if seed % 1000 == 0 {
            // The same server lets an honest client in.
            recorded(rng);
        }
    }
    println!("{tries} forged handshakes, at most {most_read} bytes read and {most_allocated} held");
    for ((forgery, outcome), count) in &outcomes {
        println!("  {:<14}{outcome:<12}{count:>8}", format!("{forgery:?}"));
    }
    for forgery in ALL {
        let of = |word| outcomes.get(&(forgery, word)).copied().unwrap_or(0);
        let (wrong, refused) = (of(WRONG_PROOF), of("refused"));
        match forgery {
            CutOff => {
                assert!(of("waits") >= tries / 50, "a stranger that falls silent has no answer")
            }
            Noise | OutOfTurn => assert!(refused >= tries / 50, "{forgery:?}: {refused} refused"),
            // A change of the HELLO is seen at once, or by the proof.
            ChangedHello | Flood => assert!(wrong > 0 && wrong + refused >= tries / 50),
            _ => assert!(wrong >= tries / 50, "{forgery:?}: {wrong} proofs were checked"),
        }
    }
}

/// The forgeries are made as honest proofs are, so that only what is wrong in them is refused.
#[test]
fn the_same_proof_with_the_right_key_is_accepted() {
    let rng = &mut Rng::with_seed(0);
    for tls in [None, Some(nonce(rng))] {
        let mut server = Server::new(rng, tls);
        let (_, hello) = client(rng, right_key());
        let Ok(Step::Send(challenge)) = server.hear(&hello) else { panic!("a right HELLO") };
        let right = match &tls {
            None => proof(&data_key(), LABEL, &[&hello, &challenge]),
            Some(binding) => proof(&data_key(), TLS_LABEL, &[binding, &hello, &challenge]),
        };
        let step = server.hear(&right);
        assert!(matches!(step, Ok(Step::Done { .. })), "{step:?}");
    }
}
