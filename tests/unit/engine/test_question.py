"""What a callback says is checked before anything is charged by it."""

from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pytest

from kvota.engine import Question
from kvota.model.errors import CallbackError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType


class Told(ClientQuotaCallback):
    """Answers what it was made with."""

    def __init__(self, tags: Any, limit: Any) -> None:
        self.tags = tags
        self.limit = limit
        self.asked: list[tuple[object, ...]] = []

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Any:
        self.asked.append((quota_type, user, client_id))
        return self.tags

    def quota_limit(self, quota_type: QuotaType, tags: Any) -> Any:
        self.asked.append((quota_type, dict(tags)))
        return self.limit

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        pass

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        pass

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        return False


QUESTION = Question(quota_type=QuotaType.FETCH, user="alice", client_id="app", reset_count=0)


def test_an_answer_is_the_tags_their_text_and_their_limit() -> None:
    callback = Told({"team": "a b", "env": "x"}, 5)

    answer = QUESTION.ask(callback)

    assert (dict(answer.tags), answer.text, answer.limit) == (
        {"team": "a b", "env": "x"},
        "env=x,team=a%20b",
        5.0,
    )
    assert callback.asked == [
        (QuotaType.FETCH, "alice", "app"),
        (QuotaType.FETCH, {"team": "a b", "env": "x"}),
    ]


def test_what_the_callback_does_with_its_mapping_afterwards_changes_nothing() -> None:
    tags = {"team": "a"}
    answer = QUESTION.ask(Told(tags, None))

    tags["team"] = "b"

    assert answer.tags == {"team": "a"}
    assert answer.limit is None


@pytest.mark.parametrize("tags", [{}, MappingProxyType({"k": ""})])
def test_any_mapping_of_texts_will_do(tags: object) -> None:
    assert QUESTION.ask(Told(tags, None)).tags == tags


@pytest.mark.parametrize(
    ("limit", "number"),
    [(0, 0.0), (1.5, 1.5), (Fraction(1, 2), 0.5), (1.7e308, 1.7e308), (float("inf"), None)],
)
def test_any_number_from_0_on_is_a_limit(limit: object, number: float | None) -> None:
    answer = QUESTION.ask(Told({}, limit))

    assert answer.limit == number
    assert type(answer.limit) is type(number)


@pytest.mark.parametrize(
    ("tags", "shown"),
    [
        (None, "None"),
        ([("user", "a")], r"\[\('user', 'a'\)\]"),
        ("user=a", "'user=a'"),
        ({"user": 5}, r"\{'user': 5\}"),
        ({"user": None}, r"\{'user': None\}"),
        ({7: "a"}, r"\{7: 'a'\}"),
    ],
)
def test_tags_that_are_no_texts_are_refused(tags: object, shown: str) -> None:
    expected = rf"test_question\.Told\.quota_metric_tags answered {shown}, not a mapping of texts"

    with pytest.raises(CallbackError, match=expected):
        QUESTION.ask(Told(tags, 1.0))


@pytest.mark.parametrize(
    "limit",
    [-1, -0.5, float("nan"), float("-inf"), "8MB/s", True, False, Decimal(5), 1j, [5], 10**400],
)
def test_a_limit_that_is_none_is_refused(limit: object) -> None:
    with pytest.raises(CallbackError, match=r"Told\.quota_limit answered .*, not None or a number"):
        QUESTION.ask(Told({}, limit))


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(CallbackError) as caught:
        QUESTION.ask(Told("x" * 1_000, None))

    assert len(str(caught.value)) < 250
    assert "xxx…," in str(caught.value)
