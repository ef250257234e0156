"""The error catalogue, the options and the kinds of verdicts, offline: one Markdown page per code, shipped in the wheel.

``python -m headgate explain`` lists the errors, ``python -m headgate explain HG-2101`` prints one,
``python -m headgate explain memory`` an option, and ``python -m headgate explain skew`` a verdict.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from textwrap import wrap
from typing import TYPE_CHECKING

from headgate._matches import close_matches
from headgate._option_table import CALLS, OPTIONS
from headgate.catalogue import docs
from headgate.errors import ERRORS, code_text

if TYPE_CHECKING:
    from collections.abc import Sequence


def codes() -> list[str]:
    """Return the codes that have a page, sorted."""
    pages = files(__package__).joinpath("pages")
    names = (page.name for page in pages.iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def page(code: str) -> str:
    """Return the page of a code.

    Args:
        code: ``"HG-2101"``, ``2101``, ``hg-2101`` or the name of the class.

    Raises:
        LookupError: there is no such code; the text suggests close ones.
    """
    hg_code = _resolve(code)
    if hg_code is None:
        raise LookupError(_unknown(code))
    return files(__package__).joinpath("pages", f"{hg_code}.md").read_text(encoding="utf-8")


def option_text(name: str) -> str:
    """Return what an option means, its values and where it can be set; empty if there is none.

    Args:
        name: ``"segment_size"``, ``"spark.headgate.segmentSize"`` or ``"HEADGATE_SEGMENT_SIZE"``.
    """
    for option in OPTIONS.values():
        if name in {option.name, option.conf, option.variable}:
            break
    else:
        return ""
    calls = " and ".join(CALLS[scope] for scope in option.scopes)
    lines = [
        f"{option.name}, an option of {calls}",
        "",
        *wrap(option.doc, 100),
        "",
        f"  values   {option.limits}",
        f"  default  {'none' if option.default is None else option.default}",
    ]
    if not option.call_only:
        lines += [f"  conf     {option.conf}", f"  set as   {option.variable}"]
    return "\n".join(lines)


def verdict_texts() -> dict[str, str]:
    """Return the conditions of each kind of verdict, as the table of ``docs/progress.md`` has them."""
    _, table = docs.page("progress").split("| `kind` |", 1)
    rows = []
    for line in table.split("\n\n")[0].splitlines()[2:]:
        names, condition = (cell.strip() for cell in line.strip("|").split("|"))
        rows.append((names.replace("`", "").split(", "), condition))
    texts = {}
    for kinds, condition in rows:
        first, *rest = wrap(condition, 88)
        lines = [f"  {'given if':<10} {first}", *(f"{'':13}{more}" for more in rest)]
        others = [
            kind
            for other_kinds, _ in rows
            for kind in other_kinds
            if kind not in kinds and f"`{kind}`" in condition
        ]
        more = [f"  more       python -m headgate explain {' '.join(others)}"] if others else []
        more += ["  more       python -m headgate docs progress"]
        for kind in kinds:
            title = f"{kind}, a verdict on the slowest stage, and when it is given"
            texts[kind] = "\n".join([title, "", *lines, "", *more])
    return texts


def summary(code: str) -> str:
    """Return one line for a code: the code, its class, and the first line of its docstring."""
    cls = ERRORS[code]
    doc = (cls.__doc__ or "").strip().splitlines()
    return f"{code}  {cls.__name__:<22}  {doc[0] if doc else ''}"


def main(wanted: Sequence[str]) -> int:
    """Print the pages of codes, options and verdicts, or the list of all codes; return the exit code (2: unknown)."""
    if not wanted:
        print("\n".join(summary(code) for code in codes()))
        return 0
    status = 0
    for code in wanted:
        try:
            text = option_text(code) or verdict_texts().get(code) or page(code)
        except LookupError as error:
            print(error.args[0], file=sys.stderr)
            status = 2
        else:
            print(text.rstrip("\n"))
    return status


def _resolve(code: str) -> str | None:
    by_name = {cls.__name__.casefold(): hg_code for hg_code, cls in ERRORS.items()}
    hg_code = by_name.get(code.strip().casefold(), code_text(code))
    return hg_code if hg_code in ERRORS else None


def _unknown(code: str) -> str:
    names = {cls.__name__: hg_code for hg_code, cls in ERRORS.items()}
    near = close_matches(code_text(code), ERRORS)
    near += [names[name] for name in close_matches(code, names)]
    lines = [f"there is no error, no option and no verdict {code!r}"]
    lines += [f"  close   {summary(hg_code)}" for hg_code in dict.fromkeys(near[:3])]
    lines += [f"  close   {name}" for name in close_matches(code, [*OPTIONS, *verdict_texts()])]
    lines.append("  more    python -m headgate explain")
    return "\n".join(lines)
