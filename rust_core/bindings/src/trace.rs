//! The trace of this process.

use std::time::UNIX_EPOCH;

use headgate_trace::Kind;
use pyo3::prelude::*;

/// A time in seconds since 1970, the name of the kind, and the line of each event.
type Lines = Vec<(f64, &'static str, String)>;

/// Returns the names of the recorded kinds, the newest events, and the number of the others.
#[pyfunction]
pub(crate) fn trace_events(most: usize) -> (Vec<&'static str>, Lines, u64) {
    let trace = headgate_trace::last(most);
    let line = |entry: &headgate_trace::Entry| {
        let since = entry.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        (since.as_secs_f64(), entry.kind.name(), entry.event.to_string())
    };
    let kinds = headgate_trace::recorded().into_iter().map(Kind::name).collect();
    (kinds, trace.entries.iter().map(line).collect(), trace.missing)
}

/// Records the kinds that the option `trace` names, and no others.
pub(crate) fn set(option: &str) {
    let is_named = |kind: &Kind| option.split(',').any(|name| name == kind.name());
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(is_named).collect();
    headgate_trace::set(&kinds);
}
