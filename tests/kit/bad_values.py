"""Wrong values for every parameter of a public call: each works, or raises an error of Headgate that has a code.

The parameters come from the signature, so that a new one cannot be forgotten.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.errors import HeadgateError, InternalError


def _nothing(*arguments):
    """Return None, as a function does that forgets its ``return``."""


#: By name, so that a test is named by its value.
BAD: Mapping[str, Any] = {
    "None": None,
    "empty text": "",
    "text": "no such thing",
    "bytes": b"\xff",
    "True": True,
    "zero": 0,
    "negative": -1,
    "huge": 1 << 80,
    "fraction": 0.5,
    "negative fraction": -2.5,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "empty list": [],
    "list": ["no such thing", 1],
    "dict": {"no such thing": 1},
    "object": object(),
    "class": dict,
    "function": _nothing,
}


def _forget(result: Any) -> None:
    """Take a result that needs no use and no end."""


@dataclass(frozen=True)
class Call:
    """A public call with arguments that work.

    Attributes:
        name: of the call, in the names of tests.
        function: the call.
        good: makes arguments that work, anew for each call; those of ``*names`` as a tuple under that name.
        use: uses what the call returned, and ends it: a wrong value that is taken must not fail there without a code.
        works: values by parameter, as named in :data:`BAD`, that a test leaves out, since they wait or start something.
    """

    name: str
    function: Callable[..., Any]
    good: Callable[[], dict[str, Any]] = dict
    use: Callable[[Any], object] = _forget
    works: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters; ``**names`` pass on those of another call."""
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                yield parameter

    def bad(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of a parameter and the name of a bad value."""
        for parameter in self.parameters():
            for value in BAD:
                if value not in self.works.get(parameter.name, ()):
                    yield parameter.name, value

    def make(self, changed: Mapping[str, Any]) -> Any:
        """Make the call, with some of the arguments changed."""
        several: tuple[Any, ...] = ()
        named: dict[str, Any] = {}
        first: list[Any] = []
        arguments = {**self.good(), **changed}
        for parameter in self.parameters():
            if parameter.name not in arguments:
                continue
            value = arguments[parameter.name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                several = value if isinstance(value, tuple) else (value,)
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                first.append(value)
            else:
                named[parameter.name] = value
        return self.function(*first, *several, **named)


def problem_of(call: Call, parameter: str, value: str) -> str:
    """Return the text of an error that is not for users; empty if the call works or is refused in words."""
    try:
        call.use(call.make({parameter: BAD[value]}))
    except InternalError as error:
        return f"{call.name}({parameter}={BAD[value]!r}) says that Headgate has a bug: {error}"
    except HeadgateError as error:
        lines = str(error).splitlines()
        if not error.code or not lines[0].startswith(f"[{error.code}]") or not error.remedy:
            return f"{call.name}({parameter}={BAD[value]!r}) raised an error without a code or a remedy: {error}"
        return ""
    except Exception as error:  # noqa: BLE001 - any of them is the finding
        return f"{call.name}({parameter}={BAD[value]!r}) raised {type(error).__name__}: {error}"
    return ""


def problems(call: Call) -> list[str]:
    """Return the problems of all bad values of all parameters of a call."""
    found = (problem_of(call, parameter, value) for parameter, value in call.bad())
    return [problem for problem in found if problem]


def not_covered(names: Mapping[str, Any], calls: list[Call], others: Mapping[str, str]) -> set[str]:
    """Return the public calls that no test makes.

    Args:
        names: a module's public names, with their objects; methods count by ``Class.method``.
        calls: those that are made.
        others: those that are not, each with the reason.
    """
    return (
        {name for name, what in names.items() if callable(what)}
        - {call.name for call in calls}
        - set(others)
    )


def methods_of(cls: type) -> dict[str, Any]:
    """Return the public methods of a class by ``Class.method``."""
    return {
        f"{cls.__name__}.{name}": what
        for name, what in inspect.getmembers(cls, callable)
        if not name.startswith("_")
    }
