"""The final table: outcomes of the runs of each kind, and the times to detection and to the end."""

import json
import math
from pathlib import Path

from tests.soak.chaos.judge import OUTCOMES


def summary(results):
    """Return kind -> outcomes and times in seconds. ``all`` is the sum of all kinds."""
    kinds = sorted({result["kind"] for result in results})
    groups = {kind: [r for r in results if r["kind"] == kind] for kind in kinds}
    return {kind: _figures(group) for kind, group in [*groups.items(), ("all", results)]}


def _figures(group):
    counts = {name: sum(r["outcome"] == name for r in group) for name in (*OUTCOMES, "lost")}
    noticed = [r for r in group if r.get("detection_s") is not None]
    recovered = [r for r in group if r["outcome"] == "rows" and r["disturbed"]]
    failed = [r for r in group if r["outcome"] == "error"]
    codes = {}
    for result in failed:
        code = result["detail"][1:8]
        codes[code] = codes.get(code, 0) + 1
    return {
        "runs": len(group),
        **counts,
        "recovered": len(recovered),
        "misblamed": sum(bool(r.get("blames")) for r in group),
        "detection_s": _spread(r["detection_s"] for r in noticed),
        "recovery_s": _spread(r["verdict_s"] for r in recovered),
        "error_s": _spread(r["verdict_s"] for r in failed),
        "codes": codes,
    }


def _spread(values):
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    names = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {n: ordered[max(0, math.ceil(q * len(ordered)) - 1)] for n, q in names.items()}


def table(results):
    """Return the summary as lines of text."""
    heads = [
        "fault", "runs", "rows", "(recovered)", "(misblamed)", "error", "wrong", "hang", "left", "missed", "lost",
        "noticed after s", "rows after s", "error after s", "codes",
    ]  # fmt: skip
    lines = [heads]
    for kind, found in summary(results).items():
        counts = (
            "runs",
            "rows",
            "recovered",
            "misblamed",
            "error",
            "wrong",
            "hang",
            "left",
            "missed",
            "lost",
        )
        codes = " ".join(f"{code} {n}" for code, n in sorted(found["codes"].items()))
        times = [_words(found[name]) for name in ("detection_s", "recovery_s", "error_s")]
        lines.append([kind, *(str(found[name]) for name in counts), *times, codes])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _words(spread):
    return "-" if spread is None else " / ".join(f"{spread[n]:.2f}" for n in ("p50", "p99", "max"))


def line(result):
    """Return one run in one line."""
    if "job" not in result:
        return f"seed {result['seed']}  {result['outcome']}: {result['detail']}"
    detail = result["detail"] if result["outcome"] in {"wrong", "hang", "left"} else ""
    first = result["detail"].partition("\n")[0]
    words = [
        f"seed {result['seed']}  {result['fault']}",
        f"[{result['job']}]",
        f"{result['victim'] or 'nobody'} at {_time(result['fault_s'])}",
        f"noticed after {_time(result['detection_s'])}",
        f"{result['outcome']} after {_time(result['verdict_s'] or result['seconds'])}",
        f"{result['epochs'] + 1} epochs" if result["epochs"] else "",
        f"blames: {result['blames']}: {result['causes'][0]}" if result["blames"] else "",
        "" if detail else first,
    ]
    return "  ".join(filter(None, words)) + (f"\n    {detail}" if detail else "")


def _time(seconds):
    return "-" if seconds is None else f"{seconds:.2f} s"


def write_json(path, results, about):
    """Write all results and their summary."""
    whole = {**about, "summary": summary(results), "runs": results}
    Path(path).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
