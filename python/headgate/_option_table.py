"""Every option of Headgate, in one table: names, types, defaults, limits and what they mean.

The table is the only source: the parsers, the error texts and ``docs/options.md`` come from it.
"""

from __future__ import annotations

from typing import Final

from headgate._option import Option

OPTIONS: Final[dict[str, Option]] = {
    option.name: option
    for option in (
        Option(
            "memory",
            "size",
            "64m",
            ("environment", "exchange"),
            "The budget of a process: the pool of segments that all exchange data lives in. "
            "Committed as it is used, never exceeded.",
            minimum="64k",
            maximum="1t",
        ),
        Option(
            "segment_size",
            "size",
            "256k",
            ("environment", "exchange"),
            "The fixed size of a segment: unit of memory, of a page and of a credit. Larger ones "
            "cost less work per row; smaller ones let more channels share the pool.",
            minimum="4k",
            maximum="64m",
        ),
        Option(
            "max_record_size",
            "size",
            "256m",
            ("environment", "exchange"),
            "The largest single record: one row, one bytes record or one Python object. What does "
            "not fit a segment is put together in ordinary memory, and this bounds it.",
            minimum="1k",
            maximum="1g",
        ),
        Option(
            "buffers_per_channel",
            "int",
            2,
            ("environment", "exchange"),
            "Segments that a channel from another process always has, and that a subpartition may "
            "queue beside the one being written. More hide the latency of the network; where the "
            "pool is short of them a channel gets fewer, at least one. With 0 channels have none: "
            "each buffer waits until the gate has a floating one for it.",
            minimum=0,
            maximum=10_000,
        ),
        Option(
            "floating_buffers_per_gate",
            "int",
            8,
            ("environment", "exchange"),
            "Segments that a gate gives to the channels with the most waiting, and that a partition "
            "gives to whichever subpartition needs them.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "max_buffers_per_channel",
            "int",
            10,
            ("environment", "exchange"),
            "A soft limit: while one subpartition has as many segments queued, the writer waits "
            "before its next record, so that one slow consumer does not take what the others need.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "max_overdraft_buffers",
            "int",
            5,
            ("environment", "exchange"),
            "Segments that a partition may take beyond its part of the pool to complete a record "
            "it has begun, of what is no part of others; 0 for none.",
            minimum=0,
            maximum=100_000,
        ),
        Option(
            "buffer_timeout",
            "timeout",
            "100ms",
            ("environment", "exchange"),
            "How long rows may wait in a page that is not full while its consumer has nothing to "
            "take, and records in such a buffer. 0 sends after each batch or record; -1 never by "
            "time, only what is full, and all with an event, a flush or the end.",
            maximum="1m",
        ),
        Option(
            "buffer_debloat_enabled",
            "bool",
            "false",
            ("environment", "exchange"),
            "Whether buffers and pages are made as small as a slow reader needs them, so that what "
            "waits for it is read within buffer_debloat_target, and large again for a fast one. For "
            "what is not on disk.",
        ),
        Option(
            "buffer_debloat_target",
            "duration",
            "1s",
            ("environment", "exchange"),
            "In what time a gate's reader should be done with all buffers that wait for it.",
            minimum="1ms",
            maximum="1h",
        ),
        Option(
            "buffer_debloat_period",
            "duration",
            "200ms",
            ("environment", "exchange"),
            "How often a reader looks at its speed, while it reads: no thread does it.",
            minimum="10ms",
            maximum="1h",
        ),
        Option(
            "buffer_debloat_samples",
            "int",
            20,
            ("environment", "exchange"),
            "Over how many such periods the size is smoothed. Fewer follow faster, and jump more.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "buffer_debloat_threshold_percentages",
            "int",
            25,
            ("environment", "exchange"),
            "A size that differs by less from the last one, in percent of it, is not announced, so "
            "that producers are not told of every little change.",
            minimum=0,
            maximum=100,
        ),
        Option(
            "min_segment_size",
            "size",
            "256",
            ("environment", "exchange"),
            "The least that debloating asks for. A row or record that is larger has a page or "
            "buffer of its own.",
            minimum="1",
            maximum="64m",
        ),
        Option(
            "starting_segment_size",
            "size",
            None,
            ("environment", "exchange"),
            "What debloating asks for before a reader has shown its speed; segment_size when it is "
            "not given. From a small one on, a size takes some seconds to grow.",
            minimum="1",
            maximum="64m",
        ),
        Option(
            "spill_threshold",
            "size",
            "5m",
            ("environment", "exchange"),
            "A record larger than this that spans segments is put together in a temporary file "
            "instead of memory, and read into memory once it is complete: of all channels, only "
            "the record that is returned takes memory then.",
            minimum="100k",
            maximum="1g",
        ),
        Option(
            "temp_directories",
            "directories",
            None,
            ("environment", "exchange"),
            "Where temporary files are made, in turn; they must exist. One in which no file can "
            "be made is not used again. Files have no name, so that nothing is left of them even "
            "after a kill. If not given, Spark's local directories where a process runs for Spark, "
            "else the system's temporary directory.",
        ),
        Option(
            "compression",
            "choice",
            "none",
            ("environment", "exchange"),
            "How full pages and buffers are compressed on their way to disk or to another process: not "
            "at all, quickly (lz4), or smaller (zstd). It pays where network or disk is slower than "
            "the codec. What does not become smaller stays as it is, and so do events and what only "
            "passes through memory to a reader of the same process.",
            choices=("none", "lz4", "zstd"),
        ),
        Option(
            "max_spill_size",
            "size",
            "0",
            ("environment",),
            "The most that one blocking or hybrid partition may have on disk; 0 is no limit. There "
            "a hybrid one makes its writer wait for the reader, and a blocking one, which has no "
            "reader yet, fails.",
            minimum="0",
        ),
        Option(
            "listen",
            "address",
            "127.0.0.1:0",
            ("environment",),
            "Where other processes reach this one.",
        ),
        Option(
            "partition_request_timeout",
            "duration",
            "10s",
            ("environment",),
            "How long the request of a consumer waits at the producer's process for a partition that "
            "does not exist yet. A partition that was released is not waited for.",
            minimum="0ms",
            maximum="1h",
        ),
        Option(
            "idle_timeout",
            "duration",
            "10s",
            ("environment",),
            "How long a process that channels are open to may say nothing before it is taken for "
            "lost. The I/O threads beat when they have nothing else to say, so that a busy function "
            "is no silence; a stopped process is.",
            minimum="2s",
            maximum="1h",
        ),
        Option(
            "same_host_link",
            "choice",
            "auto",
            ("environment", "exchange"),
            "Whether processes of one host, one user and one network namespace reach each other "
            "without TCP and read each other's pages where they are (auto), or not (off). Where they "
            "cannot, TCP is used either way. What a reader keeps holds segments of the writer too, up "
            "to half of its pool; beyond that pages are copied as over TCP.",
            choices=("auto", "off"),
        ),
        Option(
            "batch_bytes",
            "size",
            "0",
            ("exchange",),
            "Puts the pages that wait for a consumer together, in a copy, into batches of up to this size; "
            "0 gives each page as it came. For functions that take long per batch, where partitions are many "
            "and pages therefore small.",
            minimum="0",
            maximum="1g",
        ),
        Option(
            "num_partitions",
            "int",
            None,
            ("exchange",),
            "How many consumer tasks, and partitions of the result; half of the slots, at least 1, "
            "when it is not given.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "parallelism",
            "int",
            None,
            ("exchange",),
            "How many readers a source has, as tasks of the producer job; the slots that the "
            "consumers leave, at least 1, when it is not given. Where there are fewer slots they "
            "run in waves, and later ones find what splits are left. Not for a DataFrame.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "on_no_slots",
            "choice",
            "shuffle",
            ("exchange",),
            "What to do when the consumers and one producer do not fit the slots: run the job "
            "through Spark's own repartition with a warning, or raise.",
            choices=("shuffle", "error"),
        ),
        Option(
            "consumer_timeout",
            "duration",
            "60s",
            ("exchange",),
            "How long a task tries to reach the coordinator on the driver before it takes it for "
            "lost.",
            minimum="1s",
            maximum="1h",
        ),
        Option(
            "heartbeat_timeout",
            "duration",
            "10s",
            ("exchange",),
            "How long a task, or the driver, may give no sign of life before it is taken for lost. "
            "Signs come each half a second from a thread of their own, so that a busy function or "
            "program is none of those.",
            minimum="2s",
            maximum="1h",
        ),
        Option(
            "progress",
            "choice",
            "auto",
            ("exchange",),
            "Progress on the driver: a line on a terminal, an output in a notebook and a log line "
            "each 10 s elsewhere (auto), log lines only, or nothing. See docs/progress.md.",
            choices=("auto", "log", "off"),
        ),
        Option(
            "map_schema",
            "schema",
            None,
            ("exchange",),
            "What map returns, when both map and reduce are given; the input's schema when it is "
            "not given.",
            call_only=True,
        ),
    )
}

#: The options of an environment that say how large the buffers of a slow reader are.
DEBLOAT_OPTIONS: Final = (
    "buffer_debloat_enabled",
    "buffer_debloat_target",
    "buffer_debloat_period",
    "buffer_debloat_samples",
    "buffer_debloat_threshold_percentages",
    "min_segment_size",
    "starting_segment_size",
)

#: The options of an environment that say how its pool is shared out.
BUFFER_OPTIONS: Final = (
    "buffers_per_channel",
    "floating_buffers_per_gate",
    "max_buffers_per_channel",
    "max_overdraft_buffers",
)
