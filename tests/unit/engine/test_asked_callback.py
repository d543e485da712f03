"""A callback that does not answer at once: its answers are brought, remembered and asked for again."""

import pytest
from tests.unit.engine.team_callback import TeamCallback

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Lane, QuotaEngine, QuotaType
from kvota.engine.engine import _KNOWN_CLIENTS_MAX
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.event import Outcome
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.tags import Tags

P, F, M = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.CONTROLLER_MUTATION
NOW_MS = 1_700_000_000_000


def ask(engine: QuotaEngine, user: str, quota_type: QuotaType = P) -> None:
    """What the gateway does on another thread, and with its result."""
    question = engine.question(quota_type, 1, user, "c")
    engine.learn(question, question.ask(engine.callback))


def lane(engine: QuotaEngine, user: str, quota_type: QuotaType = P, node_id: int = 1) -> Lane:
    found = engine.lane(quota_type, node_id, user, "c", NOW_MS)
    assert found is not None
    return found


def test_a_client_nobody_has_asked_about_has_no_lane_yet() -> None:
    callback = TeamCallback(red=1000.0)
    engine = QuotaEngine(callback, {})

    assert engine.lane(P, 1, "red-1", "c", NOW_MS) is None
    assert not engine.is_known(P, 1, "red-1", "c")
    assert callback.asked == []  # not on this thread


def test_an_answer_is_remembered_for_all_brokers_of_this_type() -> None:
    callback = TeamCallback(red=1000.0)
    engine = QuotaEngine(callback, {})

    ask(engine, "red-1")

    assert engine.is_known(P, 1, "red-1", "c")
    assert not engine.is_known(F, 1, "red-1", "c")
    assert engine.lane(F, 1, "red-1", "c", NOW_MS) is None
    assert [lane(engine, "red-1", node_id=node_id).limit for node_id in (1, 2)] == [1000.0] * 2
    assert callback.asked == ["red-1"]


def test_clients_with_equal_tags_share_a_counter() -> None:
    engine = QuotaEngine(TeamCallback(red=1000.0), {})
    for user in ("red-1", "red-2", "blue-1"):
        ask(engine, user)

    lane(engine, "red-1").charge(10_001, NOW_MS)

    assert lane(engine, "red-2") is lane(engine, "red-1")
    assert lane(engine, "red-2").peek(NOW_MS) == 1
    assert (lane(engine, "blue-1").tags, lane(engine, "blue-1").limit) == ("team=none", None)


def test_after_a_reset_it_is_due_again_and_the_last_answer_counts_until_then() -> None:
    callback = TeamCallback(red=1000.0)
    engine = QuotaEngine(callback, {})
    ask(engine, "red-1")
    ask(engine, "red-1", F)
    old = lane(engine, "red-1")
    version, fetch_version = old.version, lane(engine, "red-1", F).version
    assert engine.due_questions() == []
    callback.limits["red"] = 500.0
    callback.resets.add(P)

    engine.refresh()
    engine.refresh()

    assert old.version == version + 1
    assert lane(engine, "red-1", F).version == fetch_version
    assert lane(engine, "red-1") is old
    assert [old.charge(10_000, NOW_MS), old.limit] == [0, 1000.0]
    (due,) = engine.due_questions()
    assert engine.learn(due, due.ask(callback))
    assert lane(engine, "red-1") is old
    assert (old.limit, old.peek(NOW_MS)) == (500.0, 10_000)
    assert engine.due_questions() == []


def test_a_configured_quota_that_changes_makes_it_due_again_too() -> None:
    engine = QuotaEngine(TeamCallback(), {})
    ask(engine, "red-1")
    before = lane(engine, "red-1")
    version = before.version

    engine.apply([QuotaChange(QuotaEntity(user="red"), P, 70.0)])
    meanwhile = lane(engine, "red-1")
    ask(engine, "red-1")

    assert before.version != version
    assert meanwhile is before
    assert (lane(engine, "red-1").tags, lane(engine, "red-1").limit) == ("team=red", 70.0)
    assert before.tags == "team=none"


def test_an_answer_from_before_a_reset_counts_where_there_is_no_other_and_is_due_again() -> None:
    callback = TeamCallback(red=1000.0)
    engine = QuotaEngine(callback, {})
    question = engine.question(P, 1, "red-1", "c")
    late = question.ask(callback)
    callback.resets.add(P)
    callback.limits["red"] = 500.0
    engine.refresh()

    engine.learn(question, late)

    assert lane(engine, "red-1").limit == 1000.0
    (due,) = engine.due_questions()
    engine.learn(due, due.ask(callback))
    assert not engine.learn(question, late)  # it comes once more, and too late
    assert lane(engine, "red-1").limit == 500.0


def test_what_another_callback_answers_is_due_until_the_one_in_force_has_answered() -> None:
    callback = TeamCallback(red=1000.0)
    engine = QuotaEngine(callback, {})
    question = engine.question(P, 1, "red-1", "c")

    engine.learn_default(question, DefaultQuotaCallback())
    assert engine.due_questions() == [question]
    engine.learn(question, question.ask(callback))

    assert engine.due_questions() == []
    engine.learn_default(question, DefaultQuotaCallback())
    assert lane(engine, "red-1").limit == 1000.0


def test_what_another_callback_answers_follows_its_quotas() -> None:
    engine = QuotaEngine(TeamCallback(), {})
    default = DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user=DEFAULT): {P: 10.0}}))
    question = engine.question(P, 1, "red-1", "c")
    engine.learn_default(question, default)
    assert lane(engine, "red-1").limit == 10.0

    default.update_quota(P, QuotaEntity(user=DEFAULT), 20.0)
    engine.learn_default(question, default)

    assert lane(engine, "red-1").limit == 20.0


class LikeKafka(TeamCallback):
    """Tags are those of Kafka's own rules, limits are not."""

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        return {"user": user.partition("-")[0], "client-id": ""}

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        return 5.0


def test_where_tags_collide_with_those_of_a_fallback_the_callbacks_own_limit_wins() -> None:
    default = DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user=DEFAULT): {P: 10.0}}))
    callback = LikeKafka()
    engine = QuotaEngine(callback, {})
    engine.learn_default(engine.question(P, 1, "red", "c"), default)
    first = lane(engine, "red")
    assert (first.tags, first.limit) == ("client-id=,user=red", 10.0)

    ask(engine, "red-1")
    shared = lane(engine, "red-1")
    engine.learn_default(engine.question(P, 1, "red", "x"), default)
    again = engine.lane(P, 1, "red", "x", NOW_MS)

    assert shared is first
    assert again is first
    assert first.limit == 5.0


def test_without_an_answer_in_time_another_callback_decides_until_there_is_one() -> None:
    callback = TeamCallback(red=1000.0)
    default = DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user=DEFAULT): {P: 10.0}}))
    engine = QuotaEngine(callback, {})
    question = engine.question(P, 1, "red-1", "c")

    engine.learn_default(question, default)
    meanwhile = lane(engine, "red-1")
    version = meanwhile.version
    engine.learn(question, question.ask(callback))

    assert (meanwhile.tags, meanwhile.limit) == ("client-id=,user=red-1", 10.0)
    assert meanwhile.version != version  # whoever kept it looks again
    assert (lane(engine, "red-1").tags, lane(engine, "red-1").limit) == ("team=red", 1000.0)


def test_what_another_callback_says_is_remembered_even_after_a_reset() -> None:
    callback = TeamCallback(red=1000.0)
    engine = QuotaEngine(callback, {})
    question = engine.question(P, 1, "red-1", "c")
    callback.resets.add(P)
    engine.refresh()

    engine.learn_default(question, DefaultQuotaCallback())

    # Else a callback that is reset faster than it answers would hold its clients up for ever.
    assert lane(engine, "red-1").limit is None


def test_the_same_answer_again_outdates_nothing() -> None:
    engine = QuotaEngine(TeamCallback(red=1000.0), {})
    ask(engine, "red-1")
    ask(engine, "red-2")
    kept, version = lane(engine, "red-1"), lane(engine, "red-1").version

    ask(engine, "red-1")

    assert (lane(engine, "red-1"), kept.version) == (kept, version)


def test_an_answer_sets_the_limit_of_all_who_share_its_tags() -> None:
    callback = TeamCallback(red=1000.0)
    engine = QuotaEngine(callback, {})
    ask(engine, "red-1")
    ask(engine, "red-2")
    woken: list[str] = []
    lane(engine, "red-1").waiting_line().join(lambda: woken.append("red"))
    callback.limits["red"] = 300.0

    ask(engine, "red-2")

    assert lane(engine, "red-1").limit == 300.0
    assert woken == ["red"]


def test_one_that_is_not_enabled_has_its_charges_observed() -> None:
    callback = TeamCallback(red=1000.0)
    callback.is_enabled = False
    engine = QuotaEngine(callback, {})
    ask(engine, "red-1")

    observing = lane(engine, "red-1")

    assert (observing.samples, observing.tags) == (0, "team=red")
    callback.is_enabled = True
    callback.resets.add(P)
    engine.refresh()
    ask(engine, "red-1")
    assert observing.version == 1
    assert lane(engine, "red-1").samples == 11


def test_mutations_take_the_same_way() -> None:
    callback = TeamCallback(red=1.0)
    engine = QuotaEngine(callback, {})
    with pytest.raises(LookupError):
        engine.mutations("red-1", "c", strict=True, now_ms=NOW_MS)

    ask(engine, "red-1", M)
    engine.mutations("red-1", "c", strict=True, now_ms=NOW_MS).charge(12, NOW_MS)
    callback.resets.add(M)
    engine.refresh()

    assert engine.is_known(M, 1, "red-1", "c")
    refused = engine.mutations("red-1", "c", strict=True, now_ms=NOW_MS).charge(1, NOW_MS)
    assert (refused.outcome, refused.throttle_ms) == (Outcome.REJECTED, 1_000)
    assert [due.quota_type for due in engine.due_questions()] == [M]


def test_remembered_answers_have_an_end() -> None:
    engine = QuotaEngine(TeamCallback(red=1.0), {})

    for number in range(_KNOWN_CLIENTS_MAX + 1):
        ask(engine, f"red-{number}")

    assert len(engine._answers) == _KNOWN_CLIENTS_MAX
    assert engine.is_known(P, 1, f"red-{_KNOWN_CLIENTS_MAX}", "c")
    assert not engine.is_known(P, 1, "red-0", "c")


def test_whoever_answers_at_once_knows_everybody() -> None:
    engine = QuotaEngine(DefaultQuotaCallback(), {})

    assert engine.is_known(P, 1, "anybody", "c")
    assert engine.lane(P, 1, "anybody", "c", NOW_MS) is not None
