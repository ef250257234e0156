//! Loom explores all orders of the flusher and its writers: due writers are flushed, a failure
//! reaches its writer, a stop waits for a running flush, and no thread waits for ever.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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

fn counting() -> (Arc<TimedFlush>, Arc<Count>) {
    let flushed = Arc::<Count>::default();
    let count = Arc::clone(&flushed);
    let writer = TimedFlush::new(move || count.add(), |error| panic!("{error} did not happen"));
    (Arc::new(writer), flushed)
}

fn pass_time(flusher: &OutputFlusher, time: Duration) {
    pass(time, &flusher.shared.state, &flusher.shared.changed);
}

#[test]
fn a_writer_is_flushed_each_time_it_is_due() {
    check(|| {
        let flusher = OutputFlusher::default();
        let (writer, flushed) = counting();
        flusher.register(&writer, SOON).expect("not stopped");
        for times in 1..=2 {
            pass_time(&flusher, SOON);
            flushed.wait_for(times);
        }
        flusher.stop();
        assert_eq!(flushed.get(), 2, "not before its time");
    });
}

#[test]
fn a_shorter_timeout_ends_the_wait_for_a_longer_one() {
    check(|| {
        let flusher = Arc::<OutputFlusher>::default();
        let (slow, never) = counting();
        flusher.register(&slow, LATE).expect("not stopped");
        let other = Arc::clone(&flusher);
        let user = spawn(move || {
            let (quick, flushed) = counting();
            other.register(&quick, SOON).expect("not stopped");
            pass_time(&other, SOON);
            flushed.wait_for(1);
        });
        user.join().expect("no panic");
        flusher.stop();
        assert_eq!(never.get(), 0);
    });
}

#[test]
fn a_writer_is_dropped_while_it_is_flushed() {
    check(|| {
        let flusher = OutputFlusher::default();
        let (writer, flushed) = counting();
        let gone = Arc::downgrade(&writer);
        flusher.register(&writer, SOON).expect("not stopped");
        let owner = spawn(move || drop(writer));
        pass_time(&flusher, SOON);
        owner.join().expect("no panic");
        // The next writer's turn removes the entry of the dropped one.
        let (next, of_next) = counting();
        flusher.register(&next, SOON).expect("not stopped");
        pass_time(&flusher, SOON);
        of_next.wait_for(1);
        flusher.stop();
        assert!(flushed.get() <= 1, "a finished writer is flushed no more");
        assert!(gone.upgrade().is_none());
        assert_eq!(lock(&flusher.shared.state).entries.len(), 1);
    });
}

#[test]
fn a_failure_reaches_its_writer_and_no_other() {
    check(|| {
        let flusher = OutputFlusher::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let reported = Arc::<Count>::default();
        let (tried, report) = (Arc::clone(&calls), Arc::clone(&reported));
        let flush = move || {
            tried.fetch_add(1, Relaxed);
            resume_unwind(Box::new("no good"));
        };
        let bad = Arc::new(TimedFlush::new(flush, move |_| report.add()));
        let (good, flushed) = counting();
        flusher.register(&bad, SOON).expect("not stopped");
        flusher.register(&good, SOON).expect("not stopped");
        pass_time(&flusher, SOON);
        reported.wait_for(1);
        assert!(matches!(bad.check(), Err(ExchangeError::Flush(_))));
        flushed.wait_for(1);
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
        let (writer, flushed) = counting();
        flusher.register(&writer, SOON).expect("not stopped");
        let other = Arc::clone(&flusher);
        let late = spawn(move || {
            let (writer, flushed) = counting();
            if other.register(&writer, SOON).is_ok() {
                pass_time(&other, SOON);
            }
            flushed
        });
        flusher.stop();
        let before = flushed.get();
        let of_late = late.join().expect("no panic");
        let (first, second) = (flushed.get(), of_late.get());
        assert!(first == before && first <= 1 && second <= 1, "{first} of {before}, {second}");
        assert!(lock(&flusher.thread).is_none(), "nobody starts it again");
        assert!(matches!(flusher.register(&writer, SOON), Err(ExchangeError::Closed(_))));
    });
}
