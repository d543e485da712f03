"""A quota callback that does not answer at once is asked outside; the request waits for the answer."""

from collections.abc import Callable, Mapping

import pytest
from tests.unit.session.test_mutations import create, created, tell

from kvota.callbacks import ClientQuotaCallback
from kvota.engine import QuotaEngine
from kvota.engine.engine import _KNOWN_CLIENTS_MAX
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.session.caller import ASK_MS_MAX
from kvota.session.pausing import Reason
from kvota.testing.frames import (
    CREATE_TOPICS,
    HEARTBEAT,
    answer,
    fetch,
    fetch_answer,
    parts,
    produce,
    produce_answer,
    request,
)
from kvota.testing.stage import ALL_TYPES, Cluster, Stage, quotas


class OneForAll(ClientQuotaCallback):
    """Everybody shares one counter; it must be asked off the loop."""

    def quota_metric_tags(
        self, quota_type: QuotaType, user: str, client_id: str
    ) -> Mapping[str, str]:
        return {"group": "all"}

    def quota_limit(self, quota_type: QuotaType, tags: Mapping[str, str]) -> float | None:
        return 1_000.0

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None: ...

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None: ...

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        return False


BANDWIDTH_AND_MUTATIONS = ALL_TYPES - {QuotaType.REQUEST}


def asking(enforced: frozenset[QuotaType] = BANDWIDTH_AND_MUTATIONS, **limits: float) -> Stage:
    return Stage(Cluster(quotas(**limits), callback=OneForAll(), enforced=enforced))


def heartbeat(correlation: int) -> bytes:
    return request(HEARTBEAT, 4, correlation=correlation)


def creation() -> bytes:
    topic = {
        "name": "a",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    }
    topics = parts(CREATE_TOPICS, 7, "request", "CreatableTopic", topic)
    return request(CREATE_TOPICS, 7, topics=topics, validate_only=False)


@pytest.mark.parametrize(
    "frame", [produce(), fetch(), creation()], ids=["produce", "fetch", "create"]
)
def test_the_first_request_of_a_client_waits_for_the_callbacks_answer(frame: bytes) -> None:
    stage = asking()

    assert stage.client(heartbeat(1) + frame + heartbeat(3)) == heartbeat(1)
    assert stage.machine.pauses_reading
    ((token, question),) = stage.asked
    assert (question.user, question.client_id) == ("ANONYMOUS", "app")

    forwarded = stage.answer(token, question.ask(OneForAll()))

    assert forwarded != b""
    assert not stage.machine.pausing.reasons & Reason.ASKING


def test_the_answer_decides_whose_counter_is_charged() -> None:
    stage = asking(PRODUCE=5.0)
    stage.client(produce())
    ((token, question),) = stage.asked

    assert stage.answer(token, question.ask(OneForAll())) == produce()
    stage.broker(produce_answer())

    (row,) = stage.cluster.rows
    assert (row.memo.tags, row.memo.limit) == ("group=all", 1_000.0)


def test_a_client_is_asked_about_once() -> None:
    stage = asking()
    stage.client(produce())
    ((token, question),) = stage.asked
    stage.answer(token, question.ask(OneForAll()))

    assert stage.client(produce(correlation=2)) == produce(correlation=2)
    other = Stage(stage.cluster, number=2)
    assert other.client(produce()) == produce()
    assert (len(stage.asked), other.asked) == (1, [])


def test_without_an_answer_in_time_the_client_counts_as_by_the_default_callback() -> None:
    stage = asking(PRODUCE=5_000.0)
    stage.client(produce())

    assert stage.advance(ASK_MS_MAX - 1) == b""
    assert stage.advance(1) == produce()

    stage.broker(produce_answer())
    (row,) = stage.cluster.rows
    assert (row.memo.tags, row.memo.limit) == ("client-id=,user=ANONYMOUS", 5_000.0)


def test_a_callback_that_fails_lets_the_request_go_on_at_once() -> None:
    stage = asking(PRODUCE=5_000.0)
    stage.client(produce())
    ((token, _),) = stage.asked

    assert stage.answer(token, ValueError("no")) == produce()

    stage.broker(produce_answer())
    assert stage.cluster.rows[0].memo.limit == 5_000.0


def test_an_answer_that_comes_too_late_counts_from_then_on() -> None:
    stage = asking(PRODUCE=5_000.0)
    stage.client(produce())
    ((token, question),) = stage.asked
    stage.advance(ASK_MS_MAX)
    stage.broker(produce_answer())

    assert stage.answer(token, question.ask(OneForAll())) == b""
    stage.client(produce(correlation=2))
    stage.broker(produce_answer(correlation=2))

    assert [row.memo.limit for row in stage.cluster.rows] == [5_000.0, 1_000.0]


def test_an_answer_to_an_earlier_question_changes_nothing() -> None:
    stage = asking()
    stage.client(produce())
    ((first, question),) = stage.asked
    stage.advance(ASK_MS_MAX)
    stage.client(fetch(correlation=2))
    assert len(stage.asked) == 2

    assert stage.answer(first, question.ask(OneForAll())) == b""

    assert stage.machine.pausing.reasons & Reason.ASKING


def test_bytes_that_come_while_the_callback_is_asked_are_kept() -> None:
    stage = asking()
    frame = produce(records=b"r" * 40_000)
    assert stage.client(frame[:20_000]) == b""
    assert stage.client(frame[20_000:]) == b""
    ((token, question),) = stage.asked

    assert stage.answer(token, question.ask(OneForAll())) == frame
    assert stage.cluster.shared.budgets.used_bytes == 0


def test_a_fetch_in_flight_is_charged_although_its_client_must_be_asked_about_again() -> None:
    stage = asking()
    stage.client(fetch())
    ((token, question),) = stage.asked
    stage.answer(token, question.ask(OneForAll()))
    stage.cluster.engine.replace_quotas(quotas(FETCH=1))

    assert stage.broker(fetch_answer(records=b"f" * 100)) != b""

    (row,) = stage.cluster.rows
    assert row.memo.tags == "group=all"


def test_such_a_fetch_is_charged_where_its_counter_is_now() -> None:
    """The counter was put away in a crowd, and the callback's answer has been forgotten."""
    stage = asking()
    stage.client(fetch())
    ((token, question),) = stage.asked
    stage.answer(token, question.ask(OneForAll()))
    engine = stage.cluster.engine
    (lane,) = engine._counters.of_type(QuotaType.FETCH)
    engine._counters._round.remove(lane)
    engine._counters._packed[QuotaType.FETCH].put(lane, stage.cluster.now_ms, asking=0)
    engine._counters._without(lane).outdate()
    engine.replace_callback(OneForAll(), by_broker=False, answers={})

    stage.broker(fetch_answer(records=b"f" * 100_000))

    (counted,) = engine._counters.of_type(QuotaType.FETCH)
    now_ms = stage.cluster.now_ms
    assert counted.peek(now_ms) == stage.cluster.rows[0].throttle_ms > 0


def test_the_row_of_such_a_fetch_says_the_limit_that_it_was_held_against() -> None:
    """The law: another client's answer may have changed the limit of the counter meanwhile."""
    stage = asking()
    stage.client(fetch())
    ((token, question),) = stage.asked
    stage.answer(token, question.ask(OneForAll()))
    stage.cluster.engine.replace_quotas(quotas(FETCH=1))
    stage.cluster.engine.set_limit(QuotaType.FETCH, 50.0, tags="group=all")

    stage.broker(fetch_answer(records=b"f" * 1_000))

    (row,) = stage.cluster.rows
    assert row.memo.limit == 50.0
    assert row.throttle_ms > 10_000


def test_a_mutation_goes_on_when_another_callback_comes_in_the_middle_of_it() -> None:
    stage = asking(CONTROLLER_MUTATION=7.0)
    stage.client(create(("a", 1)))
    ((token, asked),) = stage.asked
    question = stage.answer(token, asked.ask(OneForAll()))
    stage.cluster.shared.replace_callback(OneForAll(), by_broker=False, answers={})

    tell(stage, question)
    stage.broker(created(("a", 0, 1)))

    (row,) = stage.cluster.rows
    assert row.memo.limit == 7.0  # as by the default callback: there was no time to ask
    assert stage.closed == ""


def _is_replaced(engine: QuotaEngine) -> None:
    engine.replace_callback(OneForAll(), by_broker=False, answers={})


def _is_pushed_out(engine: QuotaEngine) -> None:
    """By the answers about so many other clients as are remembered."""
    for number in range(_KNOWN_CLIENTS_MAX):
        whose = QuotaType.CONTROLLER_MUTATION, CLUSTER_NODE_ID, "ANONYMOUS", f"crowd-{number}"
        question = engine.question(*whose)
        engine.learn(question, question.ask(OneForAll()))
        engine.lane(*whose, now_ms=0)


@pytest.mark.parametrize("forget", [_is_replaced, _is_pushed_out])
@pytest.mark.parametrize("is_answered", [True, False])
def test_what_is_charged_afterwards_needs_no_answer_that_is_still_remembered(
    forget: Callable[[QuotaEngine], None], is_answered: bool
) -> None:
    stage = asking(CONTROLLER_MUTATION=7.0)
    stage.client(create(("a", 1), ("b", 9)))
    ((token, asked),) = stage.asked
    question = stage.answer(token, asked.ask(OneForAll()))
    tell(stage, question, ("b", 0, 3))  # so "b" ought to fail
    forget(stage.cluster.engine)

    if is_answered:
        assert stage.broker(created(("a", 0, 1), ("b", 0, 9))) != b""
    stage.end()

    assert sorted(row.value for row in stage.cluster.rows) == [1, 9]


def test_what_is_charged_afterwards_is_recorded_on_the_counter_that_it_is_charged_on() -> None:
    stage = asking(CONTROLLER_MUTATION=7.0)
    stage.client(create(("a", 1), ("b", 9)))
    ((token, asked),) = stage.asked
    question = stage.answer(token, asked.ask(OneForAll()))
    tell(stage, question, ("b", 0, 3))
    _is_replaced(stage.cluster.engine)

    stage.broker(created(("a", 0, 1), ("b", 0, 9)))

    before, afterwards = sorted(stage.cluster.rows, key=lambda row: row.value)
    assert (before.memo.tags, before.memo.limit) == ("group=all", 1_000.0)
    assert (afterwards.memo.tags, afterwards.memo.limit) == ("client-id=,user=ANONYMOUS", 7.0)


def test_a_question_to_a_callback_that_is_not_in_force_any_more_is_asked_anew() -> None:
    stage = asking(PRODUCE=5_000.0)
    stage.client(produce())
    ((token, _),) = stage.asked
    stage.cluster.shared.replace_callback(OneForAll(), by_broker=False, answers={})

    assert stage.answer(token, None) == b""

    (_, (token, question)) = stage.asked
    assert stage.answer(token, question.ask(OneForAll())) == produce()
    stage.broker(produce_answer())
    assert stage.cluster.rows[0].memo.limit == 1_000.0


def test_answers_to_fetches_do_not_ask_again_while_a_question_is_open() -> None:
    stage = asking()
    stage.client(fetch(correlation=1))
    ((token, question),) = stage.asked
    stage.answer(token, question.ask(OneForAll()))
    stage.cluster.enforce(frozenset())  # so that two are under way
    stage.client(fetch(correlation=1) + fetch(correlation=2))
    stage.cluster.engine.replace_callback(OneForAll(), by_broker=False, answers={})

    stage.broker(fetch_answer(correlation=1))
    stage.broker(fetch_answer(correlation=1))
    stage.advance(ASK_MS_MAX // 2)
    stage.broker(fetch_answer(correlation=2))

    assert len(stage.asked) == 2
    stage.advance(ASK_MS_MAX // 2)
    assert not stage.machine.pausing.reasons & Reason.ASKING


def test_what_the_time_of_requests_costs_is_asked_behind_other_questions() -> None:
    stage = asking(ALL_TYPES)
    stage.step_ns = 5_000_000
    stage.client(heartbeat(1))
    stage.client(produce(correlation=2))
    ((token, question),) = stage.asked
    assert question.quota_type is QuotaType.PRODUCE

    stage.broker(answer(HEARTBEAT, 4, correlation=1))
    assert len(stage.asked) == 1
    stage.answer(token, question.ask(OneForAll()))
    stage.broker(produce_answer(correlation=2))
    assert [question.quota_type for _, question in stage.asked] == [
        QuotaType.PRODUCE,
        QuotaType.REQUEST,
    ]

    stage.answer(stage.asked[1][0], stage.asked[1][1].ask(OneForAll()))
    stage.client(heartbeat(3))
    stage.broker(answer(HEARTBEAT, 4, correlation=3))
    of_types = [row.memo.quota_type for row in stage.cluster.rows]
    assert of_types[0] is QuotaType.PRODUCE
    assert set(of_types[1:]) == {QuotaType.REQUEST}
    assert len(stage.asked) == 2


def test_a_mute_goes_on_beside_a_question() -> None:
    stage = asking()
    stage.client(heartbeat(1))
    stage.broker(answer(HEARTBEAT, 4, correlation=1))
    stage.machine.pausing.mute(ASK_MS_MAX * 3)
    stage.client(b"")

    assert stage.client(produce()) == b""
    assert stage.advance(ASK_MS_MAX * 2) == b""
    stage.look_again()
    assert stage.advance(ASK_MS_MAX) == b""
    assert len(stage.asked) == 1
