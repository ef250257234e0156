"""Every option of Headgate in one table: names, types, defaults, limits and meanings.

The parsers, the error texts and ``docs/options.md`` are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

CONF_PREFIX: Final = "spark.headgate."
ENV_PREFIX: Final = "HEADGATE_"

Scope = Literal["environment", "exchange"]
Kind = Literal[
    "address",
    "bool",
    "choice",
    "directories",
    "duration",
    "int",
    "path",
    "schema",
    "size",
    "timeout",
    "words",
]


#: The values of the kinds that have no minimum and maximum.
_IN_WORDS: Final[dict[Kind, str]] = {
    "address": '"HOST:PORT", port 0 for any free one',
    "bool": "true or false",
    "directories": "a path, several with commas between them, or a list of paths",
    "path": "a path",
    "schema": "a DDL string, a StructType or a pyarrow.Schema",
}


def conf_of(name: str) -> str:
    """Return the key of an option in a Spark session's conf."""
    first, *others = name.split("_")
    return CONF_PREFIX + first + "".join(part.capitalize() for part in others)


def variable_of(name: str) -> str:
    """Return the environment variable of an option."""
    return ENV_PREFIX + name.upper()


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        name: name of the keyword argument.
        kind: notation of a value. Sizes are parsed to bytes (int), durations and timeouts to
            seconds (float).
        default: default in a user's notation; None if ``doc`` says how the value is found.
        scopes: the calls that take the option.
        minimum: smallest value in a user's notation.
        maximum: largest value in a user's notation.
        choices: the values of a choice, or the words; of another kind, the words that it takes besides.
        former: values that it took once -> what to do instead.
        since: the first version that has the option.
        call_only: True if a conf or an environment variable cannot hold the value.
        doc: one or two sentences for the reference page.
    """

    name: str
    kind: Kind
    default: str | int | None
    scopes: tuple[Scope, ...]
    minimum: str | int | None = None
    maximum: str | int | None = None
    choices: tuple[str, ...] = ()
    former: Mapping[str, str] = field(default_factory=dict, hash=False)
    since: str = "0.1"
    call_only: bool = False
    doc: str = ""

    @property
    def conf(self) -> str:
        """The key in a Spark session's conf."""
        return conf_of(self.name)

    @property
    def variable(self) -> str:
        """The environment variable."""
        return variable_of(self.name)

    @property
    def limits(self) -> str:
        """The values that the option takes, for people to read."""
        choices = " or ".join(f'"{choice}"' for choice in self.choices)
        if self.kind == "choice":
            return choices
        if self.kind == "words":
            return f'"{self.choices[0]}", or some of {", ".join(self.choices[1:])} with commas between them'
        return f"{self._limits} or {choices}" if choices else self._limits

    @property
    def _limits(self) -> str:
        """The values beside those in words."""
        if self.kind in _IN_WORDS:
            return _IN_WORDS[self.kind]
        if self.kind == "timeout":
            return f"-1, 0, or 1ms to {self.maximum}"
        if self.maximum is None:
            return f"at least {self.minimum}"
        return f"{self.minimum} to {self.maximum}"


#: The replacement of an exchange whose two sides run at the same time.
STREAM: Final = "headgate.stream.stream(source) ... .start(spark=spark)"

_ENVIRONMENT: Final[tuple[Scope, ...]] = ("environment",)
_EXCHANGE: Final[tuple[Scope, ...]] = ("exchange",)
_BOTH: Final[tuple[Scope, ...]] = ("environment", "exchange")
#: Each option and its meaning, in one or two sentences for the reference page.
_TABLE: Final = {
    Option("memory", "size", "64m", _BOTH, minimum="64k", maximum="1t"): (
        "The size of the pool of each process, which holds all rows in flight in segments. The "
        "process takes memory from the system only as the pool fills. A record larger than a "
        "segment is assembled outside of the pool."
    ),
    Option("segment_size", "size", "256k", _BOTH, minimum="4k", maximum="64m"): (
        "The size of the segments that the pool consists of. A page fills at most one segment, and "
        "a credit is the permission to send one buffer of that size. Larger segments cost less "
        "work per row; smaller ones let more channels share the pool."
    ),
    Option("max_record_size", "size", "256m", _BOTH, minimum="1k", maximum="1g"): (
        "The size of the largest record that can be sent: one row, one bytes record or one Python "
        "object. A record that does not fit a segment is assembled in ordinary memory, and this "
        "option bounds that memory."
    ),
    Option("buffers_per_channel", "int", 2, _BOTH, minimum=0, maximum=10_000): (
        "The number of segments that only one channel from another process may use, and the number "
        "of segments that a subpartition may queue beside the one being written. More segments "
        "hide more network latency. A channel gets fewer, but at least one, if the pool is short. "
        "With 0 a channel has no segments of its own, and each buffer waits for one of "
        "floating_buffers_per_gate."
    ),
    Option("floating_buffers_per_gate", "int", 8, _BOTH, minimum=1, maximum=100_000): (
        "The number of segments that the channels of a gate share, and the subpartitions of a "
        "partition. A gate gives them to the channels for which most buffers wait at the producer, "
        "and a partition to the subpartitions that need them."
    ),
    Option("max_buffers_per_channel", "int", 10, _BOTH, minimum=1, maximum=100_000): (
        "The number of segments that one subpartition may queue, as a soft limit. At the limit the "
        "writer waits before its next record, so that one slow consumer does not take the segments "
        "of the others."
    ),
    Option("max_overdraft_buffers", "int", 5, _BOTH, minimum=0, maximum=100_000): (
        "The number of segments that a partition may take beyond its share of the pool to complete "
        "a record, if no other partition or gate was promised them; 0 for none."
    ),
    Option("buffer_timeout", "timeout", "100ms", _ENVIRONMENT, maximum="1m"): (
        "The longest time that rows wait in a page that is not full while the consumer has nothing "
        "to read; the same holds for records in a buffer. 0 sends after each batch or record. -1 "
        "sends only full pages, and an incomplete one with an event, a flush or the end of the "
        "data."
    ),
    Option("buffer_debloat_enabled", "bool", "false", _ENVIRONMENT): (
        "With true, producers send smaller buffers and pages to a slow reader, so that it can read "
        "everything that waits for it within buffer_debloat_target, and larger ones again to a "
        "fast reader. Blocking and hybrid partitions keep their sizes, since their data may wait "
        "on disk anyway. Flink calls this buffer debloating."
    ),
    Option("buffer_debloat_target", "duration", "1s", _ENVIRONMENT, minimum="1ms", maximum="1h"): (
        "The time in which the reader of a gate should be able to read all buffers that wait for "
        "it."
    ),
    Option(
        "buffer_debloat_period", "duration", "200ms", _ENVIRONMENT, minimum="10ms", maximum="1h"
    ): (
        "How often a reader measures its speed. It does so itself while it reads; no thread does "
        "it."
    ),
    Option("buffer_debloat_samples", "int", 20, _ENVIRONMENT, minimum=1, maximum=100_000): (
        "The number of periods over which the size of buffers is smoothed. With fewer periods the "
        "size follows the speed of the reader faster, and in larger steps."
    ),
    Option(
        "buffer_debloat_threshold_percentages", "int", 25, _ENVIRONMENT, minimum=0, maximum=100
    ): ("The smallest change of the size, in percent, that a reader announces to its producers."),
    Option("min_segment_size", "size", "256", _ENVIRONMENT, minimum="1", maximum="64m"): (
        "The smallest size of a buffer that debloating announces. A larger row or record gets a "
        "page or buffer of its own."
    ),
    Option("starting_segment_size", "size", None, _ENVIRONMENT, minimum="1", maximum="64m"): (
        "The size of a buffer that debloating announces before it knows the speed of the reader; "
        "by default segment_size. From a small size it takes some seconds to grow."
    ),
    Option("spill_threshold", "size", "5m", _BOTH, minimum="100k", maximum="1g"): (
        "A record that spans segments and is larger than this is assembled in a temporary file, "
        "and read into memory once it is complete. So however many channels receive such records, "
        "only the one that is being returned takes memory."
    ),
    Option("temp_directories", "directories", None, _BOTH): (
        "Directories for temporary files, used in turn; one of them must exist. A directory in "
        "which a file cannot be made is not used again. The files have no name, so nothing is left "
        "of them even if the process is killed. By default Spark's local directories in a process "
        "of Spark, and the system's temporary directory elsewhere."
    ),
    Option(
        "compression",
        "choice",
        "none",
        _BOTH,
        choices=(
            "none",
            "lz4",
            "zstd",
        ),
    ): (
        "The codec for full pages and buffers on their way to disk or to another process: none, "
        "lz4 (fast) or zstd (small). It pays if the network or the disk is slower than the codec. "
        "Three kinds of buffers stay uncompressed: those that would not become smaller, events, "
        "and those for a reader of the same process that do not touch the disk."
    ),
    Option("max_spill_size", "size", "0", _ENVIRONMENT, minimum="0"): (
        "The most bytes that one blocking or hybrid partition may have on disk; 0 is no limit. (A "
        "blocking partition is read after its end; a hybrid one is read while it is written, and "
        "uses the disk when memory runs short.) At the limit the writer of a hybrid partition "
        "waits for the reader. A blocking partition has no reader yet, so it fails."
    ),
    Option("listen", "address", "127.0.0.1:0", _ENVIRONMENT): (
        "The address at which other processes reach this one. With the default only processes of "
        "the same host can."
    ),
    Option(
        "tls",
        "choice",
        "auto",
        _BOTH,
        choices=(
            "auto",
            "require",
            "off",
        ),
    ): (
        "With require, connections over TCP are encrypted by TLS 1.3, and a peer without TLS is "
        "refused. The processes make the certificates, and the secret proves who a peer is. Unix "
        "sockets of one host stay as they are. With auto, an exchange on Spark requires it if "
        "spark.network.crypto.enabled, spark.authenticate, spark.ssl.enabled or "
        "spark.ssl.rpc.enabled is true; elsewhere auto is off."
    ),
    Option("tls_ca", "path", None, _BOTH): (
        "A PEM file with the authorities that the certificates of peers must come from, besides "
        "the proof by the secret. The names in certificates are not compared. Needs "
        "tls_certificate and tls_key."
    ),
    Option("tls_certificate", "path", None, _BOTH): (
        "A PEM file with the certificate of this process, followed by those between it and the "
        "authority. On Spark the files are on each executor. A new connection reads them again if "
        "they have changed. While they cannot be used, what they said before stays in use, and the "
        "log has a warning (HG-3011)."
    ),
    Option("tls_key", "path", None, _BOTH): "A PEM file with the private key of tls_certificate.",
    Option(
        "partition_request_timeout", "duration", "10s", _ENVIRONMENT, minimum="0ms", maximum="1h"
    ): (
        "How long a consumer's request waits at the producer's process for a partition that does "
        "not exist yet. A request for a released partition fails at once."
    ),
    Option("idle_timeout", "duration", "10s", _ENVIRONMENT, minimum="2s", maximum="1h"): (
        "The time without any message after which a process with open channels counts as lost. I/O "
        "threads send heartbeats when they have nothing else to send. So a process with a busy "
        "function does not count as lost, and a stopped process does."
    ),
    Option(
        "same_host_link",
        "choice",
        "auto",
        _BOTH,
        choices=(
            "auto",
            "off",
        ),
    ): (
        "With auto, processes of one host, one user and one network namespace read each other's "
        "pages in shared memory, without TCP; if that is impossible, they use TCP. With off they "
        "always use TCP. A batch that a reader keeps holds a segment of the writer too, up to half "
        "of the writer's pool; further pages are copied as over TCP."
    ),
    Option("trace", "words", "off", _BOTH, choices=("off", "net", "gate", "kept")): (
        "The events that a process keeps of its connections (net), of the readers of gates and "
        "their checkpoints (gate) and of pages in files (kept): the newest 4,096, which errors, "
        "the doctor and the report show. See docs/seeing.md. The option of the newest environment "
        "holds for its process."
    ),
    Option("batch_bytes", "size", "0", _EXCHANGE, minimum="0", maximum="1g"): (
        "Copies the pages that wait for a consumer together into batches of up to this size; 0 "
        "makes each page a batch. It helps functions with a high cost per batch, if there are so "
        "many partitions that pages are small."
    ),
    Option(
        "mode",
        "choice",
        "auto",
        _EXCHANGE,
        choices=(
            "auto",
            "kept",
            "spark",
        ),
        former={"pipelined": STREAM},
    ): (
        "How rows travel. With kept, consumers start when the producers have ended, and read what "
        "those kept in files: see docs/kept.md. With spark, Spark's own repartition moves them. "
        "With auto, Spark's repartition moves the rows of a DataFrame if there is no map and by "
        "names columns or is left out, because Python would only add to its work; else the "
        "exchange is kept."
    ),
    Option(
        "read",
        "choice",
        "auto",
        _EXCHANGE,
        choices=(
            "auto",
            "spark",
        ),
    ): (
        "Who reads a DataFrame that is only a scan of Parquet files or of a Delta table. With auto "
        "the Python workers do, without the JVM, if it is sure that they get the same rows; "
        "explain() and the log say why if they do not: see docs/sources.md. With spark always "
        "Spark does."
    ),
    Option(
        "chaining",
        "choice",
        "auto",
        _EXCHANGE,
        choices=(
            "auto",
            "off",
        ),
    ): (
        "Which tasks send the rows that another exchange has returned. With auto those that return "
        "them, in one Python process, if it is sure that Spark would give the same rows to the "
        "next ones: see docs/kept.md. With off Spark takes the rows through the JVM. Flink calls "
        "this operator chaining."
    ),
    Option("num_partitions", "int", None, _EXCHANGE, minimum=1, maximum=8000, choices=("auto",)): (
        "The number of partitions of the result, each of which has one consumer task; by default "
        "the number of slots. With auto there are as many, rows are divided more finely, and a "
        "task calls reduce once for as many neighbours as have about advisory_bytes of rows: see "
        "docs/kept.md."
    ),
    Option("advisory_bytes", "size", None, _EXCHANGE, minimum="1", maximum="1t"): (
        "With num_partitions=auto, the bytes of rows from which on no further neighbour joins a "
        "call of reduce; by default Spark's spark.sql.adaptive.advisoryPartitionSizeInBytes, "
        "which is 64m. If spark.sql.adaptive.coalescePartitions.enabled is false, no neighbours "
        "are joined."
    ),
    Option("broadcast_bytes", "size", None, _EXCHANGE, minimum="1", maximum="1g"): (
        "The most bytes in memory of the inputs with broadcast=auto that are still sent whole to "
        "each call of reduce; by default Spark's spark.sql.adaptive.autoBroadcastJoinThreshold, else its "
        "spark.sql.autoBroadcastJoinThreshold, which is 10m and of which -1 means never."
    ),
    Option("parallelism", "int", None, _EXCHANGE, minimum=1, maximum=100_000): (
        "The number of producer tasks that read a source, or a DataFrame that the workers read; by "
        "default four per slot, but no more than splits (pieces of the source), and fewer, down to "
        "one per slot, if each would read less than 8 MiB of such a DataFrame's files. If there are "
        "more of them than free slots, they run in waves. It does not apply to a DataFrame that "
        "Spark reads, which has one producer per partition."
    ),
    Option("consumer_timeout", "duration", "60s", _EXCHANGE, minimum="1s", maximum="1h"): (
        "How long a consumer on another host than its producers tries to reach the driver, which "
        "tells it where they are, before the driver counts as lost."
    ),
    Option(
        "progress",
        "choice",
        "auto",
        _EXCHANGE,
        choices=(
            "auto",
            "log",
            "off",
        ),
    ): (
        "Where the driver shows progress. With auto it is a line on a terminal, an output in a "
        "notebook, and a log line each 10 s elsewhere. With log it is always a log line, with off "
        "nothing. See docs/progress.md."
    ),
    Option("map_schema", "schema", None, _EXCHANGE, call_only=True): (
        "The schema that map returns, if both map and reduce are given; by default the schema of "
        "the input."
    ),
}
OPTIONS: Final = {option.name: replace(option, doc=doc) for option, doc in _TABLE.items()}

#: The calls that take options.
CALLS: Final[dict[Scope, str]] = {"environment": "ShuffleEnvironment", "exchange": "exchange()"}

#: Former options -> what to do instead.
FORMER: Final = {
    "watermarks": f"omit watermarks · {STREAM}, with watermarks in stream()",
    "heartbeat_timeout": "omit heartbeat_timeout: Spark watches the tasks of an exchange",
}

#: How connections are encrypted.
TLS_OPTIONS: Final = ("tls", "tls_ca", "tls_certificate", "tls_key")
#: Options of ``exchange()`` that go to the environments of its tasks unchanged.
TASK_OPTIONS: Final = tuple(
    name for name, option in OPTIONS.items() if {"environment", "exchange"} <= set(option.scopes)
)
