//! One process: an environment whose I/O thread is driven by hand.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use headgate_net::Mailbox;
use headgate_net::simulation::{Command, Peers};
use proptest::prelude::RngExt;
use proptest::test_runner::TestRng;

use crate::config::{BufferOptions, Config};
use crate::environment::ShuffleEnvironment;
use crate::simulator::wire::{Event, Net, SimLink, address_of};

pub(super) struct Process {
    pub(super) env: ShuffleEnvironment,
    peers: Option<Peers<SimLink>>,
    link: SimLink,
    mailbox: Arc<Mailbox>,
    /// Keeps the registration of the mailbox's waker alive.
    _poll: mio::Poll,
    /// True once the process shuts down; further commands are ignored.
    ending: bool,
}

impl Process {
    pub(super) fn new(
        net: &Rc<RefCell<Net>>,
        number: usize,
        (segments, segment_size): (usize, usize),
        (buffers_per_channel, floating_buffers_per_gate): (usize, usize),
    ) -> Self {
        let buffers = BufferOptions {
            buffers_per_channel,
            floating_buffers_per_gate,
            ..BufferOptions::default()
        };
        let same_host_link = net.borrow().same_host;
        let config =
            Config { buffers, same_host_link, ..Config::of_segments(segments, segment_size) };
        let env = ShuffleEnvironment::new(config).expect("random numbers");
        let poll = mio::Poll::new().expect("a descriptor");
        let mailbox = Arc::new(Mailbox::new(poll.registry()).expect("a descriptor"));
        let link = || SimLink { net: Rc::clone(net), process: number };
        let peers = env.drive_by_hand(link(), address_of(number), Arc::clone(&mailbox));
        Self { env, peers: Some(peers), link: link(), mailbox, _poll: poll, ending: false }
    }

    /// Runs one round of the I/O thread; returns true if there was work.
    pub(super) fn wake(&mut self, now: Instant, rng: &mut TestRng) -> bool {
        let Some(peers) = &mut self.peers else { return false };
        let mut worked = false;
        while let Some((stream, peer)) = self.link.accept() {
            peers.accept(stream, peer, now);
            worked = true;
        }
        let events = self.link.take_events();
        for event in events {
            let Event { token, readable, ended, writable } = event;
            worked |= peers.report(token, readable, readable && ended, writable);
        }
        for token in self.link.watched() {
            worked |= peers.check_lease(token);
        }
        let mut commands = Vec::new();
        self.mailbox.drain(&mut commands);
        reorder(&mut commands, rng);
        for command in commands {
            worked = true;
            match command {
                Command::Shutdown => {
                    self.ending = true;
                    peers.say_goodbye();
                }
                other if !self.ending => peers.handle(other, now),
                _ => {}
            }
        }
        worked |= peers.is_readable();
        peers.serve_all(now);
        peers.expire(now);
        if self.ending {
            peers.end_idle(now);
            if peers.is_empty() {
                self.peers = None;
            }
        }
        worked
    }

    /// Returns the time at which a connection is dialed again.
    pub(super) fn next_redial(&self) -> Option<Instant> {
        self.peers.as_ref()?.next_redial()
    }

    /// Drops the connections that have not ended by themselves.
    pub(super) fn forget_peers(&mut self) {
        self.peers = None;
    }
}

/// Reorders commands as concurrent threads could post them. A channel's opening stays ahead of its
/// other commands.
fn reorder(commands: &mut [Command], rng: &mut TestRng) {
    let fixed = |command: &Command| matches!(command, Command::Open { .. } | Command::Shutdown);
    for at in 1..commands.len() {
        if !fixed(&commands[at - 1]) && !fixed(&commands[at]) && rng.random_bool(0.5) {
            commands.swap(at - 1, at);
        }
    }
}
