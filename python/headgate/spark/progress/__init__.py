"""Progress of runs: statistics, the slowest stage, and the displays that show them."""
