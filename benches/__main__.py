"""``python -m benches [NAME] [ARGUMENTS]`` runs all benches or one; ``--quick`` tries them out."""

import sys
from importlib import import_module

NAMES = (
    "overhead",
    "scatter",
    "broadcast",
    "loopback",
    "tls",
    "samehost",
    "channels",
    "keyed",
    "kept",
    "memory",
    "state",
    "state_on_disk",
    "state_restore",
    "stream",
    "calls",
    "nexmark",
    "metrics",
    "fork",
    "spark",
    "spark_kept",
    "spark_memory",
    "seeing",
    "recovery",
    "stream_losses",
    "skew",
    "broadcast_join",
    "jobs",
    "iterate",
    "pipeline",
    "peers",
    "chain",
    "chain_plan",
    "straggler",
    "cancel",
    "lost",
    "instructions",
    "sweep",
    # Last: it draws the results of the others.
    "plots",
)


def main() -> int:
    arguments = sys.argv[1:]
    names = NAMES
    if arguments and not arguments[0].startswith("-"):
        if arguments[0] not in NAMES:
            print(f"no bench {arguments[0]!r}; there are: {', '.join(NAMES)}", file=sys.stderr)
            return 2
        names = (arguments.pop(0),)
    for name in names:
        import_module(f"benches.{name}").main(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
