"""The functions of the bench ``jobs``: from batches of Arrow to batches of Arrow, as ``mapInArrow`` takes them.

Every function is called once per partition, by all contestants. Each ``reduce`` gets all rows of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterator[pa.RecordBatch]

#: Seconds without a click after which a session ends.
GAP = 1800
#: Bands of a document's signature; two documents are candidates if one band is equal.
BANDS = 4
#: Hashes in a band.
ROWS_OF_A_BAND = 4
#: Two documents are duplicates from this share of equal hashes on.
ALIKE = 0.7
#: Centroids of the points, which lie in the plane.
CENTROIDS = np.random.default_rng(7).uniform(0, 1000, (64, 2))


def table(batches: Batches) -> pa.Table | None:
    """Return all batches as a table of whole columns; None if there is no row."""
    found = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(found).combine_chunks() if found else None


def columns(**arrays: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(arrays)


def numbers(rows: pa.Table, name: str) -> np.ndarray:
    return rows.column(name).combine_chunks().to_numpy(zero_copy_only=False)


def groups(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an order that brings equal keys together, where each begins in it, and the keys."""
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    return order, starts, found


def sessions(batches: Batches) -> Batches:
    """Clicks of a user that follow one another within half an hour: begin, seconds and number of clicks."""
    rows = table(batches)
    if rows is None:
        return
    users, times = numbers(rows, "user"), numbers(rows, "second")
    order = np.lexsort((times, users))
    users, times = users[order], times[order]
    new = np.ones(len(users), bool)
    new[1:] = (users[1:] != users[:-1]) | (times[1:] - times[:-1] > GAP)
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(users))
    yield columns(
        user=users[starts],
        begin=times[starts],
        seconds=times[ends - 1] - times[starts],
        clicks=ends - starts,
    )


def features(batches: Batches) -> Batches:
    """Of each user: clicks, spent, the largest amount, distinct pages, and the hour of most clicks."""
    rows = table(batches)
    if rows is None:
        return
    order, starts, users = groups(numbers(rows, "user"))
    cents = numbers(rows, "cents")[order]
    hours = numbers(rows, "second")[order] // 3600 % 24
    clicks = np.diff(np.append(starts, len(order)))
    of_user = np.repeat(np.arange(len(users)), clicks)
    by_hour = np.bincount(of_user * 24 + hours, minlength=24 * len(users)).reshape(-1, 24)
    pages = np.unique(of_user * 1_000_000 + numbers(rows, "page")[order])
    yield columns(
        user=users,
        clicks=clicks,
        cents=np.add.reduceat(cents, starts),
        largest=np.maximum.reduceat(cents, starts),
        pages=np.bincount(pages // 1_000_000, minlength=len(users)),
        hour=by_hour.argmax(axis=1),
    )


def models(batches: Batches) -> Batches:
    """A least-squares line for each user: cents over the second of the day."""
    rows = table(batches)
    if rows is None:
        return
    order, starts, users = groups(numbers(rows, "user"))
    ends = np.append(starts[1:], len(order))
    x = (numbers(rows, "second")[order] % 86_400) / 86_400
    y = numbers(rows, "cents")[order].astype(float)
    slopes = np.zeros(len(users))
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end - start > 1:
            design = np.column_stack((np.ones(end - start), x[start:end]))
            slopes[number] = np.linalg.lstsq(design, y[start:end], rcond=None)[0][1]
    yield columns(user=users, slope=np.rint(slopes).astype(np.int64))


def latest(batches: Batches) -> Batches:
    """The last click of each user."""
    rows = table(batches)
    if rows is None:
        return
    order = np.lexsort((numbers(rows, "page"), numbers(rows, "second"), numbers(rows, "user")))
    users = numbers(rows, "user")[order]
    last = np.append(users[1:] != users[:-1], True)
    yield from rows.take(order[last]).to_batches()


def largest(batches: Batches) -> Batches:
    """The three largest amounts on each page."""
    rows = table(batches)
    if rows is None:
        return
    order = np.lexsort((-numbers(rows, "cents"), numbers(rows, "page")))
    pages = numbers(rows, "page")[order]
    starts = np.flatnonzero(np.append(True, pages[1:] != pages[:-1]))
    lengths = np.diff(np.append(starts, len(pages)))
    rank = np.arange(len(pages)) - np.repeat(starts, lengths)
    best = order[rank < 3]
    yield columns(page=numbers(rows, "page")[best], cents=numbers(rows, "cents")[best])


def words(batches: Batches) -> Batches:
    """Map: the words of each batch of texts, each with its number."""
    for batch in batches:
        found = pc.list_flatten(pc.ascii_split_whitespace(pc.utf8_lower(batch.column("text"))))
        counted = pc.value_counts(found)
        yield columns(word=counted.field("values"), times=counted.field("counts"))


def total_of_words(batches: Batches) -> Batches:
    rows = table(batches)
    if rows is not None:
        counted = rows.group_by("word").aggregate([("times", "sum")])
        yield from counted.rename_columns(["word", "times"]).to_batches()


def parsed(batches: Batches) -> Batches:
    """Map: user, kind and milliseconds from lines of a log; other lines are left out."""
    pattern = r"user=(?P<user>\d+) kind=(?P<kind>\w+) took=(?P<took>\d+)ms"
    for batch in batches:
        found = pc.extract_regex(batch.column("line"), pattern).drop_null()
        yield columns(
            user=pc.struct_field(found, "user").cast(pa.int64()),
            kind=pc.struct_field(found, "kind"),
            took=pc.struct_field(found, "took").cast(pa.int64()),
        )


def slow_requests(batches: Batches) -> Batches:
    """The slowest request of each user and kind, and their number."""
    rows = table(batches)
    if rows is not None:
        found = rows.group_by(["user", "kind"]).aggregate([("took", "max"), ("took", "count")])
        yield from found.rename_columns(["user", "kind", "took", "requests"]).to_batches()


def signed(batches: Batches) -> Batches:
    """Map: one row for each band of a document's minhash signature, with the signature."""
    number = BANDS * ROWS_OF_A_BAND
    draw = np.random.default_rng(11)
    factor = draw.integers(1, 2**31, number, dtype=np.uint64) | np.uint64(1)
    shift = draw.integers(0, 2**31, number, dtype=np.uint64)
    for batch in batches:
        texts = pc.ascii_split_whitespace(batch.column("text"))
        tokens = pc.list_flatten(texts).dictionary_encode()
        of_word = np.array(
            [int.from_bytes(w.encode()[:7].ljust(7), "big") for w in tokens.dictionary.to_pylist()],
            np.uint64,
        )
        hashes = of_word[tokens.indices.to_numpy(zero_copy_only=False)]
        starts = texts.offsets.to_numpy(zero_copy_only=False)[:-1] - texts.offsets[0].as_py()
        signature = np.empty((batch.num_rows, number), np.uint64)
        for n in range(number):
            signature[:, n] = np.minimum.reduceat(
                (hashes * factor[n] + shift[n]) >> np.uint64(20), starts
            )
        for band in range(BANDS):
            mine = signature[:, band * ROWS_OF_A_BAND : (band + 1) * ROWS_OF_A_BAND]
            key = (mine * np.array([3, 7, 31, 127], np.uint64)).sum(axis=1) * np.uint64(
                BANDS
            ) + np.uint64(band)
            flat = pa.array(signature.reshape(-1).view(np.int64))
            yield columns(
                band=key.view(np.int64),
                id=batch.column("id"),
                signature=pa.FixedSizeListArray.from_arrays(flat, number).cast(
                    pa.list_(pa.int64())
                ),
            )


def near_duplicates(batches: Batches) -> Batches:
    """Pairs of documents with an equal band whose signatures are alike."""
    rows = table(batches)
    if rows is None:
        return
    order, starts, _ = groups(numbers(rows, "band"))
    ends = np.append(starts[1:], len(order))
    ids = numbers(rows, "id")[order]
    flat = pc.list_flatten(rows.column("signature").combine_chunks()).to_numpy()
    signatures = flat.reshape(len(order), -1)[order]
    left, right = [], []
    for start, end in zip(starts, ends, strict=True):
        for n in range(start, end - 1):
            alike = (signatures[n + 1 : end] == signatures[n]).mean(axis=1) >= ALIKE
            others = ids[n + 1 : end][alike]
            left.append(np.minimum(others, ids[n]))
            right.append(np.maximum(others, ids[n]))
    yield columns(
        left=np.concatenate(left) if left else np.array([], np.int64),
        right=np.concatenate(right) if right else np.array([], np.int64),
    )


def nearest(batches: Batches) -> Batches:
    """Map: number and sums of the points of a batch that are nearest to each centroid."""
    for batch in batches:
        points = np.column_stack([numbers(pa.Table.from_batches([batch]), name) for name in "xy"])
        distances = ((points[:, None, :] - CENTROIDS[None, :, :]) ** 2).sum(axis=2)
        mine = distances.argmin(axis=1)
        count = np.bincount(mine, minlength=len(CENTROIDS))
        # In hundredths, so that sums do not depend on how the points are cut into batches.
        whole = np.rint(points * 100)
        yield columns(
            centroid=np.arange(len(CENTROIDS)),
            points=count,
            x=np.bincount(mine, whole[:, 0], minlength=len(CENTROIDS)).astype(np.int64),
            y=np.bincount(mine, whole[:, 1], minlength=len(CENTROIDS)).astype(np.int64),
        )


def moved(batches: Batches) -> Batches:
    """The sums of each centroid over all batches."""
    rows = table(batches)
    if rows is not None:
        sums = rows.group_by("centroid").aggregate([("points", "sum"), ("x", "sum"), ("y", "sum")])
        yield from sums.rename_columns(["centroid", "points", "x", "y"]).to_batches()


def contributions(batches: Batches) -> Batches:
    """Map: what each link of a page gives to its target, summed in each batch."""
    for batch in batches:
        given = pa.table({"page": batch.column("target"), "rank": batch.column("share")})
        summed = given.group_by("page").aggregate([("rank", "sum")])
        yield from summed.rename_columns(["page", "rank"]).to_batches()


def ranks(batches: Batches) -> Batches:
    rows = table(batches)
    if rows is not None:
        summed = rows.group_by("page").aggregate([("rank", "sum")])
        yield from summed.rename_columns(["page", "rank"]).to_batches()


def as_of(batches: Batches) -> Batches:
    """For each trade the last quote of its symbol that is not later; ``kind`` 0 is a quote, 1 a trade."""
    rows = table(batches)
    if rows is None:
        return
    kinds, symbols = numbers(rows, "kind"), numbers(rows, "symbol")
    # By price too: the order of rows is not that of the ticks, and quotes may come at the same time.
    order = np.lexsort((numbers(rows, "cents"), kinds, numbers(rows, "at"), symbols))
    kinds, symbols = kinds[order], symbols[order]
    last = np.maximum.accumulate(np.where(kinds == 0, np.arange(len(order)), -1))
    trades = np.flatnonzero(kinds == 1)
    quotes = last[trades]
    known = (quotes >= 0) & (symbols[quotes] == symbols[trades])
    prices = numbers(rows, "cents")[order]
    yield columns(
        symbol=symbols[trades],
        at=numbers(rows, "at")[order][trades],
        paid=prices[trades],
        quoted=pa.array(np.where(known, prices[quotes], 0), mask=~known),
    )
