"""Another callback takes the place of the one in force: at once, and counters keep what they hold."""

import pytest
from tests.unit.engine.team_callback import TeamCallback

from kvota.callbacks import DefaultQuotaCallback, GroupQuotaCallback
from kvota.engine import Lane, QuotaEngine, QuotaType
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.tags import Tags

P, F = QuotaType.PRODUCE, QuotaType.FETCH
NOW_MS = 1_700_000_000_000
ALICE = QuotaEntity(user="alice")


def default(limit: float = 1000.0) -> DefaultQuotaCallback:
    return DefaultQuotaCallback(ConfiguredQuotas({ALICE: {P: limit}}))


def group(limit: float) -> GroupQuotaCallback:
    callback = GroupQuotaCallback()
    callback.configure({"client.quota.callback.group.all.user.pattern": ".*"})
    callback.update_quota(P, QuotaEntity(user="group:all"), limit)
    return callback


def replace(engine: QuotaEngine, callback: ClientQuotaCallback, *, by_broker: bool = False) -> None:
    engine.replace_callback(callback, by_broker=by_broker, answers={})


def lane(engine: QuotaEngine, user: str = "alice", node_id: int = 1) -> Lane:
    found = engine.lane(P, node_id, user, "c", NOW_MS)
    assert found is not None
    return found


def test_the_next_charge_is_the_new_callbacks() -> None:
    engine = QuotaEngine(default(), {})
    before = lane(engine)
    before.charge(10_001, NOW_MS)
    version = before.version

    replace(engine, group(500.0))

    assert before.version != version  # whoever keeps it looks again
    now = lane(engine)
    assert (now.tags, now.limit, now.peek(NOW_MS)) == ("group=all", 500.0, 0)
    assert engine.quotas == ConfiguredQuotas()


def test_back_again_a_counter_holds_what_it_held() -> None:
    first = default()
    engine = QuotaEngine(first, {})
    before = lane(engine)
    before.charge(20_000, NOW_MS)

    replace(engine, group(500.0))
    lane(engine)
    replace(engine, default(2000.0))

    assert lane(engine) is before
    assert (before.limit, before.peek(NOW_MS)) == (2000.0, 0)
    assert before.charge(2, NOW_MS) == 1


def test_a_new_callback_is_not_asked_about_tags_that_another_one_has_made() -> None:
    class OfTeams(TeamCallback):
        answers_at_once = True

    engine = QuotaEngine(default(), {})
    lane(engine)

    replace(engine, OfTeams(red=5.0))
    lane(engine, "red-1")
    engine.apply([QuotaChange(QuotaEntity(user="red"), P, 7.0)])  # asks for all limits

    assert lane(engine, "red-1").limit == 7.0


def test_who_waits_in_line_looks_again() -> None:
    woken: list[str] = []
    engine = QuotaEngine(default(), {}, {P: BucketSettings()})
    lane(engine).join(lambda: woken.append("alice"))

    replace(engine, group(500.0))

    assert woken == ["alice"]


def test_of_one_that_must_be_asked_what_it_has_answered_already_counts_at_once() -> None:
    callback = TeamCallback(red=1000.0)
    engine = QuotaEngine(default(), {})
    question = engine.question(P, 1, "red-1", "c")

    engine.replace_callback(callback, by_broker=False, answers={question: question.ask(callback)})

    assert (lane(engine, "red-1").tags, lane(engine, "red-1").limit) == ("team=red", 1000.0)
    assert engine.due_questions() == []
    assert engine.lane(P, 1, "red-2", "c", NOW_MS) is None


def test_what_the_old_one_answers_afterwards_is_dropped() -> None:
    old = TeamCallback(red=1000.0)
    engine = QuotaEngine(old, {})
    question = engine.question(P, 1, "red-1", "c")

    replace(engine, TeamCallback(blue=5.0))

    assert not engine.learn(question, question.ask(old))
    assert engine.lane(P, 1, "red-1", "c", NOW_MS) is None


def test_what_was_put_away_comes_back_with_the_new_limit() -> None:
    engine = QuotaEngine(default(), {})
    before = lane(engine)
    before.charge(20_000, NOW_MS)
    counters = engine._counters
    counters._round.remove(before)
    assert counters._packed[P].put(before, 0, asking=counters._askings[P])
    counters._without(before).outdate()

    replace(engine, default(2000.0))

    again = lane(engine)
    assert again is not before
    assert (again.limit, again.charge(2, NOW_MS)) == (2000.0, 1)


# ------------------------------------------------------------------ limits that differ from broker to broker


class ByBroker(TeamCallback):
    """Broker n has n times the limit."""

    def broker_limit(self, quota_type: QuotaType, tags: Tags, node_id: int) -> float | None:
        limit = self.quota_limit(quota_type, tags)
        return None if limit is None else limit * node_id


class ByBrokerAtOnce(ByBroker):
    answers_at_once = True


def test_one_that_answers_at_once_may_have_a_limit_for_each_broker() -> None:
    callback = ByBrokerAtOnce(red=100.0)
    engine = QuotaEngine(callback, {})
    lanes = [lane(engine, "red-1", node_id) for node_id in (1, 2, 3)]
    assert [each.limit for each in lanes] == [100.0, 200.0, 300.0]

    engine.apply([QuotaChange(QuotaEntity(user="red"), P, 10.0)])

    assert [each.limit for each in lanes] == [10.0, 20.0, 30.0]


def test_one_that_must_be_asked_is_asked_for_each_broker() -> None:
    callback = ByBroker(red=100.0)
    engine = QuotaEngine(callback, {})
    for node_id in (1, 2):
        question = engine.question(P, node_id, "red-1", "c")
        engine.learn(question, question.ask(callback))

    assert [lane(engine, "red-1", node_id).limit for node_id in (1, 2)] == [100.0, 200.0]
    assert engine.lane(P, 3, "red-1", "c", NOW_MS) is None
    callback.limits["red"] = 10.0
    engine.reset([P])
    first, second = engine.due_questions()
    engine.learn(second, second.ask(callback))
    assert [lane(engine, "red-1", node_id).limit for node_id in (1, 2)] == [100.0, 20.0]
    assert first.node_id == 1


@pytest.mark.parametrize("quota_type", [QuotaType.CONTROLLER_MUTATION, QuotaType.PRODUCER_ID])
def test_what_counts_for_the_whole_cluster_has_no_broker(quota_type: QuotaType) -> None:
    engine = QuotaEngine(ByBroker(red=100.0), {})

    assert engine.question(quota_type, 3, "red-1", "c").node_id == -1
