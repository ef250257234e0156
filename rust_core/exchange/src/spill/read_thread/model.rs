//! Loom explores all orders of the read thread and its views: every request is served, a view may
//! be dropped at any time, a stop waits for a running read, and no thread waits for ever. Waits
//! that only time ends are left out.

use std::panic::resume_unwind;

use super::*;
use crate::sync::model::check;
use crate::sync::thread::spawn;

/// The segments of all views of a model, and the view that waits for one. A leaf lock.
#[derive(Default)]
struct Segments {
    free: usize,
    waiter: Option<Weak<View>>,
}

impl Segments {
    fn of(free: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { free, waiter: None }))
    }
}

struct View {
    segments: Arc<Mutex<Segments>>,
    state: Mutex<State>,
    changed: Condvar,
    panics: bool,
    this: Weak<Self>,
}

#[derive(Default)]
struct State {
    filled: usize,
    failure: Option<ExchangeError>,
}

impl View {
    fn new(segments: &Arc<Mutex<Segments>>, panics: bool) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            segments: Arc::clone(segments),
            state: Mutex::default(),
            changed: Condvar::new(),
            panics,
            this: Weak::clone(this),
        })
    }

    fn wait_until(&self, over: impl Fn(&State) -> bool) {
        let mut state = lock(&self.state);
        while !over(&state) {
            state = self.changed.wait(state).expect("no panic");
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn filled(&self) -> usize {
        lock(&self.state).filled
    }
}

fn weak(view: &Arc<View>) -> Weak<dyn Fill> {
    Arc::<View>::downgrade(view)
}

impl Fill for View {
    fn fill(&self) -> Filled {
        if self.panics {
            resume_unwind(Box::new("no good".to_owned()));
        }
        let mut segments = lock(&self.segments);
        if segments.free == 0 {
            segments.waiter = Some(Weak::clone(&self.this));
            return Filled::Starved;
        }
        segments.free -= 1;
        drop(segments);
        self.change(|state| state.filled += 1);
        Filled::Done
    }

    fn reclaim(&self) -> bool {
        unreachable!("in a model no time passes")
    }

    fn fail(&self, cause: &ExchangeError) {
        self.change(|state| state.failure = Some(cause.clone()));
    }
}

/// Frees a segment, and queues the view again that waits for one.
fn recycle(segments: &Mutex<Segments>, reads: &ReadThread) {
    let mut segments = lock(segments);
    segments.free += 1;
    let waiter = segments.waiter.take();
    drop(segments);
    if let Some(view) = waiter {
        reads.retry(view);
    }
}

#[test]
fn every_request_is_served() {
    check(|| {
        let reads = Arc::new(ReadThread::default());
        let segments = Segments::of(2);
        let views = [(); 2].map(|()| View::new(&segments, false));
        let (other, view) = (Arc::clone(&reads), Arc::clone(&views[0]));
        let user = spawn(move || other.request(weak(&view)).expect("not stopped"));
        reads.request(weak(&views[1])).expect("not stopped");
        user.join().expect("no panic");
        for view in &views {
            view.wait_until(|state| state.filled == 1);
        }
        reads.stop();
    });
}

#[test]
fn a_view_without_a_segment_is_served_when_one_is_free() {
    check(|| {
        let reads = Arc::new(ReadThread::default());
        let segments = Segments::of(0);
        let view = View::new(&segments, false);
        reads.request(weak(&view)).expect("not stopped");
        let (other, free) = (Arc::clone(&reads), Arc::clone(&segments));
        let recycler = spawn(move || recycle(&free, &other));
        view.wait_until(|state| state.filled == 1);
        recycler.join().expect("no panic");
        reads.stop();
    });
}

#[test]
fn a_view_is_dropped_during_its_read() {
    check(|| {
        let reads = Arc::new(ReadThread::default());
        let segments = Segments::of(2);
        let [view, stays] = [(); 2].map(|()| View::new(&segments, false));
        let gone = Arc::downgrade(&view);
        reads.request(weak(&view)).expect("not stopped");
        let reader = spawn(move || drop(view));
        reads.request(weak(&stays)).expect("not stopped");
        stays.wait_until(|state| state.filled == 1);
        reader.join().expect("no panic");
        reads.stop();
        assert!(gone.upgrade().is_none());
    });
}

#[test]
fn a_starved_view_is_dropped_when_its_segment_comes() {
    check(|| {
        let reads = Arc::new(ReadThread::default());
        let segments = Segments::of(0);
        let view = View::new(&segments, false);
        reads.request(weak(&view)).expect("not stopped");
        let (other, free) = (Arc::clone(&reads), Arc::clone(&segments));
        let recycler = spawn(move || recycle(&free, &other));
        drop(view);
        recycler.join().expect("no panic");
        reads.stop();
        assert!(lock(&segments).free <= 1);
    });
}

#[test]
fn a_panic_ends_its_view_and_no_other() {
    check(|| {
        let reads = Arc::new(ReadThread::default());
        let segments = Segments::of(1);
        let (bad, good) = (View::new(&segments, true), View::new(&segments, false));
        for view in [&bad, &good] {
            reads.request(weak(view)).expect("not stopped");
        }
        good.wait_until(|state| state.filled == 1);
        bad.wait_until(|state| matches!(state.failure, Some(ExchangeError::Internal(_))));
        reads.stop();
    });
}

#[test]
fn a_stop_races_with_a_request_and_a_read() {
    check(|| {
        let reads = Arc::new(ReadThread::default());
        let segments = Segments::of(2);
        let [view, late] = [(); 2].map(|()| View::new(&segments, false));
        reads.request(weak(&view)).expect("not stopped");
        let (other, of_other) = (Arc::clone(&reads), Arc::clone(&late));
        let user = spawn(move || {
            let asked = other.request(weak(&of_other));
            assert!(matches!(asked, Ok(()) | Err(ExchangeError::Closed(_))));
        });
        reads.stop();
        let filled = view.filled() + late.filled();
        user.join().expect("no panic");
        assert_eq!(view.filled() + late.filled(), filled, "nobody reads after the stop");
        assert!(reads.lock().thread.is_none(), "and nobody starts again");
    });
}
