//! Loom explores all orders of the flusher and its writers: what was written is flushed, a failure
//! reaches its writer, a stop waits for a running flush, and no thread waits for ever.

use std::panic::resume_unwind;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::sync::model::{check, pass};
use crate::sync::thread::spawn;

const SOON: Duration = Duration::from_millis(10);
const LATE: Duration = Duration::from_millis(1000);

/// A counter that threads can wait for. A leaf lock.
#[derive(Default)]
struct Count(Mutex<usize>, Condvar);

impl Count {
    fn add(&self) {
        *lock(&self.0) += 1;
        self.1.notify_all();
    }

    fn wait_for(&self, count: usize) {
        let mut guard = lock(&self.0);
        while *guard < count {
            guard = self.1.wait(guard).expect("no panic");
        }
    }

    fn get(&self) -> usize {
        *lock(&self.0)
    }
}

fn never(error: &ExchangeError) {
    panic!("{error} did not happen")
}

/// Registers a writer that has written something. None once the flusher is stopped.
fn writing(flusher: &OutputFlusher, timeout: Duration) -> Option<(Arc<TimedFlush>, Arc<Count>)> {
    let flushed = Arc::<Count>::default();
    let count = Arc::clone(&flushed);
    let flush = move || {
        count.add();
        false
    };
    let writer = flusher.register(timeout, flush, never).ok()?;
    writer.written();
    Some((writer, flushed))
}

fn pass_time(flusher: &OutputFlusher, time: Duration) {
    pass(time, &flusher.shared.state, &flusher.shared.changed);
}

#[test]
fn a_writer_is_flushed_each_time_its_timeout_has_passed_since_a_write() {
    check(|| {
        let flusher = OutputFlusher::default();
        let (writer, flushed) = writing(&flusher, SOON).expect("not stopped");
        pass_time(&flusher, SOON);
        flushed.wait_for(1);
        writer.written();
        pass_time(&flusher, SOON);
        flushed.wait_for(2);
        flusher.stop();
        assert_eq!(flushed.get(), 2, "not before its time");
    });
}

#[test]
fn what_is_written_during_a_flush_is_flushed_too() {
    /// Writes, and those of them that a flush has shown.
    #[derive(Default)]
    struct Page(Mutex<(usize, usize)>, Condvar);

    check(|| {
        let flusher = OutputFlusher::default();
        let page = Arc::<Page>::default();
        let shown = Arc::clone(&page);
        let flush = move || {
            let mut page = lock(&shown.0);
            page.1 = page.0;
            drop(page);
            shown.1.notify_all();
            false
        };
        let writer = flusher.register(SOON, flush, never).expect("not stopped");
        let (written, owner) = (Arc::clone(&page), Arc::clone(&writer));
        let writing = spawn(move || {
            for _ in 0..2 {
                lock(&written.0).0 += 1;
                owner.written();
            }
        });
        pass_time(&flusher, SOON);
        writing.join().expect("no panic");
        pass_time(&flusher, SOON);
        let mut guard = lock(&page.0);
        while guard.1 < 2 {
            guard = page.1.wait(guard).expect("no panic");
        }
        drop(guard);
        flusher.stop();
    });
}

#[test]
fn a_writer_that_writes_nothing_has_no_entry() {
    check(|| {
        let flusher = OutputFlusher::default();
        let (idle, flushed) = writing(&flusher, SOON).expect("not stopped");
        pass_time(&flusher, SOON);
        flushed.wait_for(1);
        let (_next, of_next) = writing(&flusher, SOON).expect("not stopped");
        pass_time(&flusher, SOON);
        of_next.wait_for(1);
        flusher.stop();
        assert_eq!(flushed.get(), 1);
        let state = lock(&flusher.shared.state);
        assert!(state.entries.iter().all(|entry| entry.writer.as_ptr() != Arc::as_ptr(&idle)));
    });
}

#[test]
fn a_shorter_timeout_ends_the_wait_for_a_longer_one() {
    check(|| {
        let flusher = Arc::<OutputFlusher>::default();
        let (_slow, unflushed) = writing(&flusher, LATE).expect("not stopped");
        let other = Arc::clone(&flusher);
        let user = spawn(move || {
            let (_quick, flushed) = writing(&other, SOON).expect("not stopped");
            pass_time(&other, SOON);
            flushed.wait_for(1);
        });
        user.join().expect("no panic");
        flusher.stop();
        assert_eq!(unflushed.get(), 0);
    });
}

#[test]
fn a_writer_is_dropped_while_it_is_flushed() {
    check(|| {
        let flusher = OutputFlusher::default();
        let (writer, flushed) = writing(&flusher, SOON).expect("not stopped");
        let gone = Arc::downgrade(&writer);
        let owner = spawn(move || drop(writer));
        pass_time(&flusher, SOON);
        owner.join().expect("no panic");
        // The next writer's turn removes the entry of the dropped one.
        let (_next, of_next) = writing(&flusher, SOON).expect("not stopped");
        pass_time(&flusher, SOON);
        of_next.wait_for(1);
        flusher.stop();
        assert!(flushed.get() <= 1, "a finished writer is flushed no more");
        assert!(gone.upgrade().is_none());
        let state = lock(&flusher.shared.state);
        assert!(state.entries.iter().all(|entry| entry.writer.strong_count() > 0));
    });
}

#[test]
fn a_failure_reaches_its_writer_and_no_other() {
    check(|| {
        let flusher = OutputFlusher::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let reported = Arc::<Count>::default();
        let (tried, report) = (Arc::clone(&calls), Arc::clone(&reported));
        let flush = move || -> bool {
            tried.fetch_add(1, Relaxed);
            resume_unwind(Box::new("no good"))
        };
        let bad = flusher.register(SOON, flush, move |_| report.add()).expect("not stopped");
        bad.written();
        let (good, flushed) = writing(&flusher, SOON).expect("not stopped");
        pass_time(&flusher, SOON);
        reported.wait_for(1);
        assert!(matches!(bad.check(), Err(ExchangeError::Flush(_))));
        flushed.wait_for(1);
        bad.written();
        good.written();
        pass_time(&flusher, SOON);
        flushed.wait_for(2);
        flusher.stop();
        assert_eq!((calls.load(Relaxed), reported.get()), (1, 1), "once, then never again");
        good.check().expect("it did not fail");
    });
}

#[test]
fn a_stop_races_with_a_register_and_a_flush() {
    check(|| {
        let flusher = Arc::<OutputFlusher>::default();
        let (writer, flushed) = writing(&flusher, SOON).expect("not stopped");
        let other = Arc::clone(&flusher);
        let late = spawn(move || {
            let late = writing(&other, SOON);
            if late.is_some() {
                pass_time(&other, SOON);
            }
            late.map_or(0, |(_, flushed)| flushed.get())
        });
        flusher.stop();
        let before = flushed.get();
        assert!(late.join().expect("no panic") <= 1);
        assert!(flushed.get() == before && before <= 1, "{before}");
        assert!(lock(&flusher.thread).is_none(), "nobody starts it again");
        writer.written();
        assert!(writing(&flusher, SOON).is_none());
    });
}
