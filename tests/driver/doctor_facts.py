"""A cluster in which all is well, as facts; each test of the doctor's checks changes a few of them."""

from headgate.spark.doctor.context import Context, Crew, Facts, Pair

GB = 1 << 30

DRIVER = {
    "headgate": "0.5.0",
    "python": "3.11.9",
    "pyarrow": "21.0.0",
    "pyspark": "4.1.4",
    "machine": "x86_64",
    "libc": "glibc 2.36",
}


def executor_facts(**changes):
    """Return the facts of an executor, with some that are changed."""
    return {
        **DRIVER,
        "executable": "/usr/bin/python3",
        "limits": {"nofile": 65_536, "nproc": 65_536, "as": None, "pids": None},
        "memfd_error": None,
        "cgroup": {"limit": 4 * GB},
        "memory_available": 8 * GB,
        "slots": 2,
        "disks": [
            {"path": "/data", "free": 100 * GB, "access": {"others": 0}, "bytes_per_second": 3e8}
        ],
        "tls": {},
        **changes,
    }


def names(number):
    return [f"{n} (host-{n})" for n in range(number)]


def crew(number=3, **changes):
    """Return what executors say of which each reached each other one at 1 GB/s."""
    rates = [Pair(a, b, 1e9, "tcp") for a in names(number) for b in names(number) if a != b]
    values = {
        "driver": "10.0.0.1:4040",
        "invited": tuple(names(number)),
        "joined": {name: f"10.0.0.{n + 2}:4000" for n, name in enumerate(names(number))},
        "pairs": rates,
    }
    return Crew(**{**values, **changes})


def context(executors=None, **changes):
    """Return the context of three executors, with some facts that are changed."""
    given = executors or {name: executor_facts() for name in names(3)}
    values = {
        "driver": Facts(DRIVER),
        "executors": {name: Facts(one) for name, one in given.items()},
        "clocks": dict.fromkeys(given, (0.01, 0.001)),
        "confs": {"spark.executor.memory": "1g"},
        "options": {"memory": 64 << 20, "tls": "auto", "mode": "auto"},
        "slots": 6,
        "crew": crew(len(given)),
        "master": "spark://host:7077",
    }
    return Context(**{**values, **changes})
