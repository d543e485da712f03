"""What the admin client says of each topic is true, whatever becomes of its requests."""

import re
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.admin.brokers import Brokers, Turn, two_brokers

from kvota.admin import (
    AdminClient,
    ApiTimeoutError,
    BrokerError,
    ClientQuotaAlteration,
    NewPartitions,
    NewTopic,
    OutcomeUnknownError,
    Patience,
    QuotaEntity,
    ThrottlingQuotaExceededError,
    UsageError,
)
from kvota.client import Cluster
from kvota.testing.frames import CREATE_TOPICS, topic_id

EXISTS, NOT_CONTROLLER, THROTTLED, TIMED_OUT, INVALID, NO_TOPIC = 36, 41, 89, 7, 37, 3
PATIENT = Patience(
    request_timeout_ms=5_000,
    default_api_timeout_ms=15_000,
    retry_backoff_ms=5,
    retry_backoff_max_ms=20,
)
LOST = Turn(then="leaves")
NEVER_CAME = Turn(is_carried_out=False, then="leaves")


def admin_of(brokers: Brokers) -> AdminClient:
    return AdminClient(brokers.bootstrap_servers, patience=PATIENT)


def topics(*names: str) -> list[NewTopic]:
    return [NewTopic(name, 1, 1) for name in names]


def throttled(*names: str, ms: int) -> Turn:
    return Turn(codes=dict.fromkeys(names, THROTTLED), throttle_ms=ms)


async def test_only_throttled_topics_are_asked_for_again_after_their_wait() -> None:
    turns = [throttled("b", "c", ms=120), throttled("c", ms=60)]
    async with two_brokers(*turns) as brokers, admin_of(brokers) as admin:
        results = await admin.create_topics(topics("a", "b", "c"))

        assert list(results.all()) == ["a", "b", "c"]
        assert [names for _, _, names in brokers.asked] == [["a", "b", "c"], ["b", "c"], ["c"]]
        first, second, third = brokers.asked_at_s
        assert second - first >= 0.12
        assert third - second >= 0.06


async def test_without_retry_a_throttled_topic_says_so_at_once_and_the_others_are_done() -> None:
    async with two_brokers(throttled("b", ms=11_900)) as brokers, admin_of(brokers) as admin:
        results = await admin.create_topics(topics("a", "b"), retry_on_quota_violation=False)

        assert list(results.values) == ["a"]
        refused = results.exception("b")
        assert isinstance(refused, ThrottlingQuotaExceededError)
        assert (refused.code, refused.throttle_time_ms) == (THROTTLED, 11_900)
        assert str(refused) == (
            'topic "b" cannot be created: throttling_quota_exceeded (89): '
            "The throttling quota has been exceeded; wait 11.9 s"
        )
        with pytest.raises(ThrottlingQuotaExceededError):
            results.all()
        assert len(brokers.asked) == 1


async def test_when_time_is_up_the_rest_of_the_wait_is_told() -> None:
    async with two_brokers(throttled("b", ms=15_000)) as brokers, admin_of(brokers) as admin:
        results = await admin.create_topics(topics("a", "b"), timeout_ms=2_000)

        refused = results.exception("b")
        assert isinstance(refused, ThrottlingQuotaExceededError)
        assert 0 < refused.throttle_time_ms < 15_000
        assert list(results.values) == ["a"]
        assert len(brokers.asked) == 1


async def test_a_wait_that_is_rounded_to_nothing_is_no_busy_loop() -> None:
    turns = [throttled("a", ms=0)] * 4
    async with two_brokers(*turns) as brokers, admin_of(brokers) as admin:
        (await admin.create_topics(topics("a"))).all()

        begin, *others = brokers.asked_at_s
        assert others[-1] - begin >= 0.004 + 0.008 + 0.016 + 0.016


async def test_others_are_not_asked_while_the_broker_does_not_listen() -> None:
    async with two_brokers(throttled("a", ms=2_500)) as brokers, admin_of(brokers) as admin:
        refused = await admin.create_topics(topics("a"), retry_on_quota_violation=False)
        assert "a" in refused.errors

        late = await admin.create_topics(topics("b"), timeout_ms=100)
        error = late.exception("b")
        assert isinstance(error, ApiTimeoutError)  # known not to have been carried out
        assert re.search(r"does not listen for [0-2]\.\d s more", str(error))
        assert (await admin.create_topics(topics("b"))).all()
        assert brokers.asked_at_s[1] - brokers.asked_at_s[0] >= 2.5


async def test_who_is_the_controller_no_more_names_another() -> None:
    async with two_brokers(Turn(everybody=NOT_CONTROLLER)) as brokers, admin_of(brokers) as admin:
        brokers.controller_id = 2
        (await admin.create_topics(topics("a"))).all()

        assert [node for node, _, _ in brokers.asked] == [1, 2]


async def test_a_request_that_never_came_is_sent_again() -> None:
    async with two_brokers(NEVER_CAME) as brokers, admin_of(brokers) as admin:
        (await admin.create_topics(topics("a"))).all()

        assert list(brokers.cluster.topics) == ["a"]


async def test_a_topic_that_an_unanswered_try_may_have_created_is_neither_done_nor_refused() -> (
    None
):
    async with two_brokers(LOST) as brokers, admin_of(brokers) as admin:
        results = await admin.create_topics(topics("a"))

        error = results.exception("a")
        assert isinstance(error, OutcomeUnknownError)
        assert "unknown; it may have been carried out" in str(error)
        assert "topic_already_exists (36)" in str(error)
        assert list(brokers.cluster.topics) == ["a"]


async def test_a_throttled_topic_that_an_unanswered_try_may_have_created_is_in_doubt() -> None:
    turns = [LOST, throttled("a", ms=11_900)]
    async with two_brokers(*turns) as brokers, admin_of(brokers) as admin:
        results = await admin.create_topics(topics("a"), retry_on_quota_violation=False)

        error = results.exception("a")
        assert isinstance(error, OutcomeUnknownError)
        assert "an earlier try was not answered; then: " in str(error)
        assert "throttling_quota_exceeded (89)" in str(error)
        assert list(brokers.cluster.topics) == ["a"]


@pytest.mark.parametrize(
    "topic",
    [
        NewTopic(None, 1, 1),  # type: ignore[arg-type]
        NewTopic("a", "1", 1),  # type: ignore[arg-type]
        NewTopic("a", 2**31, 1),
        NewTopic("a", 1, 2**15),
        NewTopic("a", replica_assignments={0: ["1"]}),  # type: ignore[list-item]
        NewTopic("a", 1, 1, configs={"retention.ms": 5}),  # type: ignore[dict-item]
        NewTopic("\ud800", 1, 1),
    ],
    ids=repr,
)
async def test_a_topic_that_cannot_be_said_is_refused_and_nothing_is_sent(topic: NewTopic) -> None:
    async with two_brokers() as brokers, admin_of(brokers) as admin:
        with pytest.raises(UsageError):
            await admin.create_topics([topic])

        assert not brokers.cluster.topics


async def test_a_topic_that_was_there_before_is_refused() -> None:
    async with two_brokers() as brokers, admin_of(brokers) as admin:
        brokers.cluster.topics["a"] = 1
        error = (await admin.create_topics(topics("a"))).exception("a")

        assert isinstance(error, BrokerError)
        assert error.code == EXISTS


async def test_only_what_was_asked_in_the_lost_try_is_in_doubt() -> None:
    turns = [throttled("b", "c", ms=10), LOST, Turn(codes={"c": 44})]
    async with two_brokers(*turns) as brokers, admin_of(brokers) as admin:
        brokers.cluster.topics["z"] = 1
        results = await admin.create_topics(topics("a", "b", "c", "z"))

        assert list(results.values) == ["a"]
        kinds = {name: type(error) for name, error in results.errors.items()}
        # A policy refuses at every try; that b is there now may be of the try before.
        assert kinds == {"b": OutcomeUnknownError, "c": BrokerError, "z": BrokerError}


async def test_who_is_let_in_no_more_still_says_what_is_not_known() -> None:
    async with two_brokers(Turn(then="leaves")) as brokers, admin_of(brokers) as admin:
        await admin.start()
        brokers.refusing = int(ErrorCode.cluster_authorization_failed)

        results = await admin.create_topics(topics("a"))

        error = results.exception("a")
        assert isinstance(error, OutcomeUnknownError)
        assert "cluster_authorization_failed" in str(error)
        assert "a" in brokers.cluster.topics


async def test_silence_until_the_end_is_not_known() -> None:
    silent = Turn(then="is silent")
    # Only the mutations are not waited for: a cluster of its own is patient where brokers do answer.
    quick = replace(PATIENT, request_timeout_ms=200)
    async with (
        two_brokers(*[silent] * 20) as brokers,
        AdminClient.of(Cluster(brokers.bootstrap_servers), patience=quick) as admin,
    ):
        results = await admin.create_topics(topics("a", "b"), timeout_ms=500)

        assert {type(error) for error in results.errors.values()} == {OutcomeUnknownError}
        assert "has not answered create_topics" in str(results.exception("a"))


async def test_a_timeout_that_the_broker_tells_is_not_known_either() -> None:
    async with two_brokers(Turn(codes={"a": TIMED_OUT})) as brokers, admin_of(brokers) as admin:
        results = await admin.create_topics(topics("a", "b"))

        assert isinstance(results.exception("a"), OutcomeUnknownError)
        assert list(results.values) == ["b"]


async def test_nobody_there_is_known_not_to_have_done_it() -> None:
    async with two_brokers() as brokers:
        servers = brokers.bootstrap_servers
        admin = admin_of(brokers)
        await admin.start()
    await admin.close()

    results = await AdminClient(servers, patience=PATIENT).create_topics(
        topics("a"), timeout_ms=1500
    )
    assert type(results.exception("a")) is ApiTimeoutError
    assert "cannot be reached" in str(results.exception("a"))


async def test_a_deletion_by_name_is_not_sent_twice() -> None:
    async with two_brokers(LOST) as brokers, admin_of(brokers) as admin:
        brokers.cluster.topics |= {"a": 1}
        results = await admin.delete_topics(["a"])

        assert isinstance(results.exception("a"), OutcomeUnknownError)
        assert len(brokers.asked) == 1


async def test_a_deletion_by_id_is_sent_again_and_what_is_gone_is_in_doubt() -> None:
    async with two_brokers(NEVER_CAME, LOST) as brokers, admin_of(brokers) as admin:
        brokers.cluster.topics |= {"a": 1, "b": 1}
        by_id = await admin.delete_topics([topic_id("a")])

        assert isinstance(by_id.exception(topic_id("a")), OutcomeUnknownError)
        assert list(brokers.cluster.topics) == ["b"]
        assert len(brokers.asked) == 3


async def test_a_topic_that_an_unanswered_try_may_have_grown_is_in_doubt() -> None:
    async with two_brokers(LOST) as brokers, admin_of(brokers) as admin:
        brokers.cluster.topics |= {"a": 1}
        grown = await admin.create_partitions({"a": NewPartitions(3)})

        assert isinstance(grown.exception("a"), OutcomeUnknownError)
        again = await admin.create_partitions({"a": NewPartitions(3)})
        assert getattr(again.exception("a"), "code", 0) == INVALID


async def test_throttled_deletions_and_growths_are_tried_again() -> None:
    async with two_brokers(throttled("b", ms=20)) as brokers, admin_of(brokers) as admin:
        brokers.cluster.topics |= {"a": 1, "b": 1}
        (await admin.delete_topics(["a", "b"])).all()
        assert not brokers.cluster.topics

        brokers.cluster.topics |= {"c": 1, "d": 1}
        brokers.turns.append(throttled("d", ms=20))
        (await admin.create_partitions({"c": NewPartitions(2), "d": NewPartitions(2)})).all()
        assert brokers.cluster.topics == {"c": 2, "d": 2}


async def test_an_answer_that_leaves_a_topic_out_is_no_success() -> None:
    async with two_brokers() as brokers, admin_of(brokers) as admin:
        brokers.versions[CREATE_TOPICS] = 7
        await admin.create_topics(topics("x"))
        left_out = _Forgetful(brokers)
        with left_out:
            results = await admin.create_topics(topics("a", "b"))

        assert list(results.values) == ["a"]
        assert isinstance(results.exception("b"), OutcomeUnknownError)
        assert "does not name it" in str(results.exception("b"))


class _Forgetful:
    """The cluster's outcomes without their last one."""

    def __init__(self, brokers: Brokers) -> None:
        self._cluster = brokers.cluster
        self._create = brokers.cluster.create

    def __enter__(self) -> None:
        create = self._create
        self._cluster.create = (  # type: ignore[method-assign]
            lambda changes, *, validate_only=False: create(changes, validate_only=validate_only)[
                :-1
            ]
        )

    def __exit__(self, *_: object) -> None:
        self._cluster.create = self._create  # type: ignore[method-assign]


async def test_brokers_that_are_too_old_are_named_and_nothing_is_sent() -> None:
    async with two_brokers() as brokers:
        del brokers.versions[49]
        brokers.versions[20] = 5
        async with admin_of(brokers) as admin:
            alteration = ClientQuotaAlteration(QuotaEntity(user="a"), {"producer_byte_rate": 1.0})
            with pytest.raises(UsageError, match="does not offer it: alter_client_quotas"):
                await admin.alter_client_quotas([alteration])
            by_id = await admin.delete_topics([topic_id("a")])
            assert "too old to delete topics by id (Kafka 2.8)" in str(
                by_id.exception(topic_id("a"))
            )
        assert not brokers.asked
