//! Conversion of the exchange's errors to the exceptions of `headgate.errors`, by their codes.

use headgate_exchange::{ExchangeError, HandshakeError, Unmapped};
use headgate_record::{HashError, PageError, SelectError, SourceError, UnsupportedType};
use pyo3::exceptions::PyException;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The arguments of `headgate.errors.from_code`, which leaves out empty lines.
#[derive(Default)]
pub(crate) struct Report {
    code: u16,
    summary: String,
    asked: String,
    have: String,
    remedy: &'static str,
}

impl Report {
    pub(crate) fn new(code: u16, summary: impl ToString) -> Self {
        Self { code, summary: summary.to_string(), ..Self::default() }
    }

    pub(crate) fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = remedy;
        self
    }

    fn asked(mut self, asked: String) -> Self {
        self.asked = asked;
        self
    }

    fn have(mut self, have: String) -> Self {
        self.have = have;
        self
    }

    pub(crate) fn into_py(self, py: Python<'_>) -> PyErr {
        let Self { code, summary, asked, have, remedy } = self;
        let details = PyDict::new(py);
        let made = py.import("headgate.errors").and_then(|errors| {
            let from_code = errors.getattr("from_code")?;
            let error = from_code.call1((code, summary, asked, have, remedy, details))?;
            if !headgate_trace::recorded().is_empty() {
                py.import("headgate.observe.trace")?.getattr("note")?.call1((&error,))?;
            }
            Ok(error)
        });
        match made {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    }
}

/// Makes a panic an exception that `except Exception` catches, with a code, in each function of the module.
///
/// PyO3 turns a panic into an exception of a class that it derives from `BaseException`. A worker that gets one must
/// report it as any other error, and not end.
pub(crate) fn make_panics_errors(py: Python<'_>) -> PyResult<()> {
    let panic = py.get_type::<PanicException>();
    panic.setattr("__bases__", (py.get_type::<PyException>(),))?;
    panic.setattr("code", "HG-9001")
}

pub(crate) fn to_py(py: Python<'_>, error: &ExchangeError) -> PyErr {
    report(error).into_py(py)
}

/// The error of a control handshake; the caller knows the remedy.
pub(crate) fn handshake_to_py(py: Python<'_>, error: HandshakeError) -> PyErr {
    let code = match error {
        HandshakeError::Refused { .. } => 3002,
        HandshakeError::Version { .. } => 3003,
        HandshakeError::Encrypted => 3010,
        HandshakeError::BadMagic
        | HandshakeError::OutOfTurn { .. }
        | HandshakeError::Over
        | HandshakeError::ZeroSegment => 3004,
    };
    Report::new(code, error).into_py(py)
}

fn report(error: &ExchangeError) -> Report {
    let of = |code| Report::new(code, error);
    match error {
        ExchangeError::Aborted(_) => of(2301),
        ExchangeError::BufferTooLarge { .. } => {
            of(5002).remedy("use the same segment_size= in all processes")
        }
        ExchangeError::Closed(_) => of(1002),
        ExchangeError::Connect { .. } => {
            of(3007).remedy("check that the host and port can be reached from here")
        }
        ExchangeError::Descriptors { .. } => of(3007)
            .remedy("raise the limit of open files: ulimit -n, LimitNOFILE= · close what is open"),
        ExchangeError::Event(_) => of(3004),
        ExchangeError::EventTooLarge { .. } => {
            of(5002).remedy("raise segment_size= in all processes · send the body as a record")
        }
        ExchangeError::Flush(cause) => Report { summary: error.to_string(), ..report(cause) },
        ExchangeError::Forked { .. } => {
            of(1003).remedy("create a ShuffleEnvironment in the child process")
        }
        ExchangeError::Handshake { .. } => {
            of(3002).remedy("give both processes the same secret, exchange_id, run and epoch")
        }
        ExchangeError::Integrity { .. } => of(3005),
        ExchangeError::Internal(_) => of(9001),
        ExchangeError::Interrupted(_) | ExchangeError::State(_) => of(1002),
        ExchangeError::KeptFile { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            of(3006).remedy("run the action again: Spark makes the rows of a lost executor again")
        }
        ExchangeError::KeptFile { .. } => of(5003),
        ExchangeError::LinkLost { .. } => of(3001)
            .remedy("see if that host is up and can be reached from here · run the action again"),
        ExchangeError::Listen { .. } => of(3007).remedy("give listen= an address of this host"),
        ExchangeError::Memory { what, limits, source } => {
            let Unmapped { errno, segment_size, held, size, used, total } = source;
            Report::new(5001, format!("no memory for the {what}: {errno}"))
                .asked(format!("another segment of {segment_size} bytes"))
                .have(format!(
                    "{held} of {size} segments in its pool, {used} of {total} in all · {limits}"
                ))
                .remedy("lower memory= · raise the limit that is reached · fewer tasks at once")
        }
        ExchangeError::OutOfRange { .. } | ExchangeError::SelectorLength { .. } => {
            of(4004).remedy("return one number from 0 to num_subpartitions - 1 for each row")
        }
        ExchangeError::Page { source, .. } if matches!(**source, PageError::OtherSchema { .. }) => {
            of(4003).remedy("give reader and writer the same schema")
        }
        ExchangeError::Page { .. } => of(4005),
        ExchangeError::PartitionNotFound { .. } => of(3006),
        ExchangeError::PeerLost { .. } => of(3001),
        ExchangeError::PoolTooSmall { what, needed, segment_size, source } => {
            let budget = source.total * segment_size;
            let summary = format!(
                "{what} needs {needed} segments of {segment_size} bytes; {} of {} are still free to promise",
                source.available, source.total
            );
            Report::new(5001, summary)
                .asked(format!("{needed} segments = {} bytes", needed * segment_size))
                .have(format!(
                    "memory={budget} = {} segments, {} held by batches that are kept",
                    source.total, source.pinned
                ))
                .remedy("raise memory= · lower segment_size= · use fewer channels")
        }
        ExchangeError::ProducerFailed(_) => of(6002),
        ExchangeError::Protocol { .. } => of(3004),
        ExchangeError::RecordTooLarge { .. } => {
            of(5002).remedy("raise max_record_size= on both sides · split the record")
        }
        ExchangeError::Schema(source) => of_source(source),
        ExchangeError::SchemaRefused { .. } => {
            of(4003).remedy("give reader and writer the same schema")
        }
        ExchangeError::Select(source) => of_select(source),
        ExchangeError::TaskEvent(_) => {
            of(3009).remedy("partition.on_task_event(name, handler) before consumers connect")
        }
        ExchangeError::System { .. } => {
            of(1004).remedy("allow the system call in the container's seccomp profile")
        }
        ExchangeError::Thread { thread, limits, source } => {
            Report::new(1004, format!("cannot start the {thread}: {source}")).have(limits.clone())
        }
        ExchangeError::Tls { .. } => of(3010),
        ExchangeError::TlsOptions(_) => of(1001)
            .remedy("give tls_ca=, tls_certificate= and tls_key= files in PEM · tls=\"off\""),
        ExchangeError::Unresolved { .. } => of(3007).remedy("check the host of the address"),
        ExchangeError::SpillDirectories { .. } | ExchangeError::SpillFile { .. } => of(5003),
        ExchangeError::SpilledPartition { .. } => {
            of(5003).remedy("temp_directories= on a disk with room")
        }
        ExchangeError::SpillLimit { .. } => of(5003).remedy("a larger max_spill_size="),
        ExchangeError::WrongRecords(_) => {
            of(4003).remedy("use the same serializer and schema on both sides")
        }
        ExchangeError::Version { .. } => {
            of(3003).remedy("install the same version of headgate everywhere")
        }
    }
}

fn of_source(error: &SourceError) -> Report {
    Report::new(4003, error).remedy("emit batches of the writer's schema, or cast them first")
}

fn of_select(error: &SelectError) -> Report {
    match error {
        SelectError::Hash(error) => of_hash(error),
        SelectError::NoColumns => Report::new(4004, error)
            .remedy("emit record batches · take a selector that needs no columns"),
        SelectError::NoSubpartitions => Report::new(1001, error),
        SelectError::OutOfRange { .. } => {
            Report::new(4004, error).remedy("take a selector for this number of subpartitions")
        }
        SelectError::TooFewKeyGroups { .. } => {
            Report::new(4004, error).remedy("raise max_parallelism · have fewer subpartitions")
        }
    }
}

pub(crate) fn of_hash(error: &HashError) -> Report {
    match error {
        HashError::UnsupportedKeyType { .. } => {
            Report::new(4002, error).remedy("hash by another column, or cast it first")
        }
        HashError::NullKey { .. } => {
            Report::new(4004, error).remedy("fill or filter the nulls · HashSelector takes them")
        }
        _ => Report::new(4001, error),
    }
}

pub(crate) fn of_unsupported(error: &UnsupportedType) -> Report {
    Report::new(4002, error).remedy("cast the column, or leave it out")
}
