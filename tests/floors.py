"""Who may import whom, in Rust and in Python; see ARCHITECTURE.md. test_architecture.py enforces it."""

#: Crate -> crates of this workspace that it may use, itself included.
FLOORS = {
    "memory": {"memory"},
    "protocol": {"protocol"},
    "record": {"record", "protocol"},
    "tls": {"tls"},
    "failpoint": {"failpoint"},
    "net": {"net", "memory", "protocol", "tls", "failpoint"},
    "exchange": {"exchange", "record", "net", "memory", "protocol", "tls", "failpoint"},
    "state": {"state"},
    "bindings": {"bindings", "exchange", "record", "state"},
    "fuzz": {"fuzz", "record", "protocol", "memory"},
}

#: Python module -> the only modules of this repository that it may import. Others see SPARK below.
LEAVES = {
    "headgate._error": set(),
    "headgate.errors": {"headgate._error"},
    "headgate._matches": set(),
    "headgate._option_table": set(),
    "headgate._units": set(),
    "headgate._times": {"headgate.errors"},
    "headgate._values": set(),
    "headgate._options": {
        "headgate._matches",
        "headgate._option_table",
        "headgate._units",
        "headgate._values",
        "headgate.errors",
    },
    "headgate.catalogue": {"headgate._matches", "headgate._option_table", "headgate.errors"},
    "headgate.source.api": {"headgate.errors"},
    "headgate.source.base": {"headgate.errors", "headgate.source.api"},
    "headgate.source.watermark": {
        "headgate._arguments",
        "headgate._matches",
        "headgate._times",
        "headgate.errors",
        "headgate.source.api",
    },
    "headgate.source.runtime": {
        "headgate.errors",
        "headgate.source.api",
        "headgate.source.watermark",
    },
    "headgate.source.coordination": {
        "headgate.errors",
        "headgate.source.api",
        "headgate.source.runtime",
        "headgate.source.watermark",
    },
    "headgate.source.testing": {"headgate.errors", "headgate.source.api"},
    "headgate._arguments": {
        "headgate._kinds",
        "headgate._matches",
        "headgate._units",
        "headgate._values",
        "headgate.errors",
    },
    "headgate._closing": set(),
    "headgate._unpicklable": {"headgate._kinds"},
    "headgate._process": set(),
    "headgate._sealed": set(),
    "headgate.stream.state": {
        "headgate._arguments",
        "headgate._kinds",
        "headgate._locations",
        "headgate._matches",
        "headgate._native",
        "headgate._sealed",
        "headgate._times",
        "headgate.errors",
        "headgate.key_groups",
        "headgate.sink",
    },
    "headgate.stream.graph": {
        "headgate._arguments",
        "headgate.batches",
        "headgate.errors",
        "headgate.key_groups",
        "headgate.source",
        "headgate.stream.state",
    },
    "headgate.stream.windows": {
        "headgate._arguments",
        "headgate._times",
        "headgate.errors",
        "headgate.stream.state",
    },
    "headgate.stream.operators": {
        "headgate._kinds",
        "headgate.batches",
        "headgate.errors",
        "headgate.schema_cast",
        "headgate.sink.api",
        "headgate.stream.graph",
        "headgate.stream.state",
        "headgate.stream.windows",
    },
    "headgate.stream.runtime": {
        "headgate.checkpoints",
        "headgate.data_types",
        "headgate.environment",
        "headgate.errors",
        "headgate.gate",
        "headgate.partition",
        "headgate.reader",
        "headgate.schema_cast",
        "headgate.selectors",
        "headgate.source.runtime",
        "headgate.source.watermark",
        "headgate.stream.graph",
        "headgate.stream.operators",
        "headgate.stream.state",
        "headgate.writer",
    },
    "headgate.stream.job": {
        "headgate._unpicklable",
        "headgate._arguments",
        "headgate._kinds",
        "headgate._native",
        "headgate._process",
        "headgate._sealed",
        "headgate.address",
        "headgate.checkpoints",
        "headgate.control",
        "headgate.environment",
        "headgate.errors",
        "headgate.key_groups",
        "headgate.observe.numbers",
        "headgate.observe.record",
        "headgate.observe.stages",
        "headgate.observe.verdict",
        "headgate.sink",
        "headgate.source.api",
        "headgate.source.coordination",
        "headgate.source.runtime",
        "headgate.stream.graph",
        "headgate.stream.operators",
        "headgate.stream.runtime",
        "headgate.stream.state",
    },
    "headgate.stream.api": {
        "headgate._arguments",
        "headgate._kinds",
        "headgate._matches",
        "headgate._options",
        "headgate.errors",
        "headgate.key_groups",
        "headgate.observe.record",
        "headgate.observe.runs",
        "headgate.sink",
        "headgate.source",
        # In one function, for a call that names a session.
        "headgate.spark.streams",
        "headgate.stream.graph",
        "headgate.stream.job",
        "headgate.stream.operators",
        "headgate.stream.state",
        "headgate.stream.windows",
    },
    "headgate.control": {"headgate._closing", "headgate._native", "headgate.errors"},
    "headgate.observe": {
        "headgate.__version__",
        "headgate._closing",
        "headgate._group_size",
        "headgate._process",
        "headgate._text",
        "headgate.control.descriptors",
        "headgate.control.newcomers",
        "headgate.errors",
    },
    "headgate.spark.wire": {"headgate.control"},
}

#: Parts of the Spark layer -> modules they must not import; tasks run in workers only.
APART = {
    "headgate.spark.tasks": ("headgate.spark.driver", "headgate.spark.progress"),
    "headgate.spark.progress": ("headgate.spark.driver", "headgate.spark.tasks"),
    "headgate.spark.driver.kept": (
        "headgate.spark.driver.scheduler",
        "headgate.spark.driver.host_lookup",
    ),
}

#: Modules above all layers, which may import everything, also optional packages.
APPLICATIONS = ("headgate.demo", "headgate.__main__", "headgate.flink", "headgate.testing")
#: Imports a library only if a user's function asks for its objects.
ON_REQUEST = "headgate.functions.libraries"
#: Compute with numpy, which every Python worker of mapInArrow has; nothing else of the package imports it.
WITH_NUMPY = ("headgate.source.nexmark", "headgate.stream")
#: Client of another system -> the only modules that import it.
CLIENTS = {
    "confluent_kafka": ("headgate.sink.kafka", "headgate.source.kafka"),
    "deltalake": ("headgate.sink.delta", "headgate.source.delta"),
    "jinja2": ("headgate.observe.report.page",),
    "opentelemetry": ("headgate.observe.otel",),
    "prometheus_client": ("headgate.observe.prometheus",),
    "pyiceberg": ("headgate.source.iceberg",),
    "rich": ("headgate.observe.top.app",),
    "starlette": ("headgate.observe.live_page",),
    "textual": ("headgate.observe.top.app",),
    "uvicorn": ("headgate.observe.live_page",),
    # Below Spark's layer: the type of a session, and the pickler, if it is installed.
    "pyspark": ("headgate.stream.api.job", "headgate.stream.job.local"),
}

#: The layer that may import pyspark, and the package under whose name Spark finds it.
SPARK = ("headgate.spark", "pyspark_headgate")
