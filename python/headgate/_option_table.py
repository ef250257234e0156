"""Every option of Headgate in one table: names, types, defaults, limits and meanings.

The parsers, the error texts and ``docs/options.md`` are made from it.
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
            "The budget of a process: the size of the pool whose segments hold exchange data. "
            "It is committed as it is used. Records larger than a segment are assembled outside"
            " of it.",
            minimum="64k",
            maximum="1t",
        ),
        Option(
            "segment_size",
            "size",
            "256k",
            ("environment", "exchange"),
            "The fixed size of a segment: the unit of memory, of a page and of a credit. Larger"
            " segments cost less work per row; smaller ones let more channels share the pool.",
            minimum="4k",
            maximum="64m",
        ),
        Option(
            "max_record_size",
            "size",
            "256m",
            ("environment", "exchange"),
            "The limit of a single record: one row, one bytes record or one Python object. A "
            "record that does not fit a segment is assembled in ordinary memory, which this "
            "option bounds.",
            minimum="1k",
            maximum="1g",
        ),
        Option(
            "buffers_per_channel",
            "int",
            2,
            ("environment", "exchange"),
            "Exclusive segments of a channel from another process, and segments that a "
            "subpartition may queue beside the one being written. More segments hide more "
            "network latency. A channel gets fewer, but at least one, if the pool is short. "
            "With 0 a channel has no exclusive segments, and each buffer waits for a floating "
            "one.",
            minimum=0,
            maximum=10_000,
        ),
        Option(
            "floating_buffers_per_gate",
            "int",
            8,
            ("environment", "exchange"),
            "Segments that a gate assigns to the channels with the largest backlog, and that a "
            "partition assigns to the subpartitions that need them.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "max_buffers_per_channel",
            "int",
            10,
            ("environment", "exchange"),
            "A soft limit of the segments that one subpartition queues. At the limit the writer"
            " waits before its next record, so that one slow consumer does not take the "
            "segments of the others.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "max_overdraft_buffers",
            "int",
            5,
            ("environment", "exchange"),
            "Segments that a partition may take beyond its share of the pool to complete a "
            "record, if no other pool was promised them; 0 for none.",
            minimum=0,
            maximum=100_000,
        ),
        Option(
            "buffer_timeout",
            "timeout",
            "100ms",
            ("environment", "exchange"),
            "The longest time that rows wait in a page that is not full, and records in such a "
            "buffer, while the consumer has nothing to read. 0 sends after each batch or "
            "record. -1 never sends by time, only full pages, and the rest with an event, a "
            "flush or the end.",
            maximum="1m",
        ),
        Option(
            "buffer_debloat_enabled",
            "bool",
            "false",
            ("environment", "exchange"),
            "True shrinks buffers and pages for a slow reader, so that it can read everything "
            "that waits for it within buffer_debloat_target, and grows them again for a fast "
            "one. Data on disk keeps its size.",
        ),
        Option(
            "buffer_debloat_target",
            "duration",
            "1s",
            ("environment", "exchange"),
            "The time in which the reader of a gate should read all buffers that wait for it.",
            minimum="1ms",
            maximum="1h",
        ),
        Option(
            "buffer_debloat_period",
            "duration",
            "200ms",
            ("environment", "exchange"),
            "The period in which a reader measures its speed, while it reads; no thread does it.",
            minimum="10ms",
            maximum="1h",
        ),
        Option(
            "buffer_debloat_samples",
            "int",
            20,
            ("environment", "exchange"),
            "The number of periods over which the size is smoothed. Fewer periods follow the "
            "speed faster, with larger steps.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "buffer_debloat_threshold_percentages",
            "int",
            25,
            ("environment", "exchange"),
            "The smallest change of the size, in percent, that is announced to the producers.",
            minimum=0,
            maximum=100,
        ),
        Option(
            "min_segment_size",
            "size",
            "256",
            ("environment", "exchange"),
            "The smallest size that debloating announces. A larger row or record gets a page or"
            " buffer of its own.",
            minimum="1",
            maximum="64m",
        ),
        Option(
            "starting_segment_size",
            "size",
            None,
            ("environment", "exchange"),
            "The size that debloating announces before it knows the speed of a reader; "
            "segment_size if not given. A small size takes some seconds to grow.",
            minimum="1",
            maximum="64m",
        ),
        Option(
            "spill_threshold",
            "size",
            "5m",
            ("environment", "exchange"),
            "A record that spans segments and is larger than this is assembled in a temporary "
            "file, and read into memory once it is complete. So of all channels only the record"
            " that is returned takes memory.",
            minimum="100k",
            maximum="1g",
        ),
        Option(
            "temp_directories",
            "directories",
            None,
            ("environment", "exchange"),
            "Directories for temporary files, used in turn; they must exist. A directory in "
            "which a file cannot be made is not used again. Files have no name, so nothing is "
            "left of them even after a kill. If not given, Spark's local directories in a "
            "process of Spark, else the system's temporary directory.",
        ),
        Option(
            "compression",
            "choice",
            "none",
            ("environment", "exchange"),
            "The codec of full pages and buffers on their way to disk or to another process: "
            "none, lz4 (fast) or zstd (small). It pays if the network or the disk is slower "
            "than the codec. Buffers that would not become smaller, events, and buffers for a "
            "reader of the same process that do not touch the disk stay uncompressed.",
            choices=("none", "lz4", "zstd"),
        ),
        Option(
            "max_spill_size",
            "size",
            "0",
            ("environment",),
            "The limit of one blocking or hybrid partition on disk; 0 is no limit. At the limit"
            " the writer of a hybrid partition waits for the reader, and a blocking partition, "
            "which has no reader yet, fails.",
            minimum="0",
        ),
        Option(
            "listen",
            "address",
            "127.0.0.1:0",
            ("environment",),
            "The address at which other processes reach this one.",
        ),
        Option(
            "partition_request_timeout",
            "duration",
            "10s",
            ("environment",),
            "How long a consumer's request waits at the producer's process for a partition that"
            " does not exist yet. A request for a released partition fails at once.",
            minimum="0ms",
            maximum="1h",
        ),
        Option(
            "idle_timeout",
            "duration",
            "10s",
            ("environment",),
            "The silence after which a process with open channels counts as lost. I/O threads "
            "send heartbeats when they have nothing else to send, so a busy function is not "
            "silent; a stopped process is.",
            minimum="2s",
            maximum="1h",
        ),
        Option(
            "same_host_link",
            "choice",
            "auto",
            ("environment", "exchange"),
            "With auto, processes of one host, one user and one network namespace connect "
            "without TCP and read each other's pages in place; they fall back to TCP. With off "
            "they always use TCP. Batches that a reader keeps hold segments of the writer too, "
            "up to half of its pool; further pages are copied as over TCP.",
            choices=("auto", "off"),
        ),
        Option(
            "batch_bytes",
            "size",
            "0",
            ("exchange",),
            "Joins the pages that wait for a consumer, in a copy, into batches of up to this "
            "size; 0 keeps each page as a batch. For functions with a high cost per batch, if "
            "there are so many partitions that pages are small.",
            minimum="0",
            maximum="1g",
        ),
        Option(
            "num_partitions",
            "int",
            None,
            ("exchange",),
            "The number of consumer tasks, and of partitions of the result; half of the slots, "
            "at least 1, if not given.",
            minimum=1,
            maximum=8_000,
        ),
        Option(
            "parallelism",
            "int",
            None,
            ("exchange",),
            "The number of readers of a source, which are tasks of the producer job; the slots "
            "that the consumers leave, at least 1, if not given. Readers beyond the free slots "
            "run in waves, and later ones read the splits that are left. Not for a DataFrame.",
            minimum=1,
            maximum=100_000,
        ),
        Option(
            "on_no_slots",
            "choice",
            "shuffle",
            ("exchange",),
            "What happens if the consumers and one producer do not fit the slots: shuffle runs "
            "the job through Spark's own repartition with a warning, error raises.",
            choices=("shuffle", "error"),
        ),
        Option(
            "consumer_timeout",
            "duration",
            "60s",
            ("exchange",),
            "How long a task tries to reach the coordinator on the driver before the driver "
            "counts as lost.",
            minimum="1s",
            maximum="1h",
        ),
        Option(
            "heartbeat_timeout",
            "duration",
            "10s",
            ("exchange",),
            "The silence after which a task, or the driver, counts as lost. A thread of its own"
            " sends a heartbeat each half second, so a busy function or program is not silent.",
            minimum="2s",
            maximum="1h",
        ),
        Option(
            "progress",
            "choice",
            "auto",
            ("exchange",),
            "Progress on the driver. With auto it is a line on a terminal, an output in a "
            "notebook, and a log line each 10 s elsewhere; with log only log lines; with off "
            "nothing. See docs/progress.md.",
            choices=("auto", "log", "off"),
        ),
        Option(
            "map_schema",
            "schema",
            None,
            ("exchange",),
            "The schema that map returns, if both map and reduce are given; the schema of the "
            "input if not given.",
            call_only=True,
        ),
    )
}

#: Options of ``exchange()`` that go to the environments of its tasks unchanged.
TASK_OPTIONS: Final = tuple(
    name for name, option in OPTIONS.items() if {"environment", "exchange"} <= set(option.scopes)
)
