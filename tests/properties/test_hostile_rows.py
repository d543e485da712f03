"""Whoever may write the quotas' topic writes what he likes: following goes on, good rows count, a bad one is said."""

import asyncio
import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.store.test_topic_store import Followed, Kept, following, row_of

from kvota.client.record_batches import Row
from kvota.model.client_quotas import KEYS, KeyChange
from kvota.model.quota_entity import QuotaEntity
from kvota.store.file_store import load_quota_file
from kvota.store.quota_rows import EncodedRow, changes_of

# No row that is drawn is about them.
BEFORE, BEHIND, ALTERED = (QuotaEntity(f"{name} of ours") for name in ("one", "two", "three"))
RATE = "producer_byte_rate"
CALLBACK = "client.quota.callback."
NUM_KEY = b'{"setting":"quota.window.num"}'
CALLBACK_KEY = b'{"setting":"client.quota.callback.x"}'
HALF = b'{"version":1,"value":"\\ud800"}'
FIVE = b'{"version":1,"value":5}'

# With halves of surrogate pairs, NULs, and what a terminal obeys.
TEXTS = st.text(st.characters(), max_size=6) | st.sampled_from(
    ["\ud800", "a\0b", "\n\x1b[2J", "x" * 40_000]
)
DEEP = st.integers(1, 1200).map(lambda depth: "[" * depth + "]" * depth)
NUMBERS = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from([300, 4_000, 5_000]).map(lambda digits: "9" * digits),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "1e999", "true", "null", "-0.0"]),
)
SPELLED = st.one_of(
    TEXTS.map(json.dumps), NUMBERS, DEEP, st.sampled_from(['"NaN"', '"Infinity"', "{}"])
)


def _object(members: dict[str, str]) -> bytes:
    return "{{{}}}".format(",".join(f"{json.dumps(k)}:{v}" for k, v in members.items())).encode()


QUOTAS = st.sampled_from([json.dumps(key) for key in KEYS]) | SPELLED
NAMES = st.sampled_from(["user", "client-id", "ip", "quota", "setting"]) | TEXTS
SETTINGS = TEXTS.map(lambda text: json.dumps(CALLBACK + text)) | st.just('"quota.window.num"')
MADE_KEYS = st.one_of(
    st.dictionaries(NAMES, SPELLED, max_size=3),
    st.fixed_dictionaries({"quota": QUOTAS}, optional=dict.fromkeys(("user", "ip"), SPELLED)),
    st.fixed_dictionaries({"setting": SETTINGS}),
).map(_object)
MADE_VALUES = st.one_of(
    st.fixed_dictionaries({"version": st.just("1"), "value": SPELLED}),
    st.fixed_dictionaries({"version": SPELLED, "value": SPELLED}),
    st.dictionaries(TEXTS, SPELLED, max_size=3),
).map(_object)
RAW = st.binary(max_size=20) | TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))
KEY_BYTES = MADE_KEYS | MADE_KEYS | RAW
VALUE_BYTES = MADE_VALUES | MADE_VALUES | RAW | DEEP.map(str.encode)
ROWS = st.lists(st.tuples(KEY_BYTES, st.none() | VALUE_BYTES), min_size=1, max_size=5)


@contextmanager
def said() -> Iterator[list[str]]:
    """What the store logs meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    store_log = logging.getLogger("kvota.store.topic_store")
    store_log.addHandler(handler)
    try:
        yield lines
    finally:
        store_log.removeHandler(handler)


def offsets_of_bad(rows: list[EncodedRow]) -> list[int]:
    _, left_out = changes_of(Row(offset, *row) for offset, row in enumerate(rows, 1))
    return [each.offset for each in left_out]


def see_that_it_is_said(rows: list[EncodedRow], lines: list[str]) -> None:
    of_rows = [line for line in lines if "is left out" in line]
    assert all("cannot be followed" not in line and len(line) < 10_000 for line in lines)
    for line in lines:
        line.encode()  # a log can be written
        assert line.isprintable()
    bad = offsets_of_bad(rows)
    # Each reason is said once, with the first row that has it.
    assert bool(of_rows) == bool(bad)
    if bad:
        assert of_rows[0].startswith(f"topic quotas: row {bad[0]} is left out: ")


async def follow_and_alter(rows: list[EncodedRow], snapshot: Path) -> None:
    topic = Kept(row_of(BEFORE, 1.0))
    with said() as lines:
        async with following(topic, snapshot) as followed:
            topic.rows += [*rows, row_of(BEHIND, 2.0)]
            topic.came.set()
            change = KeyChange(ALTERED, RATE, 3.0)
            assert await asyncio.wait_for(followed.alter(change), 10) is None
            see_that_they_are_in_force(followed)
            followed.store.quotas.configured()
    see_that_it_is_said(rows, lines)

    document, problem = load_quota_file(snapshot)
    assert problem is None
    assert document.quotas == followed.store.quotas
    assert document.settings == followed.store.settings

    # So it is for a gateway that starts with these rows, and none that it knows.
    with said() as lines:
        async with following(topic, snapshot.with_name("another.json")) as again:
            see_that_they_are_in_force(again)
            assert again.store.quotas == followed.store.quotas
            assert again.store.settings == followed.store.settings
    see_that_it_is_said(rows, lines)


def see_that_they_are_in_force(followed: Followed) -> None:
    ours = [followed.store.quotas.value(entity, RATE) for entity in (BEFORE, BEHIND, ALTERED)]
    assert ours == [1.0, 2.0, 3.0]
    assert followed.store.refusal is None


@settings(max_examples=150, deadline=None)
@given(ROWS)
@example([(CALLBACK_KEY, HALF)])
@example([(b'{"setting":"client.quota.callback.\\ud800"}', b'{"version":1,"value":"x"}')])
@example([(b'{"user":"a","quota":"\\ud800"}', FIVE)])
@example([(b'{"user":"a","quota":"x\\nERROR forged"}', FIVE)])
@example([(NUM_KEY, b'{"version":%s,"value":"5"}' % (b"[" * 900 + b"]" * 900))])
@example([(b'{"\\ud800":"a","quota":"x"}', FIVE)])
def test_a_hostile_row_ends_nothing(rows: list[EncodedRow]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(follow_and_alter(rows, Path(folder) / "quotas.json"))
