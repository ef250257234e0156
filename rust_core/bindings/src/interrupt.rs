//! Releasing and taking the GIL: Ctrl-C in blocking calls, and the exit of the interpreter.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use headgate_exchange::{ExchangeError, Interrupt, Interruption, Result, ShuffleEnvironment};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::to_py;

/// True once the interpreter exits. Python ends a thread that then takes the GIL by unwinding it
/// through Rust frames, which aborts the process. Such threads therefore park forever instead.
static EXITING: AtomicBool = AtomicBool::new(false);
/// The thread that runs the exit, which must not park.
static EXIT_THREAD: OnceLock<ThreadId> = OnceLock::new();
/// Time for which a signal may wait until the call that blocks hears of it.
const SIGNAL_PERIOD: Duration = Duration::from_millis(50);
/// Time for threads that already wait for the GIL when the exit starts to get it.
const LAST_TURN: Duration = Duration::from_millis(20);

/// Registered with `atexit` at import, so it runs after all handlers registered later.
#[pyfunction]
pub(crate) fn exiting(py: Python<'_>) {
    EXIT_THREAD.get_or_init(|| thread::current().id());
    EXITING.store(true, Ordering::Release);
    ShuffleEnvironment::process_ends();
    py.detach(|| thread::sleep(LAST_TURN));
}

/// True once the interpreter exits.
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Ordering::Acquire)
}

fn sleep_if_exiting() {
    while is_exiting() && EXIT_THREAD.get() != Some(&thread::current().id()) {
        thread::park();
    }
}

/// Runs `call` without the GIL.
pub(crate) fn released<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let result = call();
        sleep_if_exiting();
        result
    })
}

/// The exceptions of Python's signal handlers.
#[derive(Default)]
struct Signals {
    raised: Mutex<Option<PyErr>>,
}

impl Interruption for Signals {
    fn check(&self) -> Result<()> {
        sleep_if_exiting();
        if self.period().is_none() {
            return Ok(());
        }
        Python::attach(|py| py.check_signals()).map_err(|error| {
            let text = error.to_string();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            ExchangeError::Interrupted(text)
        })
    }

    fn period(&self) -> Option<Duration> {
        // Signal handlers run on Python's main thread only. It is the first of the process, also of a
        // forked child.
        (rustix::thread::gettid() == rustix::process::getpid()).then_some(SIGNAL_PERIOD)
    }
}

/// Runs `call` without the GIL. While it blocks, Python's signal handlers run, and an exception
/// they raise, such as `KeyboardInterrupt`, ends the call.
pub(crate) fn blocking<T: Send>(
    py: Python<'_>,
    call: impl FnOnce(Interrupt<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    let signals = Signals::default();
    let result = released(py, || call(&signals));
    result.map_err(|error| {
        let raised = signals.raised.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (error, raised) {
            (ExchangeError::Interrupted(_), Some(raised)) => raised,
            (error, _) => to_py(py, &error),
        }
    })
}

/// Reads the `timeout` of a blocking call in seconds; `None` waits without limit.
pub(crate) fn timeout_of(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    seconds
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|error| PyValueError::new_err(error.to_string()))
}
