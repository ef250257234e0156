//! The order in which channels get segments, as two plain lists.

use std::collections::VecDeque;

/// The segments that a channel waits for.
#[derive(Clone, Copy, PartialEq)]
enum Wants {
    /// A segment that it is owed: it has fewer than it was promised.
    Owed,
    /// One more for the backlog of its producer.
    Backlog,
}

struct Channel {
    promised: usize,
    free: usize,
    backlog: usize,
    /// The list that it is in.
    waits: Option<Wants>,
    /// True if it was opened without credit: a barrier takes its credit away.
    revocable: bool,
    /// True from a barrier to the resume, if it is revocable.
    revoked: bool,
    ended: bool,
}

impl Channel {
    fn wants(&self) -> Option<Wants> {
        if self.ended {
            None
        } else if self.free < self.promised {
            Some(Wants::Owed)
        } else if !self.revoked && self.free < self.promised + self.backlog {
            Some(Wants::Backlog)
        } else {
            None
        }
    }
}

/// The segments of a gate and of one other pool.
///
/// The rule: whenever a segment is free, the channel that has been owed one for the longest gets it;
/// if no channel is owed any, the one that has had a backlog for the longest. Then that channel waits
/// behind the others.
pub(super) struct Model {
    total: usize,
    exclusive: usize,
    floating: usize,
    /// Segments of the gate, wherever they are.
    held: usize,
    of_other: usize,
    channels: Vec<Channel>,
    owed: VecDeque<usize>,
    backlogs: VecDeque<usize>,
}

impl Model {
    pub(super) fn new(total: usize, exclusive: usize, floating: usize) -> Self {
        Self {
            total,
            exclusive,
            floating,
            held: 0,
            of_other: 0,
            channels: Vec::new(),
            owed: VecDeque::new(),
            backlogs: VecDeque::new(),
        }
    }

    /// The promise to the next channel; none if there is no room for one.
    pub(super) fn promise(&self) -> Option<usize> {
        let room = self.total - self.channels.iter().map(|channel| channel.promised).sum::<usize>();
        let fits = |count: &usize| match count {
            1 => room >= 1,
            count => room >= count + self.floating,
        };
        (1..=self.exclusive).rev().find(fits)
    }

    /// Gives a new channel free segments, unless others are owed some. Returns how many.
    pub(super) fn admit(&mut self, promised: usize, size: usize) -> usize {
        self.give(size, false);
        let mut given = 0;
        while self.owed.is_empty() && given < promised && self.is_free(size) {
            self.held += 1;
            given += 1;
        }
        self.give(size, true);
        given
    }

    pub(super) fn open(&mut self, promised: usize, free: usize, size: usize) {
        self.channels.push(Channel {
            promised,
            free,
            backlog: 0,
            waits: None,
            revocable: free == 0,
            revoked: false,
            ended: false,
        });
        self.ask(self.channels.len() - 1, size);
    }

    pub(super) fn data(&mut self, channel: usize, backlog: usize, size: usize) {
        self.channels[channel].free -= 1;
        self.backlog(channel, backlog, size);
    }

    pub(super) fn backlog(&mut self, channel: usize, backlog: usize, size: usize) {
        self.channels[channel].backlog = backlog;
        self.ask(channel, size);
    }

    pub(super) fn barrier(&mut self, channel: usize, size: usize) {
        let it = &mut self.channels[channel];
        it.backlog = 0;
        if it.revocable {
            it.revoked = true;
            let given_up = it.free.saturating_sub(it.promised);
            it.free -= given_up;
            (0..given_up).for_each(|_| self.recycle(size));
        }
        self.ask(channel, size);
    }

    /// Returns true if the producer drops all credit.
    pub(super) fn resume(&mut self, channel: usize) -> bool {
        let it = &mut self.channels[channel];
        it.revoked = false;
        it.revocable
    }

    pub(super) fn end(&mut self, channel: usize) {
        self.channels[channel].ended = true;
    }

    /// Returns the segments of a channel that was read to its end, then takes back its promise.
    pub(super) fn release(&mut self, channel: usize, before: usize, after: usize) {
        let free = std::mem::take(&mut self.channels[channel].free);
        (0..free).for_each(|_| self.recycle(before));
        self.leave(channel);
        self.channels[channel].promised = 0;
        self.give(after, true);
    }

    pub(super) fn recycle(&mut self, size: usize) {
        self.held -= 1;
        self.give(size, true);
    }

    /// Returns whether the other pool gets a segment.
    pub(super) fn other_takes(&mut self, size: usize) -> bool {
        let takes = self.of_other < size && self.held + self.of_other < self.total;
        self.of_other += usize::from(takes);
        takes
    }

    pub(super) fn other_returns(&mut self, size: usize) {
        self.of_other -= 1;
        self.give(size, true);
    }

    pub(super) fn free(&self, channel: usize) -> usize {
        self.channels[channel].free
    }

    /// Free segments beyond the promise of an open channel.
    pub(super) fn surplus(&self, channel: usize) -> usize {
        let Channel { promised, free, .. } = self.channels[channel];
        free.saturating_sub(promised)
    }

    /// Segments that channels are owed.
    pub(super) fn missing(&self) -> usize {
        let open = self.channels.iter().filter(|channel| !channel.ended);
        open.map(|channel| channel.promised.saturating_sub(channel.free)).sum()
    }

    fn is_free(&self, size: usize) -> bool {
        self.held < size && self.held + self.of_other < self.total
    }

    /// Hands out free segments; none for backlogs unless `backlogs` is set.
    fn give(&mut self, size: usize, backlogs: bool) {
        while self.is_free(size) {
            let next = match self.owed.front() {
                None if backlogs => self.backlogs.front(),
                owed => owed,
            };
            let Some(&channel) = next else { return };
            self.leave(channel);
            // Its turn may come when it wants none any more.
            if self.channels[channel].wants().is_some() {
                self.channels[channel].free += 1;
                self.held += 1;
            }
            self.wait(channel);
        }
    }

    /// A channel that wants a segment waits for it.
    fn ask(&mut self, channel: usize, size: usize) {
        if self.channels[channel].wants().is_some() {
            self.wait(channel);
            self.give(size, true);
        }
    }

    /// Puts the channel at the end of its list, unless it is in that list.
    fn wait(&mut self, channel: usize) {
        let wants = self.channels[channel].wants();
        if self.channels[channel].waits == wants {
            return;
        }
        self.leave(channel);
        self.channels[channel].waits = wants;
        match wants {
            Some(Wants::Owed) => self.owed.push_back(channel),
            Some(Wants::Backlog) => self.backlogs.push_back(channel),
            None => {}
        }
    }

    fn leave(&mut self, channel: usize) {
        self.channels[channel].waits = None;
        self.owed.retain(|other| *other != channel);
        self.backlogs.retain(|other| *other != channel);
    }
}
