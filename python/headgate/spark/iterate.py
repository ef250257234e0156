"""iterate(): rounds of messages between the partitions of a state, in one Spark job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from headgate._arguments import flag
from headgate._kinds import kind_of, why_no_call
from headgate._missing import need_native
from headgate.errors import NotBuiltError, OptionError
from headgate.spark.plan.inputs import check_keys, session_for
from headgate.spark.plan.keys import Columns
from headgate.spark.plan.request import Input, check, partitioning, struct_of
from headgate.spark.plan.sources import is_table, refuse_for_table, source_input
from headgate.spark.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.batches import BatchFunction
    from headgate.source import Source
    from headgate.spark.options import ExchangeOptions
    from headgate.spark.plan.facts import SessionFacts
    from headgate.spark.plan.request import By, Request

#: Most rounds: each costs a task for each partition, and maybe a mistake.
MOST_ROUNDS: Final = 10_000


def iterate(
    state: DataFrame | Source[pa.RecordBatch, Any, Any] | Input,
    links: DataFrame | Source[pa.RecordBatch, Any, Any] | Input | None = None,
    *,
    by: By,
    send: BatchFunction,
    update: BatchFunction,
    message_schema: StructType | pa.Schema | str,
    rounds: int,
    message_by: By = None,
    delta: bool = False,
    until: Literal["unchanged"] | None = None,
    num_partitions: int | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    **options: Unpack[ExchangeOptions],
) -> DataFrame:
    """Update a state in rounds, by messages that its partitions send each other.

    State and links go to their partitions once. In each round ``send`` makes messages from the state
    and the links of a partition. The messages go to the partitions of their keys. Then ``update``
    makes the new state from a partition's old state and its messages. The result is the state after
    the last round.

    The call is lazy and returns an ordinary DataFrame. All rounds are one Spark job with a stage for
    each, and no row of them crosses the JVM: state and messages are kept in files, as in a kept exchange
    (docs/kept.md). Spark runs again what is lost, and functions are called again then.

    With ``until``, or with more than 100 rounds, the call runs them, in a job for each part of the rounds,
    and the state between two parts is a checkpoint of Spark: in the folder of ``setCheckpointDir()``, or
    else in the executors, where the loss of one fails the call.

    Args:
        state: The first state: a DataFrame, a source, or a :class:`headgate.spark.Input` with a ``map``
            or a key of its own. Its columns are those that ``update`` returns, and those of the result.
        links: Rows that do not change, such as the edges of a graph or the points of a clustering; of the
            same kinds. ``Input(links, by="source")`` if their key has another name. None if there are none.
        by: Which partition each row goes to, as in :func:`exchange`: of the state, and of links and
            messages if nothing else is said. Rows with equal keys meet. With
            :class:`headgate.BroadcastSelector` each partition has a copy of all rows.
        send: A function that is called once per partition and round with the state and, if there are
            ``links``, with them: each is a :class:`headgate.Batches`. It returns the messages, as ``map`` of
            :func:`exchange` returns rows.
        update: A function that is called once per partition and round with the state and the messages to
            this partition, which come in any order. It returns the new state.
        message_schema: The columns that ``send`` returns, as a DDL string, a ``StructType`` or a
            ``pyarrow.Schema``.
        rounds: Number of rounds, from 1 to 10,000; with ``until`` the most rounds. A round in which nothing
            changes is run too, and with ``delta`` it reads no rows.
        message_by: Which partition each message goes to; by default as ``by`` says.
        delta: True if ``update`` returns only the rows that changed. They replace the rows of the state
            with the same key, and the next ``send`` gets only them; the first one gets all. A partition
            without messages calls neither function, and its state is not read. ``by`` is one column then. A
            key that ``update`` returns twice is an error. If the last round still changed rows, the log
            ``headgate.spark`` has a warning.
        until: ``"unchanged"``: end after the round in which ``update`` returned no row, for which it takes
            ``delta``.
        num_partitions: Number of partitions of the state, from 1 to 8,000; by default one for each slot.
        spark: The session that reads sources. By default the active one.
        parallelism: Number of producers that read a source, as in :func:`exchange`.
        **options: The other options of :func:`exchange`, of which ``mode="spark"`` and ``map_schema``
            are refused. A task has up to three pools of ``memory``: to read, for the state, for messages.

    Returns:
        A DataFrame with ``num_partitions`` partitions and the columns of the state.

    Raises:
        OptionError: An argument or option is unknown or has a value that it does not take; keys of
            state, links and messages have other types; ``delta`` with a ``by`` that is not one column;
            ``until`` without ``delta``.
        UnknownColumnError: A key names a column that the state, the links or the messages do not have.
        UnsupportedTypeError: A column has a type that cannot be sent, or cannot be a key.
        NativeModuleNotFound: The wheel has no native module.
        NotBuiltError: Spark is older than 4.1, or ``spark.sql.unionOutputPartitioning`` is off, and
            there is more than one partition; or an input that cannot be kept, such as with a shuffle that is
            not known to write local files.
        WorkerPythonError: The Python that runs tasks on this host cannot import headgate.
        SourceError: A source could not list its splits.

    Example:
        Ranks of pages, from links with the columns source, target and share::

            def send(ranks, links):
                found = pl.DataFrame(links).join(pl.DataFrame(ranks), left_on="source", right_on="page")
                return found.group_by(page="target").agg(rank=(pl.col("rank") * pl.col("share")).sum())

            def update(ranks, messages):
                sums = pl.DataFrame(messages).group_by("page").agg(given=pl.col("rank").sum())
                found = pl.DataFrame(ranks).join(sums, on="page", how="left")
                return found.select("page", rank=0.15 + 0.85 * pl.col("given").fill_null(0.0))

            ranks = iterate(
                pages, Input(links, by="source"), by="page", send=send, update=update,
                message_schema="page long, rank double", rounds=10,
            )
    """
    # Workers import this module, and need nothing that plans.
    from headgate.spark.plan.decide import decide  # noqa: PLC0415
    from headgate.spark.plan.facts import session_facts  # noqa: PLC0415
    from headgate.spark.plan.iterate_in_parts import PART, run_in_parts  # noqa: PLC0415
    from headgate.spark.plan.iterate_rounds import Iteration, plan_rounds  # noqa: PLC0415

    _check_rounds(rounds, until, delta=delta)
    _check_function("send", send, ("state",) if links is None else ("state", "links"))
    _check_function("update", update, ("state", "messages"))
    common_options = {**options, "num_partitions": num_partitions, "parallelism": parallelism}
    _refuse(common_options)
    need_native("iterate()")
    flag("delta", delta)
    if state is None:
        raise OptionError(
            "state is None, not a DataFrame of Spark or a source",
            remedy="a DataFrame with a row for each key",
        )
    first, *others = (
        data if isinstance(data, Input) else Input(data)
        for data in (state, links)
        if data is not None
    )
    session = session_for([first, *others], spark)
    if parallelism is not None and all(is_table(input_.data) for input_ in (first, *others)):
        refuse_for_table(first.data, spark, parallelism)

    def planned(
        state: Input, changed: Input | None, rounds: int, *, has_flag: bool, iteration: str
    ) -> DataFrame:
        named = {"state": state, "links": others[0] if others else None, "changed": changed}
        requests = {
            name: _checked(name, input_, session, by, update, common_options)
            for name, input_ in named.items()
            if input_ is not None
        }
        placed_by = by if message_by is None else message_by
        messages = _messages(requests["state"], placed_by, message_schema)
        check_keys([*requests.values(), messages])
        key = _key(requests["state"]) if delta else None
        facts = session_facts(session, by_order=True)
        partitions = requests["state"].options["num_partitions"] or max(1, facts.slots.number)
        _check_plan(messages, partitions, facts)
        plan, read = decide(list(requests.values()), is_listed=True, session=facts)
        call = Iteration(
            messages=messages,
            send=send,
            update=update,
            rounds=rounds,
            key=key,
            has_flag=has_flag,
            iteration=iteration,
            **dict(zip(requests, read, strict=True)),
        )
        return plan_rounds(call, plan)

    if until is None and rounds <= PART:
        return planned(first, None, rounds, has_flag=False, iteration="")
    is_until = until is not None
    return run_in_parts(planned, session, first, rounds, has_delta=delta, is_until=is_until)


def _check_rounds(rounds: Any, until: Any, *, delta: bool) -> None:
    if type(rounds) is not int or not 1 <= rounds <= MOST_ROUNDS:
        raise OptionError(
            f"rounds={rounds!r} is not a whole number from 1 to {MOST_ROUNDS}", remedy="rounds=10"
        )
    if until not in {None, "unchanged"}:
        raise OptionError(
            f"until={until!r} is unknown", remedy='until="unchanged" · omit it to run all rounds'
        )
    if until is not None and not delta:
        raise OptionError(
            "until needs delta=True: only then does update say which rows changed",
            asked=f"until={until!r}, delta={delta!r}",
            remedy="delta=True, with an update that returns the rows that changed · omit until",
        )


def _check_function(name: str, function: Any, parameters: tuple[str, ...]) -> None:
    remedy = (
        f"def {name}({', '.join(parameters)}): ..., which returns batches, a table or a DataFrame"
    )
    if not callable(function):
        raise OptionError(f"{name} is {kind_of(function)}, not a function", remedy=remedy)
    wrong = why_no_call(function, len(parameters))
    if wrong:
        raise OptionError(
            f"{name} cannot be called with {' and '.join(parameters)}: {wrong}", remedy=remedy
        )


def _refuse(options: Mapping[str, Any]) -> None:
    """Refuse options of exchange() that an iteration has not."""
    if options.get("mode") == "spark":
        raise OptionError(
            "the rounds of an iteration are kept", asked='mode="spark"', remedy='mode="kept"'
        )
    if options.get("map_schema") is not None:
        raise OptionError(
            "an iteration has no map; that of an input has its map_schema there",
            asked=f"map_schema={options['map_schema']!r}",
            remedy="message_schema= for what send returns · Input(df, map=f, map_schema=...)",
        )


def _checked(
    name: str,
    input_: Input,
    session: SparkSession,
    by: By,
    update: BatchFunction,
    options: Mapping[str, Any],
) -> Request:
    """Return the request of an input, whose result are the rows that are sent."""
    data = input_.data if is_table(input_.data) else source_input(input_.data, name)
    columns = data.schema if input_.map_schema is None else input_.map_schema
    for option, is_given in (
        ("combine", input_.combine is not None),
        ("broadcast", input_.broadcast is not False),
    ):
        if is_given:
            raise OptionError(
                f"the inputs of an iteration have no {option}",
                asked=f"{option}= of {name}",
                remedy=f"omit {option} · an exchange() before the iteration",
            )
    with_key = replace(input_, by=by if input_.by is None else input_.by)
    request = check(with_key, session, update, columns, options, name=name, is_alone=False)
    if request.options["num_partitions"] == "auto":
        raise OptionError(
            "the partitions of an iteration have a fixed number, since each task keeps its own from round to round",
            asked=f"num_partitions=auto ({request.options.sources['num_partitions']})",
            remedy="a number as num_partitions",
        )
    if not request.wire.fields:
        raise OptionError(f"{name} has no columns", remedy="select at least one column")
    return request


def _messages(state: Request, by: By, schema: Any) -> Request:
    """Return the request of the messages, which has no input."""
    session, wire = state.session, struct_of(schema, "message_schema")
    columns = Columns(
        wire,
        session.conf.get("spark.sql.caseSensitive") == "true",
        "the messages",
        "message_by",
        "Spark does not see the messages",
    )
    wire_schema = arrow_schema(wire, session.conf.get("spark.sql.session.timeZone") or "UTC")
    return replace(
        state,
        df=None,
        source=None,
        by=partitioning(by, columns),
        sort_within=[],
        map=None,
        input_schema=wire_schema,
        wire=wire,
        wire_schema=wire_schema,
    )


def _check_plan(messages: Request, partitions: int, session: SessionFacts) -> None:
    """Refuse what Spark cannot plan."""
    from headgate.spark.plan.facts import placement  # noqa: PLC0415
    from headgate.spark.plan.iterate_rounds import why_not_side_by_side  # noqa: PLC0415 - slow to import
    from headgate.spark.plan.rules import why_not_by_order, why_not_in_files  # noqa: PLC0415

    why = why_not_side_by_side(messages.session, partitions)
    if why:
        raise NotBuiltError(
            "an iteration needs a Spark that reads several shuffles side by side",
            asked=f"num_partitions={partitions}",
            have=why,
            remedy="num_partitions=1 · Spark 4.1 or newer · a loop of exchange([...], ...)",
        )
    why = why_not_in_files(session)
    if why and session.unknown_shuffle is not None:
        raise NotBuiltError(
            "the rounds of an iteration cannot be kept with this shuffle",
            have=why,
            remedy=session.unknown_shuffle.remedy,
        )
    why = why_not_by_order(session, is_by_order=placement(messages.by).is_by_order)
    if why:
        raise NotBuiltError("these messages cannot be kept", asked=why, remedy="message_by=columns")


def _key(state: Request) -> str:
    """Return the column by which changed rows replace others."""
    from headgate.spark.plan.facts import placement  # noqa: PLC0415

    by = state.by
    if isinstance(by, list) and len(by) == 1 and isinstance(by[0], str):
        return by[0]
    raise OptionError(
        "delta=True needs one column by which changed rows replace those of the state",
        asked=f"by={placement(by).label}",
        remedy='by="id" · delta=False',
    )
