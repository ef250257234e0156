//! A producer whose address is answered by others for a while: the consumer dials again, and reads all rows.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use common::{Env, SECRET, batch, config, drain, nothing, writer};
use headgate_exchange::{Address, Config, ExchangeError, InputGate};
use headgate_protocol::{HandshakeConfig, Key, ServerHandshake, Step, VersionRange};

const HELLO: usize = 86;
const PROOF: usize = 37;
/// The REJECT of a peer without the secret, and the one that names other versions.
const REFUSED: &[u8] = b"HDGT\x05\x02\x00\x00\x00\x00";
const VERSIONS: &[u8] = b"HDGT\x05\x01\x00\x07\x00\x09";

/// The answer of a listener, which then closes the connection.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Nothing,
    /// Reads the HELLO.
    Silence,
    Says(&'static [u8]),
    /// A CHALLENGE by this secret, and what follows the PROOF.
    Challenge([u8; 32], &'static [u8]),
}

/// Answers that prove nothing, and those of a listener that makes room for others.
const UNPROVED: [Answer; 7] = [
    Answer::Nothing,
    Answer::Silence,
    Answer::Says(REFUSED),
    Answer::Says(VERSIONS),
    Answer::Says(b"SSH-2.0-OpenSSH_9.2\r\n"),
    Answer::Challenge([8; 32], b""),
    Answer::Challenge(SECRET, b""),
];

impl Answer {
    fn play(self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        let mut hello = [0; HELLO];
        match self {
            Self::Nothing => return Ok(()),
            Self::Silence => stream.read_exact(&mut hello)?,
            Self::Says(bytes) => {
                stream.read_exact(&mut hello)?;
                stream.write_all(bytes)?;
            }
            Self::Challenge(secret, last) => {
                stream.read_exact(&mut hello)?;
                let Config { exchange, run, epoch, .. } = config(4, 4096);
                let (process, versions, max_segment) = ([6; 16], VersionRange::SUPPORTED, 4096);
                let config =
                    HandshakeConfig { exchange, run, epoch, process, max_segment, versions };
                let key = Key::derive(&secret, &exchange, run, epoch);
                let mut server = ServerHandshake::new(key, config, [3; 32]);
                let Ok(Step::Send(challenge)) = server.handle(&mut &hello[..]) else {
                    panic!("the HELLO is right");
                };
                stream.write_all(&challenge)?;
                stream.read_exact(&mut [0; PROOF])?;
                stream.write_all(last)?;
            }
        }
        Ok(())
    }
}

/// Answers some connections to its port, and passes all later ones on to a producer.
struct Squatter {
    address: SocketAddr,
    answered: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Squatter {
    fn new(answer: Answer, times: usize, producer: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answered = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (count, over) = (Arc::clone(&answered), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if count.load(Ordering::Relaxed) < times {
                    count.fetch_add(1, Ordering::Relaxed);
                    // The consumer may have closed it.
                    let _ = answer.play(&mut stream);
                } else {
                    pass_on(&stream, &TcpStream::connect(producer).unwrap());
                }
            }
        });
        Self { address, answered, is_over, thread: Some(thread) }
    }

    fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        TcpStream::connect(self.address).unwrap();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// Copies the bytes of both directions, in threads that end with the connection.
fn pass_on(one: &TcpStream, other: &TcpStream) {
    for (from, to) in [(one, other), (other, one)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            // Either end may break the connection; the other one gets an end then.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

/// A producer of 100 rows over TCP, and a consumer.
struct Two {
    producer: Env,
    consumer: Env,
    at: Address,
}

impl Two {
    fn new(consumer: Config) -> Self {
        let (producer, consumer) = (Env::new(24, 4096), Env::with(consumer));
        let partition = producer.partition(1);
        let mut writer = writer(&partition);
        writer.emit(&batch(0, 100, 10), &nothing).unwrap();
        writer.finish().unwrap();
        let at = producer.address(&partition, 0);
        Self { producer, consumer, at }
    }

    fn address(&self) -> SocketAddr {
        self.producer.0.address().unwrap()
    }

    /// Opens a gate for the rows, which dials this address.
    fn gate(&self, address: SocketAddr) -> Arc<InputGate> {
        self.consumer.gate(&[Address { port: address.port(), ..self.at.clone() }])
    }

    fn read(&self, address: SocketAddr) -> Result<Vec<i64>, ExchangeError> {
        let gate = self.gate(address);
        let keys = drain(&mut self.consumer.reader(&gate));
        gate.close();
        keys
    }
}

fn all_rows() -> Vec<i64> {
    (0..100).collect()
}

#[test]
fn unproved_answers_cost_no_row() {
    for answer in UNPROVED {
        let two = Two::new(config(24, 4096));
        let squatter = Squatter::new(answer, 4, two.address());
        assert_eq!(two.read(squatter.address).unwrap(), all_rows(), "{answer:?}");
        assert_eq!(squatter.answered(), 4, "{answer:?}");
    }
}

#[test]
fn a_refusal_by_a_peer_that_has_proved_itself_is_final() {
    for last in [REFUSED, b"no Headgate"] {
        let two = Two::new(config(24, 4096));
        let squatter = Squatter::new(Answer::Challenge(SECRET, last), 4, two.address());
        let error = two.read(squatter.address).unwrap_err();
        assert!(matches!(error, ExchangeError::Handshake { .. }), "{error:?}");
        assert_eq!(squatter.answered(), 1);
        two.producer.0.release_partition(two.at.partition);
    }
}

#[test]
fn another_process_that_knows_the_secret_is_final() {
    let two = Two::new(config(24, 4096));
    let squatter = Squatter::new(Answer::Challenge(SECRET, b"HDGT\x04"), 4, two.address());
    let error = two.read(squatter.address).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    assert_eq!(squatter.answered(), 1);
    two.producer.0.release_partition(two.at.partition);
}

#[test]
fn where_nobody_listens_any_more_the_second_attempt_is_the_last() {
    let two = Two::new(config(24, 4096));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gate = two.gate(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    drop(listener);
    stream.read_exact(&mut [0; HELLO]).unwrap();
    drop(stream);
    let error = drain(&mut two.consumer.reader(&gate)).unwrap_err();
    assert!(matches!(error, ExchangeError::Connect { .. }), "{error:?}");
    gate.close();
    two.producer.0.release_partition(two.at.partition);
}

#[test]
fn a_channel_that_opens_meanwhile_waits_with_the_others() {
    let two = Two::new(config(24, 4096));
    let other = two.producer.partition(1);
    let squatter = Squatter::new(Answer::Nothing, 6, two.address());
    let first = two.gate(squatter.address);
    common::wait_until("it was dialed again", || squatter.answered() > 2);
    let at = Address { port: squatter.address.port(), ..two.producer.address(&other, 0) };
    let second = two.consumer.gate(&[at]);
    let mut writer = writer(&other);
    writer.emit(&batch(100, 200, 10), &nothing).unwrap();
    writer.finish().unwrap();
    for (gate, keys) in [(first, 0..100), (second, 100..200)] {
        assert_eq!(drain(&mut two.consumer.reader(&gate)).unwrap(), Vec::from_iter(keys));
        gate.close();
    }
    assert_eq!(two.consumer.0.stats().connections.tcp, 1);
}

#[test]
fn an_environment_that_closes_meanwhile_waits_for_nobody() {
    let two = Two::new(config(24, 4096));
    let squatter = Squatter::new(Answer::Nothing, usize::MAX, two.address());
    let gate = two.gate(squatter.address);
    common::wait_until("it was dialed again", || squatter.answered() > 2);
    two.consumer.0.close();
    assert!(drain(&mut two.consumer.reader(&gate)).is_err());
    two.producer.0.release_partition(two.at.partition);
}

#[test]
fn whoever_owns_the_socket_of_the_host_tcp_is_used() {
    for answer in UNPROVED {
        let two = Two::new(Config { same_host_link: true, ..config(24, 4096) });
        let name = format!("headgate {}", two.address());
        let name = net::SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&name).unwrap();
        let squatting = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The consumer may have closed it.
            let _ = answer.play(&mut stream);
            drop(stream);
            listener.set_nonblocking(true).unwrap();
            listener
        });
        assert_eq!(two.read(two.address()).unwrap(), all_rows(), "{answer:?}");
        let again = squatting.join().unwrap().accept().unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock, "the socket was tried again");
        assert_eq!(two.consumer.0.stats().connections.tcp, 1);
    }
}
