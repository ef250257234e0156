//! Notifications of channels and a reader, in all orders of their threads: every buffer is read, priority
//! events first, and no thread waits without end.

use super::*;
use crate::gate::wait::wait_until;
use crate::sync::model::check;
use crate::sync::thread::{JoinHandle, spawn};

/// The buffers of one channel, by number, those with priority first; and the next number.
#[derive(Default)]
struct Received(Mutex<(PrioritizedDeque<(Sequence, bool)>, u32)>);

struct Gate {
    queue: GateQueue,
    channels: Vec<Received>,
}

impl Gate {
    fn of(channels: usize) -> Arc<Self> {
        let queue = GateQueue::new(Idle::new(Vec::new()));
        queue.lock().channels.extend((0..channels).map(|_| Slot::new(None)));
        Arc::new(Self { queue, channels: (0..channels).map(|_| Received::default()).collect() })
    }

    /// Delivers a buffer as a remote channel does.
    fn deliver(&self, channel: usize, priority: bool) {
        let mut guard = lock(&self.channels[channel].0);
        let (received, next) = &mut *guard;
        let sequence = Sequence(*next);
        *next += 1;
        if priority {
            received.add_priority((sequence, true));
        } else {
            received.add((sequence, false));
        }
        let first = received.len() == 1;
        drop(guard);
        if priority {
            self.queue.notify_priority_event(channel, sequence);
        } else if first {
            self.queue.notify_non_empty(channel);
        }
    }

    /// Takes a buffer as a gate does.
    fn take(&self, channel: usize) -> Option<(usize, bool)> {
        let mut guard = lock(&self.channels[channel].0);
        let taken = guard.0.poll();
        let more = if guard.0.priority_len() > 0 {
            More::PriorityEvent
        } else if guard.0.is_empty() {
            More::Nothing
        } else {
            More::Something
        };
        drop(guard);
        let priority = taken.filter(|(_, priority)| *priority).map(|(sequence, _)| sequence);
        self.queue.taken(channel, more, priority);
        taken.map(|(_, priority)| (channel, priority))
    }

    /// Waits for the next buffer; `None` at the end.
    fn next(&self) -> Result<Option<(usize, bool)>> {
        let GateQueue { state, arrived, .. } = &self.queue;
        while let Some(channel) = wait_until(state, arrived, &|| Ok(()), State::poll_index)? {
            if let Some(taken) = self.take(channel) {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    fn producer(self: &Arc<Self>, channel: usize, buffers: &'static [bool]) -> JoinHandle<()> {
        let gate = Arc::clone(self);
        spawn(move || {
            for priority in buffers {
                gate.deliver(channel, *priority);
            }
        })
    }
}

const DATA: bool = false;
const PRIORITY: bool = true;

#[test]
fn a_reader_gets_every_buffer_of_two_channels() {
    check(|| {
        let gate = Gate::of(2);
        let producers = [gate.producer(0, &[DATA, DATA]), gate.producer(1, &[DATA])];
        let mut counts = [0; 2];
        for _ in 0..3 {
            let (channel, _) = gate.next().expect("no failure").expect("not sealed");
            counts[channel] += 1;
        }
        assert_eq!(counts, [2, 1]);
        for producer in producers {
            producer.join().expect("no panic");
        }
        assert!(!gate.queue.lock().is_available());
    });
}

#[test]
fn a_priority_event_is_read_whatever_it_overtakes() {
    const SCRIPTS: [[&[bool]; 2]; 2] = [[&[DATA, PRIORITY, DATA], &[]], [&[DATA], &[PRIORITY]]];
    for [first, second] in SCRIPTS {
        check(move || {
            let gate = Gate::of(2);
            let producers = [gate.producer(0, first), gate.producer(1, second)];
            let mut events = 0;
            for _ in 0..first.len() + second.len() {
                let (_, priority) = gate.next().expect("no failure").expect("not sealed");
                events += usize::from(priority);
            }
            assert_eq!(events, 1);
            for producer in producers {
                producer.join().expect("no panic");
            }
            let state = gate.queue.lock();
            assert!(!state.is_available() && !state.has_priority_event());
        });
    }
}

/// Lets a thread that only polls wait for its listener's calls.
#[derive(Default)]
struct Bell(Mutex<usize>, Condvar);

impl AvailabilityListener for Bell {
    fn data_available(&self) {
        *lock(&self.0) += 1;
        self.1.notify_all();
    }

    fn priority_available(&self) {}
}

#[test]
fn a_reader_that_polls_is_called_for_each_new_buffer() {
    check(|| {
        let gate = Gate::of(2);
        let bell = Arc::<Bell>::default();
        let listener: Arc<dyn AvailabilityListener> = bell.clone();
        gate.queue.add_listener(Arc::downgrade(&listener));
        let producers = [gate.producer(0, &[DATA]), gate.producer(1, &[PRIORITY])];
        let (mut read, mut heard) = (0, 0);
        while read < 2 {
            let polled = gate.queue.lock().poll_index().expect("no failure");
            if let Poll::Ready(channel) = polled {
                read += usize::from(gate.take(channel.expect("not sealed")).is_some());
                continue;
            }
            let mut rung = lock(&bell.0);
            while *rung == heard {
                rung = bell.1.wait(rung).expect("no panic");
            }
            heard = *rung;
        }
        for producer in producers {
            producer.join().expect("no panic");
        }
    });
}

#[test]
fn a_failure_a_close_and_the_end_wake_a_waiting_reader() {
    let ends: [fn(&GateQueue); 3] = [
        |queue| queue.change(|state| state.failure = Some(ExchangeError::Closed("test"))),
        |queue| drop(queue.close()),
        |queue| {
            queue.end(0).expect("once");
            queue.change(|state| state.sealed = true);
        },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        check(move || {
            let gate = Gate::of(1);
            let other = Arc::clone(&gate);
            let ender = spawn(move || end(&other.queue));
            let last = gate.next();
            let ended = matches!(last, Ok(None));
            assert_eq!(ended, number == 2, "{last:?}");
            ender.join().expect("no panic");
        });
    }
}
