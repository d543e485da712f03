"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs where the gateway has settings of its own."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.session.test_client_quotas import (
    CLIENT_HOST,
    FINE,
    NOT_ALLOWED,
    broker_acls,
    broker_altered,
)

from kvota.model.broker_settings import DescribedSetting, Kind, Source
from kvota.model.errors import ProtocolError
from kvota.session.outside import AlterSettings, Refusal
from kvota.testing.frames import HEARTBEAT, answer, decoded, parts, request, split
from kvota.testing.kafka_messages import versions
from kvota.testing.stage import Cluster, Stage
from kvota.wire.apis import ALTER_CLIENT_QUOTAS
from kvota.wire.permission_questions import alter_nothing
from kvota.wire.questions import OWN_CORRELATION, describe_broker_configs

LEGACY, INCREMENTAL, DESCRIBE = 33, 44, 32
BROKER, TOPIC = 4, 2
ALL, ONE, ORDERS = (BROKER, ""), (BROKER, "1"), (TOPIC, "orders")
NUM, SIZE, THREADS = "quota.window.num", "quota.window.size.seconds", "background.threads"
INVALID, POLICY = 42, 44
BOTH = pytest.mark.parametrize("key", [LEGACY, INCREMENTAL])
Resource = tuple[tuple[int, str], dict[str, str | None]]


@dataclass
class Settings:
    """Settings that may be altered, unless there is a refusal."""

    stored: dict[str, str] = field(default_factory=dict)
    refusal: Refusal | None = None
    may_lag: bool = False

    @property
    def described(self) -> Sequence[DescribedSetting]:
        return [
            DescribedSetting(
                name=name,
                kind=Kind.INT,
                values=((Source.DYNAMIC_DEFAULT_BROKER_CONFIG, value),),
            )
            for name, value in self.stored.items()
        ]


def stage(*, refusal: Refusal | None = None, may_lag: bool = False, **stored: str) -> Stage:
    cluster = Cluster()
    names = {"num": NUM, "size": SIZE}
    cluster.shared.broker_settings = Settings(
        {names[name]: value for name, value in stored.items()}, refusal, may_lag
    )
    on = Stage(cluster)
    on.machine.caller.upstream_versions = {ALTER_CLIENT_QUOTAS: (0, 1)}
    return on


def asked(key: int, *resources: Resource, validate_only: bool = False, **more: Any) -> bytes:
    """None: the setting is deleted."""
    rows = []
    for (of_type, name), settings in resources:
        configs = [
            {"name": each, "value": value}
            | ({"config_operation": int(value is None)} if key == INCREMENTAL else {})
            for each, value in settings.items()
        ]
        made = parts(key, 1, "request", "AlterableConfig", *configs)
        rows.append({"resource_type": of_type, "resource_name": name, "configs": made})
    made = parts(key, 1, "request", "AlterConfigsResource", *rows)
    return request(key, 1, resources=made, validate_only=validate_only, **more)


def answered(key: int, *results: tuple[tuple[int, str], int, str | None], **more: Any) -> bytes:
    """What the broker answers."""
    rows = [
        {
            "resource_type": of_type,
            "resource_name": name,
            "error_code": ErrorCode(code),
            "error_message": words,
        }
        for (of_type, name), code, words in results
    ]
    made = parts(key, 1, "response", "AlterConfigsResourceResponse", *rows)
    return answer(key, 1, responses=made, **more)


def results_of(frame: bytes, key: int) -> list[tuple[tuple[int, str], int, str | None]]:
    return [
        ((each.resource_type, each.resource_name), int(each.error_code), each.error_message)
        for each in decoded(frame, key, 1).responses
    ]


def allowed(on: Stage, frame: bytes) -> None:
    """Talk as far as a cluster with an authorizer allows."""
    assert on.client(frame) == alter_nothing(OWN_CORRELATION)
    on.broker(broker_altered(FINE, version=0))
    on.broker(broker_acls(NOT_ALLOWED))  # it has one; this caller may not see its rules


# ------------------------------------------------------------------ what passes


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key in (LEGACY, INCREMENTAL) for version in versions(key)],
)
def test_what_is_not_the_gateways_passes_byte_for_byte(key: int, version: int) -> None:
    on = stage(num="5")
    operation = {"config_operation": 0} if key == INCREMENTAL else {}
    configs = parts(
        key, version, "request", "AlterableConfig", {"name": NUM, "value": "7", **operation}
    )
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs}
    resources = parts(key, version, "request", "AlterConfigsResource", resource)
    frame = request(key, version, resources=resources, validate_only=False, correlation=5)

    assert on.client(frame) == frame


@BOTH
def test_without_settings_of_its_own_all_passes(key: int) -> None:
    on = Stage(Cluster())
    frame = asked(key, (ALL, {NUM: "5", THREADS: "3"}), correlation=5)

    assert on.client(frame) == frame


@pytest.mark.parametrize("size", [1, 1000])
def test_a_request_with_nothing_of_the_gateways_is_not_looked_into(size: int) -> None:
    on = stage(num="5")
    frame = asked(INCREMENTAL, *[((BROKER, ""), {THREADS: "3"})] * size, correlation=5)

    assert on.client(frame) == frame


# ------------------------------------------------------------------ what is altered


@BOTH
def test_what_the_cluster_allows_is_altered_and_then_answered(key: int) -> None:
    on = stage()
    beat = request(HEARTBEAT, 3, correlation=6)

    allowed(on, asked(key, (ALL, {NUM: "5"}), correlation=5) + beat)
    if key == LEGACY:  # which has all that is to be there
        told = {"resource_type": BROKER, "resource_name": "", "configs": (), "error_message": None}
        told |= {"error_code": ErrorCode(0)}
        results = parts(DESCRIBE, 1, "response", "DescribeConfigsResult", told)
        on.broker(answer(DESCRIBE, 1, results=results, correlation=OWN_CORRELATION))

    by = f"ANONYMOUS from {CLIENT_HOST}"
    assert on.errands == [AlterSettings({NUM: "5"}, False, by)]
    assert on.to_client == b""
    on.tell(None)
    assert results_of(on.to_client, key) == [(ALL, 0, None)]
    assert on.to_client[4:8] == (5).to_bytes(4, "big")
    assert split(on.to_broker)[-1] == beat


def test_who_has_not_the_right_alters_nothing() -> None:
    on = stage()
    on.client(asked(INCREMENTAL, (ALL, {NUM: "5"})))

    on.broker(broker_altered(("", NOT_ALLOWED, "Cluster authorization failed."), version=0))  # type: ignore[arg-type]

    assert not on.errands
    assert results_of(on.to_client, INCREMENTAL) == [
        (ALL, NOT_ALLOWED, "Cluster authorization failed.")
    ]


def test_a_validation_is_one() -> None:
    on = stage()

    allowed(on, asked(INCREMENTAL, (ALL, {NUM: "5"}), validate_only=True))

    (errand,) = on.errands
    assert isinstance(errand, AlterSettings)
    assert errand.validate_only


@BOTH
def test_what_cannot_be_done_is_answered_with_the_reason(key: int) -> None:
    on = stage(num="4", refusal=Refusal(POLICY, "written by people"))

    allowed(on, asked(key, (ALL, {NUM: "5"})))

    assert not on.errands
    assert results_of(on.to_client, key) == [(ALL, POLICY, "written by people")]


def test_a_refused_errand_is_the_resources_answer() -> None:
    on = stage()
    allowed(on, asked(INCREMENTAL, (ALL, {NUM: "5"})))

    on.tell(Refusal(-1, "the disk is full"))

    assert results_of(on.to_client, INCREMENTAL) == [(ALL, -1, "the disk is full")]


@pytest.mark.parametrize("settings", [{"a" * 12: ""}, dict.fromkeys(map(str, range(9_000)), "")])
def test_memory_is_weighed_while_a_request_is_looked_into(settings: dict[str, str | None]) -> None:
    frame = asked(INCREMENTAL, (ALL, {NUM: "5", **settings}), correlation=5)
    allowed(stage(), asked(INCREMENTAL, (ALL, {NUM: "5"})))  # what is made once is made
    on = stage()
    budgets = on.cluster.shared.whole_requests

    tracemalloc.start()
    on.client(*(frame[at : at + 65_536] for at in range(0, len(frame), 65_536)))
    weighed_bytes = budgets.large.used_bytes + budgets.small.used_bytes
    on.broker(broker_altered(FINE, version=0))
    on.broker(broker_acls(NOT_ALLOWED))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [code for _, code, _ in results_of(on.to_client, INCREMENTAL)] == [INVALID]
    # What the stage itself keeps: all that has gone up or down.
    kept_bytes = 3 * len(frame) + 2 * len(on.to_client)
    assert peak_bytes <= weighed_bytes + kept_bytes + 500_000
    assert budgets.large.used_bytes == budgets.small.used_bytes == 0


def test_what_passes_gives_its_memory_back() -> None:
    on = stage()

    on.client(asked(INCREMENTAL, (ALL, dict.fromkeys(map(str, range(20_000)), ""))))

    budgets = on.cluster.shared.whole_requests
    assert budgets.large.used_bytes == budgets.small.used_bytes == 0


@pytest.mark.parametrize("version", versions(LEGACY))
def test_of_a_request_that_replaces_all_it_is_seen_whether_it_is_about_all_brokers(
    version: int,
) -> None:
    def frame(name: str) -> bytes:
        configs = parts(
            LEGACY, version, "request", "AlterableConfig", {"name": THREADS, "value": "7"}
        )
        resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
        resources = parts(LEGACY, version, "request", "AlterConfigsResource", resource)
        return request(LEGACY, version, resources=resources, validate_only=False)

    assert stage(num="5").client(frame("1")) == frame("1")
    assert stage().client(frame("")) == frame("")
    assert stage(num="5").client(frame("")) == alter_nothing(OWN_CORRELATION)


def test_so_many_resources_are_refused_in_small_steps() -> None:
    on = stage()
    brokers = [((BROKER, str(number)), {NUM: "5"}) for number in range(4_000)]

    allowed(on, asked(INCREMENTAL, *brokers, (ALL, {SIZE: "2"}), (ALL, {SIZE: "3"})))

    codes = [code for _, code, _ in results_of(on.to_client, INCREMENTAL)]
    assert (len(codes), set(codes)) == (4_001, {INVALID})


def test_more_settings_than_one_request_may_have() -> None:
    with pytest.raises(ProtocolError, match="send several"):
        stage().client(
            asked(INCREMENTAL, (ALL, dict.fromkeys([NUM, *map(str, range(10_000))], "")))
        )


# ------------------------------------------------------------------ both


def test_other_resources_go_on_when_the_gateways_is_done() -> None:
    on = stage()
    frame = asked(
        INCREMENTAL, (ALL, {NUM: "5"}), (ONE, {THREADS: "3"}), (ORDERS, {NUM: "1"}), correlation=5
    )
    allowed(on, frame)
    on.tell(None)

    rest = asked(INCREMENTAL, (ONE, {THREADS: "3"}), (ORDERS, {NUM: "1"}), correlation=5)
    assert split(on.to_broker)[-1] == rest
    told = ((ONE, 0, None), (ORDERS, 40, "Unknown config, see PLAINTEXT://inside:9092"))
    on.broker(answered(INCREMENTAL, *told, correlation=5))
    assert results_of(on.to_client, INCREMENTAL) == [
        (ALL, 0, None),
        (ONE, 0, None),
        (ORDERS, 40, "Unknown config, see PLAINTEXT://hidden"),
    ]


def test_settings_of_both_in_one_resource_are_refused_whole() -> None:
    on = stage()

    allowed(on, asked(INCREMENTAL, (ALL, {NUM: "5", THREADS: "3"})))

    assert not on.errands
    assert len(split(on.to_broker)) == 2  # the two questions
    ((key, code, words),) = results_of(on.to_client, INCREMENTAL)
    assert (key, code) == (ALL, INVALID)
    assert words is not None
    assert NUM in words
    assert THREADS in words


@BOTH
def test_what_changes_nothing_of_the_gateways_goes_on_without_it(key: int) -> None:
    on = stage(num="5")

    allowed(on, asked(key, (ALL, {NUM: "5", THREADS: "3"}), correlation=5))

    assert split(on.to_broker)[-1] == asked(key, (ALL, {THREADS: "3"}), correlation=5)
    on.broker(answered(key, (ALL, 0, None), correlation=5))
    assert results_of(on.to_client, key) == [(ALL, 0, None)]


@pytest.mark.parametrize("may_lag", [False, True])
def test_what_is_so_already_is_stored_where_others_may_have_altered_it(may_lag: bool) -> None:
    on = stage(num="5", may_lag=may_lag)

    allowed(on, asked(INCREMENTAL, (ALL, {NUM: "5", SIZE: None})))

    stored = [errand.changes for errand in on.errands if isinstance(errand, AlterSettings)]
    assert stored == ([{NUM: "5", SIZE: None}] if may_lag else [])


def test_one_broker_has_none_to_set_and_none_to_delete() -> None:
    on = stage(num="5")

    allowed(on, asked(INCREMENTAL, (ONE, {NUM: "5"}), ((BROKER, "2"), {NUM: None})))

    (first, code, words), second = results_of(on.to_client, INCREMENTAL)
    assert (first, code) == (ONE, INVALID)
    assert "--entity-default" in (words or "")
    assert second == ((BROKER, "2"), 0, None)


def test_a_resource_that_is_there_twice_is_refused() -> None:
    on = stage()

    allowed(on, asked(INCREMENTAL, (ALL, {NUM: "5"}), (ALL, {NUM: "6"})))

    assert {code for _, code, _ in results_of(on.to_client, INCREMENTAL)} == {INVALID}
    assert not on.errands


# ------------------------------------------------------------------ AlterConfigs, which replaces all


def brokers_own(on: Stage, settings: dict[str, str | None], *, code: int = 0) -> None:
    """The broker tells what it has set for all."""
    assert split(on.to_broker)[-1] == describe_broker_configs(OWN_CORRELATION, "", None)
    rows = [
        {"name": name, "value": value, "read_only": False, "config_source": 3}
        | {"is_sensitive": value is None, "synonyms": ()}
        for name, value in settings.items()
    ]
    configs = parts(DESCRIBE, 1, "response", "DescribeConfigsResourceResult", *rows)
    told = {"resource_type": BROKER, "resource_name": "", "configs": configs}
    told |= {"error_code": ErrorCode(code), "error_message": None}
    results = parts(DESCRIBE, 1, "response", "DescribeConfigsResult", told)
    on.broker(answer(DESCRIBE, 1, results=results, correlation=OWN_CORRELATION))


def test_what_the_broker_has_already_is_no_alteration_of_it() -> None:
    on = stage(num="4")
    allowed(on, asked(LEGACY, (ALL, {NUM: "5", THREADS: "3"})))

    brokers_own(on, {THREADS: "3"})
    on.tell(None)

    assert [errand.changes for errand in on.errands] == [{NUM: "5"}]  # type: ignore[union-attr]
    assert results_of(on.to_client, LEGACY) == [(ALL, 0, None)]


@pytest.mark.parametrize(
    "has", [{}, {THREADS: "4"}, {THREADS: "3", "more": "1"}, {THREADS: None}, None]
)
def test_what_would_change_both_is_refused_whole(has: dict[str, str | None] | None) -> None:
    on = stage(num="4")
    allowed(on, asked(LEGACY, (ALL, {NUM: "5", THREADS: "3"})))

    brokers_own(on, has or {}, code=0 if has is not None else NOT_ALLOWED)

    assert not on.errands
    assert [code for _, code, _ in results_of(on.to_client, LEGACY)] == [INVALID]


def test_what_is_not_named_is_deleted() -> None:
    on = stage(num="4", size="2")
    allowed(on, asked(LEGACY, (ALL, {NUM: "4"})))

    brokers_own(on, {})

    assert [errand.changes for errand in on.errands] == [{SIZE: None}]  # type: ignore[union-attr]


# ------------------------------------------------------------------ describing


def test_a_description_has_the_gateways_among_the_brokers() -> None:
    on = stage(num="5")
    wanted = {"resource_type": BROKER, "resource_name": "", "configuration_keys": None}
    resources = parts(DESCRIBE, 1, "request", "DescribeConfigsResource", wanted)
    frame = request(DESCRIBE, 1, resources=resources, include_synonyms=True, correlation=5)

    assert on.client(frame) == frame
    row = {"name": "listeners", "value": "A://b:1", "read_only": False, "config_source": 3}
    row |= {"is_sensitive": False, "synonyms": ()}
    configs = parts(DESCRIBE, 1, "response", "DescribeConfigsResourceResult", row)
    told = {"resource_type": BROKER, "resource_name": "", "configs": configs}
    told |= {"error_code": ErrorCode(0), "error_message": None}
    results = parts(DESCRIBE, 1, "response", "DescribeConfigsResult", told)
    on.broker(answer(DESCRIBE, 1, results=results, correlation=5))

    (result,) = decoded(on.to_client, DESCRIBE, 1).results
    assert {each.name: each.value for each in result.configs} == {"listeners": None, NUM: "5"}
