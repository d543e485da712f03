"""What the columns of a table are: every fault is named, and all at once."""

import pytest

from kvota.model.errors import UsageError
from kvota.pipeline.sources.table_mapping import TableMapping, assignments, mapping_of

COLUMNS = ("event_time", "principal", "app", "bytes")
GOOD = {"ts": "event_time", "user": "principal", "value": "bytes"}


def refusal(
    columns: list[tuple[str, str]],
    constants: tuple[tuple[str, str], ...] = (("quota_type", "PRODUCE"),),
    there: tuple[str, ...] | None = COLUMNS,
) -> str:
    with pytest.raises(UsageError) as refused:
        mapping_of(columns, constants, there)
    return str(refused.value)


def test_a_good_one() -> None:
    columns = assignments(["ts=event_time,user=principal", "value=bytes"])

    mapping = mapping_of(columns, assignments(["quota_type=PRODUCE"]), COLUMNS)

    assert mapping == TableMapping(GOOD, {"quota_type": "PRODUCE"})


def test_names_of_columns_may_have_commas_and_equals_signs() -> None:
    assert assignments(["user=a,b=c,value=x=y"]) == [("user", "a"), ("b", "c"), ("value", "x=y")]
    assert assignments(["user=a, b", "value=x=y"]) == [("user", "a, b"), ("value", "x=y")]


def test_all_faults_at_once() -> None:
    told = refusal(
        [("ts", "event_tme"), ("usr", "principal"), ("value", "bytes"), ("value", "app")],
        (("quota_type", "PRODUCED"),),
    )

    assert told.splitlines()[1:] == [
        '  --map usr=principal: a charge has no "usr". Did you mean "user"?',
        "  value is given 2 times; which one holds?",
        "  user and client_id are missing: --map user=COLUMN, or client_id, or both",
        '  --const quota_type=PRODUCED: "PRODUCED" is no quota type. Did you mean "PRODUCE"?',
        '  ts: the table has no column "event_tme". Did you mean "event_time"?',
    ]


@pytest.mark.parametrize(
    ("columns", "constants", "told"),
    [
        ({"ts": None}, {}, "ts is missing (when it was charged): --map ts=COLUMN"),
        ({"value": None}, {}, "value is missing"),
        ({}, {"quota_type": None}, "quota_type is missing: --const quota_type=PRODUCE"),
        ({"value": "money"}, {}, 'no column "money". It has event_time, principal, app, bytes'),
        ({"client_id": "principal"}, {}, '"principal" is mapped 2 times, to user and client_id'),
        ({}, {"user": "me"}, "user is given 2 times"),
        ({}, {"seq": "1"}, "seq is not the same in every row"),
        ({}, {"node_id": "-1"}, '"-1" is not the id of a broker'),
        ({"value": None}, {"value": "nan"}, '"nan" is not a number from 0 on'),
        ({"ts": ""}, {}, "--map ts: write --map ts=event_time"),
    ],
)
def test_a_fault(
    columns: dict[str, str | None], constants: dict[str, str | None], told: str
) -> None:
    mapped = {**GOOD, **columns}
    fixed = {"quota_type": "PRODUCE", **constants}

    said = refusal(
        [(name, column) for name, column in mapped.items() if column is not None],
        tuple((name, value) for name, value in fixed.items() if value is not None),
    )

    assert told in said
    assert said.count("\n") == 1


def test_a_column_that_is_there_twice() -> None:
    assert "twice" in refusal(list(GOOD.items()), there=(*COLUMNS, "bytes"))


def test_columns_may_be_looked_at_later() -> None:
    mapping = mapping_of([*GOOD.items()], [("quota_type", "fetch")], None)

    assert mapping.constants == {"quota_type": "fetch"}
