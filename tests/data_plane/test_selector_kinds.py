"""Selectors other than hash, round robin, broadcast and key groups."""

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from plane import NUMBERS, emit_all, exchange, numbers

import headgate as hg
from headgate import flink

N = 4


def placed(link, selector, records, *, n=N, kind="arrow"):
    """Emit records one by one; return the subpartition of each."""
    producer, consumer = link()
    schema = NUMBERS if kind == "arrow" else None
    options = {} if kind == "arrow" else {"serializer": kind}
    got = exchange(
        producer, consumer, emit_all(*records), n=n, schema=schema, selector=selector, **options
    )
    places = {}
    for index, rows in enumerate(got):
        for row in rows.column("n").to_pylist() if kind == "arrow" else rows:
            places[row] = index
    return [places[row] for row in sorted(places)]


KINDS = {
    "arrow": [numbers(1, turn) for turn in range(12)],
    "bytes": [turn.to_bytes(1) for turn in range(12)],
    "pickle": list(range(12)),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_spec_5_08_rebalance_is_consecutive_from_any_start(link, kind):
    starts = set()
    for _ in range(1 if link.kind != "local" else 25):
        places = placed(link, hg.RebalanceSelector(), KINDS[kind], kind=kind)
        assert all((b - a) % N == 1 for a, b in pairwise(places))
        starts.add(places[0])
    # 24 more writers miss a given start with a chance of 0.1 %; all start alike in 1 of 2**48 runs.
    assert link.kind != "local" or len(starts) > 1


@pytest.mark.parametrize("selector", [hg.ForwardSelector(), hg.GlobalSelector()], ids=str)
def test_spec_5_08_forward_and_global_are_always_the_first(link, kind, selector):
    assert placed(link, selector, KINDS[kind], kind=kind) == [0] * 12


def test_spec_5_08_rescale_counts_within_its_group(link, kind):
    assert placed(link, hg.RescaleSelector(), KINDS[kind], n=3, kind=kind) == [0, 1, 2] * 4
    second = hg.RescaleSelector(producer=1, num_producers=2)
    assert placed(link, second, KINDS[kind], kind=kind) == [2, 3] * 6


@pytest.mark.parametrize("consumers", range(1, 9))
@pytest.mark.parametrize("producers", range(1, 9))
def test_rescale_shares_subpartitions_out_as_flink_does(producers, consumers):
    groups = [hg.RescaleSelector(i, producers).group(consumers) for i in range(producers)]
    shares = Counter(index for group in groups for index in group)
    assert set(shares) == set(range(consumers))  # every consumer is reached
    if producers <= consumers:
        assert set(shares.values()) == {1}
        assert groups[0].start == 0
        assert all(a.stop == b.start for a, b in pairwise(groups))
        sizes = [len(group) for group in groups]
        assert max(sizes) - min(sizes) <= 1
    else:
        # Flink: consumer j reads the producers from j * P // C to (j + 1) * P // C - 1.
        for index in range(consumers):
            mine = range(index * producers // consumers, (index + 1) * producers // consumers)
            assert [i for i, group in enumerate(groups) if index in group] == [*mine]


def test_shuffle_reaches_everybody_and_repeats_with_its_seed(link, kind):
    records = KINDS[kind]
    first = placed(link, hg.ShuffleSelector(seed=7), records, kind=kind)
    assert first == placed(link, hg.ShuffleSelector(seed=7), records, kind=kind)
    others = [placed(link, hg.ShuffleSelector(seed=s), records, kind=kind) for s in range(5)]
    assert any(other != first for other in others)
    assert set(sum(others, first)) == set(range(N))


def test_by_rows_each_row_of_a_batch_is_a_record(link):
    batches = [numbers(size, 100 * turn) for turn, size in enumerate([5, 0, 1, 6])]
    places = placed(link, hg.RoundRobinSelector(start=1, by_rows=True), batches)
    assert places == [(1 + turn) % N for turn in range(12)]
    places = placed(link, hg.RebalanceSelector(by_rows=True), batches)
    assert all((b - a) % N == 1 for a, b in pairwise(places))
    places = placed(link, hg.RescaleSelector(0, 2, by_rows=True), batches)
    assert places == [0, 1] * 6


def test_shuffled_rows_are_spread_evenly(link):
    places = placed(link, hg.ShuffleSelector(seed=1, by_rows=True), [numbers(40_000)])
    counts = Counter(places)
    # Six standard deviations of 10,000 in 40,000.
    assert all(abs(counts[index] - 10_000) < 6 * 87 for index in range(N))


def test_selectors_by_columns_are_not_for_bytes(environment):
    partition = environment().create_result_partition(2)
    for selector in (hg.HashSelector("n"), hg.KeyGroupSelector("n")):
        for kind in ("bytes", "pickle"):
            with pytest.raises(hg.errors.SelectorError, match="no columns"):
                hg.RecordWriter(partition, selector=selector, serializer=kind)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: hg.ShuffleSelector(-1), "seed=-1"),
        (lambda: hg.ShuffleSelector(2**64), f"seed={2**64}"),
        (lambda: hg.RescaleSelector(2, 2), "producer=2 is not one of 2"),
        (lambda: hg.RescaleSelector(-1), "producer=-1"),
        (lambda: hg.RescaleSelector(0, 0), "of 0 producers"),
        (lambda: hg.KeyGroupSelector("n", 0), "max_parallelism=0"),
        (lambda: hg.KeyGroupSelector("n", 32769), "max_parallelism=32769"),
    ],
)
def test_selectors_that_make_no_sense_are_refused(make, said):
    with pytest.raises(hg.errors.SelectorError, match=said):
        make()
    assert hg.ShuffleSelector(2**64 - 1).seed == 2**64 - 1


def test_random_emit_goes_to_one_and_reaches_all(link, kind):
    producer, consumer = link()
    schema = NUMBERS if kind == "arrow" else None
    options = {} if kind == "arrow" else {"serializer": kind}

    def write(to):
        for turn in range(200):
            if kind == "arrow":
                flink.random_emit(
                    to, pa.Table.from_batches([numbers(1, 2 * turn), numbers(1, 2 * turn + 1)])
                )
            else:
                flink.random_emit(to, turn.to_bytes(1) if kind == "bytes" else turn)

    got = exchange(
        producer, consumer, write, n=3, schema=schema, selector=hg.BroadcastSelector(), **options
    )
    rows = [t.column("n").to_pylist() if kind == "arrow" else t for t in got]
    assert all(len(some) > 20 for some in rows)  # 67 on average: 7 standard deviations
    assert all(some == sorted(some) for some in rows)
    flat = sorted(row for some in rows for row in some)
    expected = range(400) if kind == "arrow" else range(200)
    assert flat == ([n.to_bytes(1) for n in expected] if kind == "bytes" else [*expected])
