"""Alterations of the gateway's settings: taken, or refused with the codes and words of a broker of Kafka 4.3."""

import pytest

from kvota.model.broker_settings import SettingChanges
from kvota.quota_api.broker_settings import SETTINGS_BYTES_MAX, SETTINGS_MAX, Refused, judge
from kvota.wire.alter_configs import APPEND, DELETE, SET, SUBTRACT, Operation
from kvota.wire.steps import at_once

NUM, SIZE = "quota.window.num", "quota.window.size.seconds"
CLASS, GROUP = "client.quota.callback.class", "client.quota.callback.group.a.users"
THREADS = "background.threads"
CONFIG, REQUEST = 40, 42


def op(name: str, value: str | None = "5", operation: int = SET) -> Operation:
    return Operation(name, value, operation, 0, 0)


def judged(
    *operations: Operation,
    stored: dict[str, str] | None = None,
    replaces: bool = False,
    of_all: bool = True,
    may_lag: bool = False,
) -> SettingChanges | Refused:
    steps = judge(operations, stored or {}, replaces=replaces, of_all=of_all, may_lag=may_lag)
    return at_once(steps)


def test_what_is_set_and_deleted() -> None:
    stored = {NUM: "5", SIZE: "2", CLASS: "a.B"}

    assert judged(op(NUM), op(THREADS)) == {NUM: "5"}
    assert judged(op(NUM, "5"), op(SIZE, "3"), stored=stored) == {SIZE: "3"}
    assert judged(op(NUM, None, DELETE), op(GROUP, "", DELETE), stored=stored) == {NUM: None}
    assert judged(op(THREADS), stored=stored) == {}


def test_what_is_so_already_is_a_change_where_others_may_have_altered_it() -> None:
    asked = (op(NUM, "5"), op(SIZE, None, DELETE))

    assert judged(*asked, stored={NUM: "5"}) == {}
    assert judged(*asked, stored={NUM: "5"}, may_lag=True) == {NUM: "5", SIZE: None}
    assert judged(op(NUM, "0"), may_lag=True) != {}


def test_what_is_not_named_is_deleted_where_all_is_replaced() -> None:
    stored = {NUM: "5", SIZE: "2"}

    assert judged(op(NUM, "5"), op(THREADS), stored=stored, replaces=True) == {SIZE: None}
    assert judged(stored=stored, replaces=True) == {NUM: None, SIZE: None}
    assert judged(op(SIZE, "2"), op(NUM, "5"), stored=stored, replaces=True) == {}
    # One broker has none, so none of it go.
    assert judged(op(THREADS), stored=stored, replaces=True, of_all=False) == {}


@pytest.mark.parametrize("value", ["1", " 7 ", "+7", "10000", "\u0665"])
def test_numbers_that_java_reads(value: str) -> None:
    assert judged(op(NUM, value)) == {NUM: value}


@pytest.mark.parametrize(
    "value", ["", "abc", "5.0", "0x5", "1,2", "1_0", "99999999999", "5s", "--5", "\u00a08"]
)
def test_what_is_no_number(value: str) -> None:
    words = f"Invalid value {value} for configuration {NUM}: Not a number of type INT"
    assert judged(op(NUM, value)) == (REQUEST, words)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (NUM, "0", "at least 1"),
        (NUM, "-1", "at least 1"),
        (SIZE, "-2147483648", "at least 1"),
        (NUM, "10001", "no more than 10000"),
        (f"controller.{SIZE}", "86401", "no more than 86400"),
    ],
)
def test_numbers_out_of_range(name: str, value: str, problem: str) -> None:
    words = f"Invalid value {value} for configuration {name}: Value must be {problem}"
    assert judged(op(name, value)) == (REQUEST, words)


@pytest.mark.parametrize(
    ("operations", "code", "words"),
    [
        ([op(NUM), op(NUM)], REQUEST, "Error due to duplicate config keys"),
        ([op(NUM), op(THREADS), op(THREADS)], REQUEST, "Error due to duplicate config keys"),
        (
            [op(NUM, None), op(THREADS, None)],
            REQUEST,
            f"Null value not supported for : {NUM}, {THREADS}",
        ),
        (
            [op(NUM, "5", APPEND)],
            CONFIG,
            f"Config value append is not allowed for config key: {NUM}",
        ),
        (
            [op(NUM, "5", SUBTRACT)],
            CONFIG,
            f"Config value subtract is not allowed for config key: {NUM}",
        ),
        ([op(NUM, "5", 9)], REQUEST, "Unknown operations type 9"),
    ],
)
def test_what_a_broker_refuses(operations: list[Operation], code: int, words: str) -> None:
    assert judged(*operations) == (code, words)


def test_one_broker_has_no_setting_of_the_gateways() -> None:
    refused = judged(op(NUM), op(SIZE, None, DELETE), of_all=False)

    assert isinstance(refused, Refused)
    assert refused.error_code == REQUEST
    assert "--entity-default" in refused.message
    assert refused.message.endswith(f"[{NUM}]")
    assert judged(op(NUM, None, DELETE), of_all=False) == {}


def test_no_more_than_can_be_kept() -> None:
    names = [f"client.quota.callback.group.g{number}.users" for number in range(SETTINGS_MAX + 1)]

    assert isinstance(judged(*(op(name, "a") for name in names)), Refused)
    assert not isinstance(judged(*(op(name, "a") for name in names[1:])), Refused)
    large = "a" * (SETTINGS_BYTES_MAX // 8)
    assert isinstance(judged(*(op(name, large) for name in names[:8])), Refused)
    assert not isinstance(judged(*(op(name, large) for name in names[:7])), Refused)
