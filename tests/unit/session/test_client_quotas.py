"""DescribeClientQuotas and AlterClientQuotas on one connection: who may is asked, the gateway answers."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.quota_api.written import (
    ALTER,
    DESCRIBE,
    Entity,
    alteration,
    altered,
    described,
    description,
)
from tests.unit.session.test_own_node import log_in

from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import ProtocolError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.session.outside import LookUpHosts, Refusal, StoreQuotas
from kvota.session.quota_admins import QuotaAdmins
from kvota.testing.frames import (
    API_VERSIONS,
    HEARTBEAT,
    answer,
    decoded,
    metadata_answer,
    parts,
    request,
    split,
    throttle_of,
)
from kvota.testing.stage import BROKER, Cluster, Stage
from kvota.wire.permission_questions import ALTER_VERSION, alter_nothing
from kvota.wire.questions import OWN_CORRELATION, metadata_by_name

ACLS = 29
PRODUCER, REQUEST = "producer_byte_rate", "request_percentage"
KEYS = (PRODUCER, "consumer_byte_rate", REQUEST, "controller_mutation_rate")
ALICE = QuotaEntity(user="alice")
CLIENT_HOST = "192.0.2.1"  # of a stage's client
NOT_ALLOWED, INVALID, POLICY, DISABLED = 31, 42, 44, 54


@dataclass
class Source:
    """Quotas that may be altered, unless there is a refusal."""

    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    refusal: Refusal | None = None
    may_lag: bool = False


def stage(
    source: Source | None = None,
    *,
    admins: QuotaAdmins | None = None,
    offers: Sequence[int] = (DESCRIBE, ALTER),
    **more: Any,
) -> Stage:
    """``offers``: what the broker has told the client; nothing: the client has not asked."""
    cluster = Cluster(
        client_quotas=source or Source(),
        quota_admins=admins or QuotaAdmins(hosts=frozenset({CLIENT_HOST})),
        **more,
    )
    on = Stage(cluster)
    on.machine.caller.upstream_versions = dict.fromkeys(offers, (0, 1))
    return on


def broker_altered(
    *entries: tuple[Entity, int, str | None], version: int = ALTER_VERSION, throttle_ms: int = 0
) -> bytes:
    """What the broker says of a validation."""
    rows = [
        {
            "entity": parts(ALTER, version, "response", "EntityData"),
            "error_code": ErrorCode(error_code),
            "error_message": message,
        }
        for _entity, error_code, message in entries
    ]
    told = parts(ALTER, version, "response", "EntryData", *rows)
    return answer(
        ALTER, version, entries=told, throttle_ms=throttle_ms, correlation=OWN_CORRELATION
    )


def broker_acls(error_code: int, *, throttle_ms: int = 0) -> bytes:
    """The broker's answer to the question whether it has an authorizer."""
    return answer(
        ACLS,
        1,
        error_code=ErrorCode(error_code),
        error_message=None,
        resources=(),
        throttle_ms=throttle_ms,
        correlation=OWN_CORRELATION,
    )


def broker_described(error_code: int, message: str | None, version: int = 1) -> bytes:
    """The broker's answer to a description of nothing."""
    return answer(
        DESCRIBE,
        version,
        error_code=ErrorCode(error_code),
        error_message=message,
        entries=None,
        correlation=OWN_CORRELATION,
    )


def offer(on: Stage, *keys: int) -> None:
    """The client asks for versions, and the broker has only these APIs."""
    on.client(request(API_VERSIONS, 3, correlation=9))
    on.broker(broker_versions(*keys, version=3, correlation=9))


def broker_versions(
    *keys: int, version: int = 0, correlation: int = OWN_CORRELATION, error_code: int = 0
) -> bytes:
    """The broker's answer to the question what it offers."""
    rows = ({"api_key": key, "min_version": 0, "max_version": 3} for key in keys)
    told = parts(API_VERSIONS, version, "response", "ApiVersion", *rows)
    code = ErrorCode(error_code)
    return answer(API_VERSIONS, version, correlation=correlation, api_keys=told, error_code=code)


BROKERS = metadata_answer(4, correlation=OWN_CORRELATION, brokers=[(1, *BROKER)], topics=[])
ONE = ({"user": "alice"}, {PRODUCER: 1000.0})
FINE = ({"user": "alice"}, 0, None)


def allowed_by_the_cluster(on: Stage, frame: bytes) -> None:
    """Talk as far as a cluster with an authorizer allows."""
    on.client(frame)
    on.broker(broker_altered(FINE))
    on.broker(broker_acls(NOT_ALLOWED))  # it has one; this caller may not see its rules


# ------------------------------------------------------------------ altering


@pytest.mark.parametrize("version", [0, 1])
def test_the_broker_is_asked_by_a_mere_validation(version: int) -> None:
    on = stage()

    asked = on.client(alteration(ONE, version=version, correlation=5))

    (asked_of,) = decoded(asked, ALTER, ALTER_VERSION, is_answer=False).entries
    assert asked == alter_nothing(OWN_CORRELATION)
    assert decoded(asked, ALTER, ALTER_VERSION, is_answer=False).validate_only
    assert [op.remove for op in asked_of.ops] == [True]
    assert not on.errands
    assert on.to_client == b""


def test_what_the_cluster_allows_is_stored_and_then_answered() -> None:
    on = stage(admins=QuotaAdmins())

    allowed_by_the_cluster(on, alteration(ONE, correlation=5))

    changes = [KeyChange(ALICE, PRODUCER, 1000.0)]
    assert on.errands == [StoreQuotas(changes, f"ANONYMOUS from {CLIENT_HOST}")]
    assert on.to_client == b""
    on.tell(None)
    assert altered(on.to_client) == [({"user": "alice"}, 0, None)]
    assert on.to_client[4:8] == (5).to_bytes(4, "big")


def test_the_connection_goes_on_behind_it_and_not_before() -> None:
    on = stage()
    beat = request(HEARTBEAT, 3, correlation=6)

    allowed_by_the_cluster(on, alteration(ONE) + beat)
    before = on.to_broker
    on.tell(None)

    assert split(before)[-1] != beat
    assert split(on.to_broker)[-1] == beat


def test_the_broker_refuses_who_has_not_the_right() -> None:
    on = stage()
    on.client(alteration(ONE, ({"user": "bob"}, {PRODUCER: 0.0})))

    refused = (*FINE[:1], NOT_ALLOWED, "Cluster authorization failed.")
    on.broker(broker_altered(refused, refused))

    assert altered(on.to_client) == [
        ({"user": "alice"}, NOT_ALLOWED, "Cluster authorization failed."),
        ({"user": "bob"}, NOT_ALLOWED, "Cluster authorization failed."),
    ]
    assert not on.errands


def test_one_entry_that_is_not_allowed_refuses_all() -> None:
    on = stage()
    on.client(alteration(ONE, ({"user": "bob"}, {PRODUCER: 1.0})))

    on.broker(broker_altered(FINE, ({"user": "bob"}, NOT_ALLOWED, "no")))

    assert [code for _, code, _ in altered(on.to_client)] == [NOT_ALLOWED, NOT_ALLOWED]
    assert not on.errands


@pytest.mark.parametrize("error_code", [-1, 7, 41])
def test_a_broker_that_does_not_say_is_no_yes(error_code: int) -> None:
    on = stage()
    on.client(alteration(ONE))

    on.broker(broker_altered((*FINE[:1], error_code, "not now")))

    assert altered(on.to_client) == [({"user": "alice"}, error_code, "not now")]
    assert not on.errands


@pytest.mark.parametrize("error_code", [-1, 7])
def test_a_broker_that_does_not_say_whether_it_has_an_authorizer_is_no_yes(error_code: int) -> None:
    on = stage()
    on.client(alteration(ONE))
    on.broker(broker_altered(FINE))

    on.broker(broker_acls(error_code))

    assert [code for _, code, _ in altered(on.to_client)] == [error_code]
    assert not on.errands


@pytest.mark.parametrize("error_code", [35, INVALID, POLICY])
def test_what_an_older_broker_does_not_know_is_no_refusal(error_code: int) -> None:
    on = stage()
    on.client(alteration(ONE))
    on.broker(broker_altered((*FINE[:1], error_code, "Unhandled")))

    on.broker(broker_acls(0))
    on.tell(None)

    assert altered(on.to_client) == [({"user": "alice"}, 0, None)]


# ------------------------------------------------------------------ without an authorizer


@pytest.mark.parametrize(
    ("admins", "may"),
    [
        (QuotaAdmins(), False),
        (QuotaAdmins(loopback=True), False),
        (QuotaAdmins(hosts=frozenset({"192.0.2.2"})), False),
        (QuotaAdmins(users=frozenset({"admin", "ANONYMOUS"})), False),
        (QuotaAdmins(hosts=frozenset({CLIENT_HOST})), True),
    ],
)
def test_without_an_authorizer_the_list_decides(admins: QuotaAdmins, *, may: bool) -> None:
    on = stage(admins=admins)
    on.client(alteration(ONE))
    on.broker(broker_altered(FINE))

    on.broker(broker_acls(DISABLED))

    assert bool(on.errands) == may
    if not may:
        ((_, error_code, words),) = altered(on.to_client)
        assert error_code == NOT_ALLOWED
        assert words is not None
        assert "quotas.admins" in words
        assert f"ANONYMOUS from {CLIENT_HOST}" in words


def test_a_broker_that_cannot_be_asked_is_not() -> None:
    on = stage(admins=QuotaAdmins())
    offer(on, API_VERSIONS)

    asked = on.client(alteration(ONE))
    on.broker(BROKERS)

    assert asked == metadata_by_name(OWN_CORRELATION, ())  # only whether it serves this client
    assert [code for _, code, _ in altered(split(on.to_client)[-1])] == [NOT_ALLOWED]


# ------------------------------------------------------------------ brokers that know the gateway by its certificate

ORDERS = "CN=orders"


def behind_certificate(admins: QuotaAdmins, user: str = ORDERS) -> Stage:
    """A client that has shown a certificate to the gateway, which shows its own to brokers."""
    on = stage(Source(), admins=admins, shows_certificate=True)
    on.machine.secured(user)
    return on


@pytest.mark.parametrize("may", [False, True])
def test_what_the_gateway_may_its_clients_may_not(may: bool) -> None:
    on = behind_certificate(QuotaAdmins(users=frozenset({ORDERS} if may else {"CN=admin"})))

    asked = on.client(alteration(ONE))
    on.broker(BROKERS)

    assert asked == metadata_by_name(
        OWN_CORRELATION, ()
    )  # nobody asks what the gateway's own certificate may
    assert bool(on.errands) == may
    if not may:
        ((_, error_code, words),) = altered(on.to_client)
        assert error_code == NOT_ALLOWED
        assert words is not None
        assert "brokers see the gateway's certificate" in words
        assert f"{ORDERS} from {CLIENT_HOST}" in words


@pytest.mark.parametrize(
    ("has_authorizer", "is_on_list", "sees"),
    [
        (True, False, False),
        (True, True, True),
        (False, False, True),
    ],
)
def test_who_sees_quotas_behind_it(has_authorizer: bool, is_on_list: bool, sees: bool) -> None:
    on = behind_certificate(QuotaAdmins(users=frozenset({ORDERS} if is_on_list else {"CN=admin"})))

    on.client(description(strict=False))
    on.broker(broker_acls(0 if has_authorizer else DISABLED))
    for _ in on.errands:
        on.tell(None)

    error_code = int(decoded(on.to_client, DESCRIBE, 1).error_code)
    assert error_code == (0 if sees else NOT_ALLOWED)


def test_who_has_logged_in_is_known_to_the_broker_by_that() -> None:
    on = stage(admins=QuotaAdmins(), shows_certificate=True)
    log_in(on, b"\0alice\0secret")

    asked = on.client(alteration(ONE))

    assert asked == alter_nothing(OWN_CORRELATION)


@pytest.mark.parametrize(
    "frame", [alteration(ONE), description(strict=False)], ids=["alter", "describe"]
)
def test_for_a_client_that_has_not_asked_the_gateway_asks_what_the_broker_offers(
    frame: bytes,
) -> None:
    on = stage(offers=())

    asked = [on.client(frame)]
    on.broker(
        broker_versions(API_VERSIONS)
    )  # one before 2.6, which closes when it is asked for more
    asked.append(split(on.to_broker)[-1])
    on.broker(BROKERS)
    for _ in on.errands:
        on.tell(None)

    versions = request(API_VERSIONS, 0, correlation=OWN_CORRELATION, client="kvota")
    assert asked == [versions, metadata_by_name(OWN_CORRELATION, ())]
    assert len(split(on.to_broker)) == 2
    if frame == alteration(ONE):
        assert altered(on.to_client) == [({"user": "alice"}, 0, None)]
    else:
        assert int(decoded(on.to_client, DESCRIBE, 1).error_code) == 0


def test_a_broker_that_offers_it_is_asked_and_its_versions_are_asked_for_once() -> None:
    on = stage(offers=(), admins=QuotaAdmins())

    on.client(alteration(ONE))
    on.broker(broker_versions(API_VERSIONS, DESCRIBE, ALTER))
    assert split(on.to_broker)[-1] == alter_nothing(OWN_CORRELATION)
    on.broker(broker_altered(FINE))
    on.broker(broker_acls(NOT_ALLOWED))
    on.tell(None)

    assert altered(on.to_client) == [({"user": "alice"}, 0, None)]
    assert on.client(alteration(ONE)) == alter_nothing(OWN_CORRELATION)


def test_a_broker_that_does_not_say_what_it_offers_is_no_yes() -> None:
    on = stage(offers=())
    on.client(alteration(ONE))

    with pytest.raises(ProtocolError, match="answers ApiVersions v0 with error -1"):
        on.broker(broker_versions(error_code=-1))

    assert on.to_client == b""
    assert not on.errands


def test_nobody_is_on_the_list_before_the_broker_has_let_him_in() -> None:
    on = stage()
    offer(on, API_VERSIONS)

    on.client(alteration(ONE))

    assert not on.errands  # a broker that wants a login closes now


def test_a_broker_that_cannot_be_asked_leaves_it_to_the_list() -> None:
    on = stage()
    offer(on, API_VERSIONS)

    on.client(alteration(ONE))
    on.broker(BROKERS)
    on.tell(None)

    assert altered(split(on.to_client)[-1]) == [({"user": "alice"}, 0, None)]


def test_a_list_counts_nothing_where_there_is_an_authorizer() -> None:
    on = stage(admins=QuotaAdmins(hosts=frozenset({CLIENT_HOST})))
    on.client(alteration(ONE))

    on.broker(broker_altered((*FINE[:1], NOT_ALLOWED, "Cluster authorization failed.")))

    assert [code for _, code, _ in altered(on.to_client)] == [NOT_ALLOWED]


# ------------------------------------------------------------------ what is wrong


def test_the_gateways_checks_decide_what_is_right() -> None:
    on = stage()

    allowed_by_the_cluster(
        on, alteration(ONE, ({"user": "bob"}, {PRODUCER: 0.0}), ({"foo": "x"}, {}))
    )
    on.tell(None)

    assert sorted(code for _, code, _ in altered(on.to_client)) == [0, INVALID, INVALID]
    (errand,) = on.errands
    assert isinstance(errand, StoreQuotas)
    assert [change.entity for change in errand.changes] == [ALICE]


@pytest.mark.parametrize("may_lag", [False, True])
def test_what_is_so_already_is_stored_where_others_may_have_altered_it(may_lag: bool) -> None:
    on = stage(Source(ClientQuotas({ALICE: {PRODUCER: 1000.0}}), may_lag=may_lag))

    allowed_by_the_cluster(on, alteration(ONE, ({"user": "bob"}, {PRODUCER: None, "foo": None})))

    stored = [change for errand in on.errands for change in errand.changes]  # type: ignore[union-attr]
    asked = [
        KeyChange(ALICE, PRODUCER, 1000.0),
        KeyChange(QuotaEntity(user="bob"), PRODUCER, None),
    ]
    assert stored == (asked if may_lag else [])


def test_a_validation_stores_nothing_either_where_others_alter() -> None:
    on = stage(Source(may_lag=True))

    allowed_by_the_cluster(on, alteration(ONE, validate_only=True))

    assert altered(on.to_client) == [({"user": "alice"}, 0, None)]
    assert not on.errands


def test_a_validation_stores_nothing() -> None:
    on = stage()

    allowed_by_the_cluster(on, alteration(ONE, validate_only=True))

    assert altered(on.to_client) == [({"user": "alice"}, 0, None)]
    assert not on.errands


def test_what_is_so_already_is_not_stored_again() -> None:
    on = stage(Source(ClientQuotas({ALICE: {PRODUCER: 1000.0}})))

    allowed_by_the_cluster(on, alteration(ONE))

    assert altered(on.to_client) == [({"user": "alice"}, 0, None)]
    assert not on.errands


def test_quotas_that_nobody_alters_from_here_say_so_to_who_may() -> None:
    source = Source(refusal=Refusal(POLICY, "they are in quotas.toml"))
    on = stage(source)

    allowed_by_the_cluster(on, alteration(ONE, ({"user": "bob"}, {PRODUCER: 0.0})))

    assert altered(on.to_client) == [
        ({"user": "alice"}, POLICY, "they are in quotas.toml"),
        ({"user": "bob"}, POLICY, "they are in quotas.toml"),
    ]


def test_what_cannot_be_stored_is_said_for_what_was_right_of_it() -> None:
    on = stage()
    allowed_by_the_cluster(on, alteration(ONE, ({"user": "bob"}, {PRODUCER: 0.0})))

    on.tell(Refusal(-1, "the disk is full"))

    assert {user["user"]: (code, words) for user, code, words in altered(on.to_client)} == {
        "alice": (-1, "the disk is full"),
        "bob": (INVALID, "Quota producer_byte_rate must be greater than 0"),
    }


def test_hosts_are_looked_up_outside() -> None:
    on = stage()
    allowed_by_the_cluster(
        on,
        alteration(
            ({"ip": "known.example"}, {"connection_creation_rate": 5.0}),
            ({"ip": "nobody.example"}, {"connection_creation_rate": 5.0}),
        ),
    )
    assert on.errands == [LookUpHosts(frozenset({"known.example", "nobody.example"}))]

    on.tell(frozenset({"nobody.example"}))
    on.tell(None)

    assert {ip["ip"]: code for ip, code, _ in altered(on.to_client)} == {
        "known.example": 0,
        "nobody.example": INVALID,
    }


def test_no_host_is_looked_up_for_who_may_not() -> None:
    on = stage()
    on.client(alteration(({"ip": "known.example"}, {"connection_creation_rate": 5.0})))

    on.broker(broker_altered(({}, NOT_ALLOWED, None)))

    assert not on.errands


def test_the_brokers_throttle_time_is_told() -> None:
    on = stage()
    on.client(alteration(ONE))
    on.broker(broker_altered(FINE, throttle_ms=70))
    on.broker(broker_acls(0, throttle_ms=50))
    on.tell(None)

    assert throttle_of(on.to_client, ALTER, 1) == 70


def test_a_request_that_cannot_be_read_closes_the_connection() -> None:
    with pytest.raises(ProtocolError, match="AlterClientQuotas v1 request"):
        stage().client(alteration(ONE)[:-1] + b"\xff")


def test_the_end_of_a_connection_in_the_middle() -> None:
    on = stage()
    on.client(alteration(ONE))
    on.end()

    other = stage()
    allowed_by_the_cluster(other, alteration(ONE))
    other.end()

    assert not on.errands
    assert other.machine.caller.at_work is None


# ------------------------------------------------------------------ describing

QUOTAS = ClientQuotas({ALICE: {REQUEST: 50.0}, QuotaEntity(user=DEFAULT): {PRODUCER: 9.0}})


@pytest.mark.parametrize("version", [0, 1])
def test_the_gateways_quotas_are_described(version: int) -> None:
    on = stage(Source(QUOTAS))

    asked = on.client(description(("user", 2, None), version=version))
    on.broker(broker_described(0, "", version))

    question = decoded(asked, DESCRIBE, version, is_answer=False)
    assert (question.components, question.strict) == ((), True)
    assert described(on.to_client, version) == {
        (("user", "alice"),): {REQUEST: 50.0},
        (("user", None),): {PRODUCER: 9.0},
    }


def test_who_may_not_see_the_brokers_quotas_does_not_see_the_gateways() -> None:
    on = stage(Source(QUOTAS))
    on.client(description(strict=False))

    on.broker(broker_described(NOT_ALLOWED, None))

    told = decoded(on.to_client, DESCRIBE, 1)
    assert (int(told.error_code), told.error_message, told.entries) == (NOT_ALLOWED, None, None)


def test_a_filter_that_a_broker_refuses_is_refused() -> None:
    on = stage(Source(QUOTAS))
    on.client(description(("other", 0, "x")))

    on.broker(broker_described(0, ""))

    told = decoded(on.to_client, DESCRIBE, 1)
    assert (int(told.error_code), told.error_message) == (35, "Unsupported entity type other")


@pytest.mark.parametrize("may", [True, False])
def test_where_the_broker_cannot_be_asked_the_list_says_who_sees(*, may: bool) -> None:
    hosts = frozenset({CLIENT_HOST}) if may else frozenset()
    on = stage(Source(QUOTAS), admins=QuotaAdmins(hosts=hosts))
    offer(on, API_VERSIONS)

    on.client(description(strict=False))
    on.broker(BROKERS)

    told = decoded(split(on.to_client)[-1], DESCRIBE, 1)
    assert int(told.error_code) == (0 if may else NOT_ALLOWED)


# ------------------------------------------------------------------ many


def test_others_have_their_turn_while_a_large_request_is_worked_on() -> None:
    on = stage()
    many = [({"user": f"u{n}"}, {PRODUCER: 1.0}) for n in range(3_000)]

    allowed_by_the_cluster(on, alteration(*many))
    on.tell(None)

    assert len(altered(on.to_client)) == 3_000


def test_large_alterations_of_one_user_wait_for_each_other() -> None:
    cluster = Cluster(client_quotas=Source())
    first, second = Stage(cluster, number=1), Stage(cluster, number=2)
    many = [({"user": f"u{n}"}, {PRODUCER: 1.0}) for n in range(1_100)]

    assert first.client(alteration(*many)) != b""
    assert second.client(alteration(*many)) == b""

    first.end()
    assert second.wakes == 1
    assert second.wake_up() != b""


@pytest.mark.parametrize(("entities", "keys"), [(2_000, KEYS[:1]), (500, KEYS), (20, KEYS * 100)])
def test_an_alteration_takes_no_more_memory_than_it_is_weighed(
    entities: int, keys: Sequence[str]
) -> None:
    many = [
        ({"user": f"user-{n}", "client-id": "c"}, [(key, 1.0 + n) for key in keys])
        for n in range(entities)
    ]
    frame = alteration(*many)
    checked = broker_altered(*[FINE] * entities)
    allowed_by_the_cluster(stage(), alteration(ONE))  # what is made once is made
    on = stage()
    budgets = on.cluster.shared.whole_requests

    tracemalloc.start()
    on.client(*(frame[at : at + 65_536] for at in range(0, len(frame), 65_536)))
    weighed_bytes = budgets.large.used_bytes + budgets.small.used_bytes
    on.broker(checked)
    on.broker(broker_acls(0))
    if on.errands:
        on.tell(None)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert on.machine.idle
    # What the stage itself keeps: all that has gone up or down, and the changes.
    kept_bytes = 3 * len(frame) + 2 * len(on.to_client) + 400 * entities * len(set(keys))
    assert peak_bytes <= weighed_bytes + kept_bytes + 500_000
