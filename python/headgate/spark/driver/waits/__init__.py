"""Why a run waits: log lines, deadlocks and stalls. No sockets, no Spark."""
