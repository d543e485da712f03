"""Whose connection it is: SASL as it goes by, in both of Kafka's ways."""

import base64
import json

import pytest
from kio.schema.errors import ErrorCode

from kvota.model.errors import ProtocolError
from kvota.session.outside import FindTokenOwner, Owner
from kvota.session.principal import LoginRefusal
from kvota.session.requests import EVIDENCE_BYTES
from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_TOPICS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    fetch,
    fetch_answer,
    produce,
    produce_answer,
    request,
)
from kvota.testing.stage import Cluster, Stage, quotas

OK, FAILED, ILLEGAL_STATE = ErrorCode(0), ErrorCode(58), ErrorCode(34)
TOKEN_BYTES = 200_000
PLAIN_ALICE = b"\0alice\0alice-secret"
PLAIN_BOB = b"\0bob\0bob-secret"
SCRAM_FIRST = b"n,,n=al=2Cice=3D,r=nonce"
SCRAM_TOKEN = b"n,,n=token-id,r=nonce,tokenauth=true"
SERVER_FIRST, CLIENT_FINAL, SERVER_FINAL = b"r=nonce2,s=c2FsdA==,i=4096", b"c=biws,r=nonce2,p=cA==", b"v=c2ln"  # fmt: skip


def handshake(mechanism: str, version: int = 1, correlation: int = 1) -> bytes:
    return request(SASL_HANDSHAKE, version, correlation=correlation, mechanism=mechanism)


def handshake_answer(
    version: int = 1, error: ErrorCode = OK, correlation: int = 1, taken: tuple[str, ...] = ()
) -> bytes:
    return answer(
        SASL_HANDSHAKE,
        version,
        throttle_ms=None,
        error_code=error,
        correlation=correlation,
        mechanisms=taken,
    )


def token(auth_bytes: bytes, version: int = 2, correlation: int = 2) -> bytes:
    return request(SASL_AUTHENTICATE, version, correlation=correlation, auth_bytes=auth_bytes)


def token_answer(
    auth_bytes: bytes = b"",
    error: ErrorCode = OK,
    version: int = 2,
    correlation: int = 2,
    message: str | None = None,
) -> bytes:
    return answer(
        SASL_AUTHENTICATE,
        version,
        correlation=correlation,
        throttle_ms=None,
        error_code=error,
        error_message=message,
        auth_bytes=auth_bytes,
    )


def raw(auth_bytes: bytes) -> bytes:
    return len(auth_bytes).to_bytes(4, "big") + auth_bytes


def shake_hands(stage: Stage, mechanism: str, version: int = 1) -> None:
    assert stage.client(handshake(mechanism, version)) == handshake(mechanism, version)
    assert stage.broker(handshake_answer(version)) == handshake_answer(version)


def recorded_user(stage: Stage) -> str:
    """The user of the next request's row."""
    stage.client(produce(correlation=99))
    stage.broker(produce_answer(correlation=99))
    return stage.cluster.rows[-1].memo.user


def ends_uncharged(stage: Stage, words: str = "in the middle of a login") -> bool:
    """The next request ends the connection; nothing of it is forwarded or charged."""
    before = stage.to_broker
    with pytest.raises(ProtocolError, match=words):
        stage.client(produce(9, correlation=99))
    stage.end()
    return stage.to_broker == before and stage.cluster.rows == []


def test_without_a_login_a_client_is_anonymous() -> None:
    assert recorded_user(Stage()) == "ANONYMOUS"


# ------------------------------------------------------------------ SaslAuthenticate


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_names_the_user_once_the_broker_has_accepted(version: int) -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")

    assert stage.client(token(PLAIN_ALICE, version)) == token(PLAIN_ALICE, version)
    assert stage.machine.caller.principal.name == "ANONYMOUS"
    assert stage.broker(token_answer(version=version)) == token_answer(version=version)

    assert recorded_user(stage) == "alice"
    assert stage.warnings == []


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_names_the_user_with_the_brokers_final_message(mechanism: str) -> None:
    stage = Stage()
    shake_hands(stage, mechanism)

    stage.client(token(SCRAM_FIRST))
    stage.broker(token_answer(SERVER_FIRST))
    assert stage.machine.caller.principal.name == "ANONYMOUS"
    stage.client(token(CLIENT_FINAL, correlation=3))
    stage.broker(token_answer(SERVER_FINAL, correlation=3))

    assert recorded_user(stage) == "al,ice="


def test_a_request_behind_a_wrong_password_ends_the_connection_uncharged() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")

    stage.client(token(PLAIN_ALICE))
    stage.broker(token_answer(error=FAILED))

    assert ends_uncharged(stage, "Produce v9 in the middle of a login")


# ------------------------------------------------------------------ refused logins, as they are said


def test_a_refused_login_is_said_with_the_name_and_the_brokers_words() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")

    stage.client(token(PLAIN_ALICE))
    stage.broker(token_answer(error=FAILED, message="Invalid username or password"))

    assert stage.warnings == [LoginRefusal("alice", "PLAIN", "Invalid username or password")]
    assert stage.machine.is_refused


def test_a_scram_login_is_refused_by_name_at_its_end_and_without_words() -> None:
    stage = Stage()
    shake_hands(stage, "SCRAM-SHA-256")
    stage.client(token(SCRAM_FIRST))
    stage.broker(token_answer(SERVER_FIRST))
    assert not stage.warnings

    stage.client(token(CLIENT_FINAL, correlation=3))
    stage.broker(token_answer(error=FAILED, correlation=3))

    assert stage.warnings == [LoginRefusal("al,ice=", "SCRAM-SHA-256", "error 58")]


def test_a_mechanism_that_is_refused_is_said_with_those_that_are_taken() -> None:
    stage = Stage()

    stage.client(handshake("PLAIN"))
    stage.broker(
        handshake_answer(
            error=ErrorCode.unsupported_sasl_mechanism, taken=("GSSAPI", "SCRAM-SHA-512")
        )
    )

    why = "the broker takes GSSAPI, SCRAM-SHA-512"
    assert stage.warnings == [LoginRefusal(None, "PLAIN", why)]
    assert stage.machine.is_refused


def test_a_listener_without_logins_is_said_and_the_connection_may_go_on() -> None:
    stage = Stage()

    stage.client(handshake("PLAIN"))
    stage.broker(handshake_answer(error=ILLEGAL_STATE))

    why = "this listener of the broker has no logins (is it PLAINTEXT?)"
    assert stage.warnings == [LoginRefusal(None, "PLAIN", why)]
    assert not stage.machine.is_refused


def test_a_raw_token_that_is_not_answered_was_refused_by_closing() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN", version=0)
    assert stage.machine.refused_by_closing is None

    stage.client(raw(PLAIN_ALICE))

    why = "the broker has closed the connection"
    assert stage.machine.refused_by_closing == LoginRefusal("alice", "PLAIN", why)


def test_a_login_that_succeeds_after_a_refused_mechanism_is_not_refused() -> None:
    stage = Stage()
    stage.client(handshake("GSSAPI"))
    stage.broker(handshake_answer(error=ErrorCode.unsupported_sasl_mechanism))

    shake_hands(stage, "PLAIN")

    assert not stage.machine.is_refused


def test_a_scram_login_that_fails_at_its_end_ends_uncharged() -> None:
    stage = Stage()
    shake_hands(stage, "SCRAM-SHA-256")
    stage.client(token(SCRAM_FIRST))
    stage.broker(token_answer(SERVER_FIRST))

    stage.client(token(CLIENT_FINAL, correlation=3))
    stage.broker(token_answer(error=FAILED, correlation=3))

    assert ends_uncharged(stage)


def test_a_delegation_tokens_owner_is_unknown_and_the_log_says_so() -> None:
    stage = Stage()
    shake_hands(stage, "SCRAM-SHA-256")
    stage.client(token(SCRAM_TOKEN))
    stage.broker(token_answer(SERVER_FIRST))
    stage.client(token(CLIENT_FINAL, correlation=3))
    stage.broker(token_answer(SERVER_FINAL, correlation=3))

    assert recorded_user(stage) == "ANONYMOUS"
    warning = str(*stage.warnings)
    assert "owner of a delegation token cannot be read" in warning
    assert "kafka.admin.security.protocol" in warning
    assert "token-id" not in warning


def log_in_with_token(stage: Stage, version: int, behind: bytes) -> None:
    """With something sent behind the last message of the login; whose token it is has not been told then."""
    shake_hands(stage, "SCRAM-SHA-256", version)
    messages = (SCRAM_TOKEN, SERVER_FIRST), (CLIENT_FINAL, SERVER_FINAL)
    for correlation, (said, told) in enumerate(messages, 2):
        rest = behind if said is CLIENT_FINAL else b""
        if version:
            stage.client(token(said, correlation=correlation) + rest)
            assert stage.broker(token_answer(told, correlation=correlation))
        else:
            stage.client(raw(said) + rest)
            assert stage.broker(raw(told)) == raw(told)


@pytest.mark.parametrize("version", [0, 1])
def test_a_delegation_tokens_owner_is_asked_for_and_is_the_user(version: int) -> None:
    cluster = Cluster(quotas(PRODUCE=1_000))
    cluster.shared.finds_token_owners = True
    stage = Stage(cluster)

    log_in_with_token(stage, version, produce(correlation=5))
    assert stage.errands == [FindTokenOwner("token-id")]
    assert stage.machine.caller.principal.name == "ANONYMOUS"
    assert not stage.to_broker.endswith(produce(correlation=5))
    stage.tell(Owner("alice"))
    stage.broker(produce_answer(correlation=5))

    assert stage.to_broker.endswith(produce(correlation=5))
    assert [row.memo.user for row in cluster.rows] == ["alice"]
    assert stage.warnings == []


def test_where_a_tokens_owner_cannot_be_told_the_log_says_why() -> None:
    cluster = Cluster()
    cluster.shared.finds_token_owners = True
    stage = Stage(cluster)

    log_in_with_token(stage, 1, b"")
    stage.tell(Owner(None, "nobody knows"))

    assert recorded_user(stage) == "ANONYMOUS"
    assert "(nobody knows)" in str(*stage.warnings)


def test_who_leaves_while_a_tokens_owner_is_asked_for_leaves_nothing_behind() -> None:
    cluster = Cluster()
    cluster.shared.finds_token_owners = True
    stage = Stage(cluster)

    log_in_with_token(stage, 1, produce(correlation=5))
    stage.end()

    assert cluster.rows == []


def test_a_refused_token_is_nobodys_and_nobody_is_asked() -> None:
    cluster = Cluster()
    cluster.shared.finds_token_owners = True
    stage = Stage(cluster)
    shake_hands(stage, "SCRAM-SHA-256")
    stage.client(token(SCRAM_TOKEN))
    stage.broker(token_answer(error=FAILED))

    assert stage.errands == []
    assert ends_uncharged(stage)


def test_an_oauth_failure_that_looks_like_success_names_nobody() -> None:
    stage = Stage()
    shake_hands(stage, "OAUTHBEARER")

    stage.client(token(b"n,,\x01auth=Bearer x.y.z\x01\x01"))
    stage.broker(token_answer(b'{"status":"invalid_token"}'))

    assert stage.warnings == []
    assert ends_uncharged(stage)


def test_a_mechanism_whose_names_cannot_be_read_is_said_in_the_log() -> None:
    stage = Stage()
    shake_hands(stage, "GSSAPI")

    stage.client(token(b"\x60\x82\x02\x1c"))
    stage.broker(token_answer())

    assert recorded_user(stage) == "ANONYMOUS"
    assert "GSSAPI" in str(stage.warnings[0])


# ------------------------------------------------------------------ OAUTHBEARER


def bearer(**claims: object) -> bytes:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0." + payload + b".\x01\x01"


INVALID = b'{"status":"invalid_token"}'


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_bearer_token_names_the_user_once_the_broker_has_accepted(version: int) -> None:
    stage = Stage()
    shake_hands(stage, "OAUTHBEARER")

    stage.client(token(bearer(sub="alice"), version))
    assert stage.machine.caller.principal.name == "ANONYMOUS"
    stage.broker(token_answer(version=version))

    assert recorded_user(stage) == "alice"
    assert stage.warnings == []


def test_a_bearer_token_without_kafkas_header_names_the_user() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1_000)))
    sent = handshake("OAUTHBEARER", 0) + raw(bearer(sub="alice"))

    assert stage.client(sent + produce(correlation=3)) == handshake("OAUTHBEARER", 0)
    stage.broker(handshake_answer(0))
    stage.broker(raw(b""))
    stage.broker(produce_answer(correlation=3))

    assert stage.to_broker == sent + produce(correlation=3)
    assert [row.memo.user for row in stage.cluster.rows] == ["alice"]


def test_the_claim_with_the_name_can_be_chosen() -> None:
    cluster = Cluster()
    cluster.shared.name_claim = "client_id"
    stage = Stage(cluster)
    shake_hands(stage, "OAUTHBEARER")

    stage.client(token(bearer(sub="0b1c", client_id="orders")))
    stage.broker(token_answer())

    assert recorded_user(stage) == "orders"


def test_a_refused_bearer_token_is_said_by_name_when_the_client_has_acknowledged() -> None:
    stage = Stage()
    shake_hands(stage, "OAUTHBEARER")

    stage.client(token(bearer(sub="alice")))
    assert stage.broker(token_answer(INVALID)) == token_answer(INVALID)
    assert stage.warnings == []
    assert stage.client(token(b"\x01", correlation=3)) == token(b"\x01", correlation=3)
    stage.broker(token_answer(error=FAILED, correlation=3, message=INVALID.decode()))

    assert stage.warnings == [LoginRefusal("alice", "OAUTHBEARER", INVALID.decode())]
    assert stage.machine.caller.principal.name == "ANONYMOUS"
    assert ends_uncharged(stage)


def test_what_is_sent_with_a_refused_bearer_token_is_nobodys() -> None:
    stage = Stage()

    stage.client(handshake("OAUTHBEARER") + token(bearer(sub="alice")) + produce(9, correlation=3))
    stage.broker(handshake_answer())
    with pytest.raises(ProtocolError, match="in the middle of a login"):
        stage.broker(token_answer(INVALID))
    stage.end()

    assert stage.cluster.rows == []


def test_a_token_that_cannot_be_read_is_said_with_the_setting_and_not_shown() -> None:
    stage = Stage()
    shake_hands(stage, "OAUTHBEARER")

    stage.client(token(bearer(user="alice-secret")))
    stage.broker(token_answer())

    assert recorded_user(stage) == "ANONYMOUS"
    warning = str(*stage.warnings)
    assert 'no name in its claim "sub" (sasl.oauthbearer.sub.claim.name)' in warning
    assert "secret" not in warning


def test_who_is_let_in_with_a_token_that_is_too_large_to_be_read_is_closed() -> None:
    stage = Stage()
    shake_hands(stage, "OAUTHBEARER")
    stage.client(token(bearer(sub="alice", groups="g" * 70_000)))

    with pytest.raises(
        ProtocolError, match="login with OAUTHBEARER in which no user's name can be"
    ):
        stage.broker(token_answer())
    stage.end()


def test_a_new_token_of_the_same_user_keeps_the_name_and_one_that_is_refused_too() -> None:
    stage = Stage()
    shake_hands(stage, "OAUTHBEARER")
    stage.client(token(bearer(sub="alice", exp=1)))
    stage.broker(token_answer())

    stage.client(handshake("OAUTHBEARER", correlation=5) + token(bearer(sub="alice", exp=2)))
    stage.broker(handshake_answer(correlation=5))
    stage.broker(token_answer())
    assert recorded_user(stage) == "alice"
    stage.client(handshake("OAUTHBEARER", correlation=6) + token(bearer(sub="bob")))
    stage.broker(handshake_answer(correlation=6))
    stage.broker(token_answer(INVALID))

    assert stage.machine.caller.principal.name == "alice"


def test_re_authentication_keeps_the_name_and_the_connection() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")
    stage.client(token(PLAIN_ALICE))
    stage.broker(token_answer())
    assert recorded_user(stage) == "alice"

    stage.client(produce(correlation=5) + handshake("PLAIN", correlation=6))
    stage.broker(produce_answer(correlation=5) + handshake_answer(correlation=6))
    stage.client(token(PLAIN_ALICE, correlation=7) + produce(correlation=8))
    stage.broker(token_answer(correlation=7))
    stage.broker(produce_answer(correlation=8))

    assert recorded_user(stage) == "alice"
    assert {row.memo.user for row in stage.cluster.rows} == {"alice"}


def test_a_failed_re_authentication_keeps_the_name() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")
    stage.client(token(PLAIN_ALICE))
    stage.broker(token_answer())

    stage.client(handshake("PLAIN", correlation=6))
    stage.broker(handshake_answer(error=ILLEGAL_STATE, correlation=6))
    stage.client(token(PLAIN_BOB, correlation=7))
    stage.broker(token_answer(error=ILLEGAL_STATE, correlation=7))

    assert recorded_user(stage) == "alice"


def test_a_message_of_a_login_goes_up_when_the_one_before_it_is_answered() -> None:
    stage = Stage()
    third = handshake("PLAIN", correlation=3)

    assert stage.client(handshake("PLAIN") + token(PLAIN_ALICE) + third) == handshake("PLAIN")
    stage.broker(handshake_answer())
    assert stage.to_broker == handshake("PLAIN") + token(PLAIN_ALICE)
    stage.broker(token_answer())
    assert stage.to_broker == handshake("PLAIN") + token(PLAIN_ALICE) + third
    stage.broker(handshake_answer(error=ILLEGAL_STATE, correlation=3))

    assert recorded_user(stage) == "alice"


def test_a_login_sent_ahead_of_an_answer_does_not_borrow_a_name() -> None:
    stage = Stage()
    stage.client(
        handshake("PLAIN")
        + token(PLAIN_ALICE)
        + handshake("PLAIN", correlation=3)
        + token(PLAIN_BOB, correlation=4)
    )

    stage.broker(handshake_answer())
    stage.broker(token_answer())
    assert stage.machine.caller.principal.name == "alice"
    stage.broker(handshake_answer(error=ILLEGAL_STATE, correlation=3))
    stage.broker(token_answer(error=ILLEGAL_STATE, correlation=4))

    assert recorded_user(stage) == "alice"


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_sent_together_with_a_login_is_charged_to_the_user(version: int) -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1_000)))
    first = raw(PLAIN_ALICE) if version == 0 else token(PLAIN_ALICE)

    stage.client(handshake("PLAIN", version) + first + produce(correlation=3))
    stage.broker(handshake_answer(version))
    stage.broker(raw(b"") if version == 0 else token_answer())
    stage.broker(produce_answer(correlation=3))

    assert [row.memo.user for row in stage.cluster.rows] == ["alice"]
    assert stage.to_broker == handshake("PLAIN", version) + first + produce(correlation=3)


def test_on_a_listener_without_logins_a_client_goes_on_as_anonymous() -> None:
    stage = Stage()

    stage.client(handshake("PLAIN") + token(PLAIN_ALICE) + produce(correlation=3))
    stage.broker(handshake_answer(error=ILLEGAL_STATE))
    stage.broker(token_answer(error=ILLEGAL_STATE))
    stage.broker(produce_answer(correlation=3))

    assert [row.memo.user for row in stage.cluster.rows] == ["ANONYMOUS"]


@pytest.mark.parametrize(
    "frame",
    [
        produce(9, correlation=3),
        produce(9, acks=0, correlation=3),
        fetch(12, correlation=3),
        request(API_VERSIONS, 3, correlation=3),
        request(CREATE_TOPICS, 7, correlation=3),
    ],
    ids=["Produce", "Produce without acks", "Fetch", "ApiVersions", "CreateTopics"],
)
def test_a_request_within_a_re_authentication_ends_it_uncharged(frame: bytes) -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")
    stage.client(token(PLAIN_ALICE))
    stage.broker(token_answer())
    assert recorded_user(stage) == "alice"  # that API version has been used before
    before, rows = stage.to_broker, len(stage.cluster.rows)

    stage.client(handshake("PLAIN", correlation=6) + frame)
    with pytest.raises(ProtocolError, match="in the middle of a login"):
        stage.broker(handshake_answer(correlation=6))
    stage.end()

    assert stage.to_broker == before + handshake("PLAIN", correlation=6)
    assert len(stage.cluster.rows) == rows


def test_who_logs_in_again_as_somebody_else_is_refused_with_what_follows() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")
    stage.client(token(PLAIN_ALICE))
    stage.broker(token_answer())

    stage.client(
        handshake("PLAIN", correlation=6)
        + token(PLAIN_BOB, correlation=7)
        + produce(9, correlation=8)
    )
    stage.broker(handshake_answer(correlation=6))
    with pytest.raises(ProtocolError, match="in the middle of a login"):
        stage.broker(token_answer(error=FAILED, correlation=7))
    stage.end()

    assert stage.cluster.rows == []


def test_an_answer_on_its_way_before_a_re_authentication_keeps_its_user() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")
    stage.client(token(PLAIN_ALICE))
    stage.broker(token_answer())

    stage.client(fetch(12, correlation=5) + handshake("PLAIN", correlation=6))
    stage.broker(fetch_answer(12, correlation=5))
    stage.broker(handshake_answer(correlation=6))
    stage.client(token(PLAIN_BOB, correlation=7))
    stage.broker(token_answer(correlation=7))  # as some broker may do that is not Kafka's

    assert recorded_user(stage) == "bob"
    assert [row.memo.user for row in stage.cluster.rows] == ["alice", "bob"]


def test_a_login_whose_end_cannot_be_seen_ends_with_any_token_that_is_accepted() -> None:
    stage = Stage()
    shake_hands(stage, "AWS_MSK_IAM")

    for correlation in (2, 3):
        stage.client(token(b"{}", correlation=correlation))
        stage.broker(token_answer(b'{"version":"2020_10_22"}', correlation=correlation))

    assert recorded_user(stage) == "ANONYMOUS"
    warning = str(*stage.warnings)
    assert "AWS_MSK_IAM" in warning


def test_a_second_token_behind_a_login_names_nobody_else() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")

    stage.client(token(PLAIN_ALICE) + token(PLAIN_BOB, correlation=3))
    stage.broker(token_answer())
    stage.broker(token_answer(error=ILLEGAL_STATE, correlation=3))

    assert recorded_user(stage) == "alice"


def test_a_new_name_has_its_own_counter_from_then_on() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1_000)))
    assert recorded_user(stage) == "ANONYMOUS"
    shake_hands(stage, "PLAIN")
    stage.client(token(PLAIN_ALICE))
    stage.broker(token_answer())

    assert recorded_user(stage) == "alice"
    assert [row.memo.tags for row in stage.cluster.rows] == [
        "client-id=,user=ANONYMOUS",
        "client-id=,user=alice",
    ]


@pytest.mark.parametrize(
    "garbage", [b"", b"alice", b"\0\0secret", b"\0\xff\0secret", b"a\0b\0c\0d"]
)
def test_a_token_that_is_none_is_the_brokers_business(garbage: bytes) -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN")

    assert stage.client(token(garbage)) == token(garbage)
    stage.broker(token_answer(error=FAILED))

    assert ends_uncharged(stage)


@pytest.mark.parametrize(
    ("mechanism", "first", "told"),
    [
        ("PLAIN", b"\0alice\0alice-secret\0more", b""),
        ("SCRAM-SHA-256", b"n,,x=y,n=alice,r=nonce", SERVER_FIRST),
    ],
)
def test_who_is_let_in_by_a_login_without_a_name_has_no_quota_of_nobodys(
    mechanism: str, first: bytes, told: bytes
) -> None:
    stage = Stage()
    shake_hands(stage, mechanism)
    stage.client(token(first) + produce(9, correlation=3))

    with pytest.raises(
        ProtocolError, match=f"a login with {mechanism} in which no user's name can be read"
    ):
        stage.broker(token_answer(told))
    stage.end()

    assert stage.cluster.rows == []


@pytest.mark.parametrize(
    "first",
    [
        b"n,,m=x,n=alice,r=nonce",
        b"n,,n=alice,r=nonce,TOKENAUTH=true",
        b"n,,n=alice,r=nonce,tokenauth=true,tokenauth=false",
    ],
)
def test_a_scram_login_in_disguise_is_still_its_users(first: bytes) -> None:
    stage = Stage()
    shake_hands(stage, "SCRAM-SHA-256")
    stage.client(token(first))
    stage.broker(token_answer(SERVER_FIRST))
    stage.client(token(CLIENT_FINAL, correlation=3))
    stage.broker(token_answer(SERVER_FINAL, correlation=3))

    assert recorded_user(stage) == "alice"


# ------------------------------------------------------------------ raw tokens (handshake v0)


def test_raw_plain_names_the_user_with_the_brokers_empty_token() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN", version=0)

    assert stage.client(raw(PLAIN_ALICE)) == raw(PLAIN_ALICE)
    assert stage.broker(raw(b"")) == raw(b"")

    assert recorded_user(stage) == "alice"


def test_raw_scram_names_the_user_with_the_brokers_final_message() -> None:
    stage = Stage()
    shake_hands(stage, "SCRAM-SHA-512", version=0)

    assert stage.client(raw(SCRAM_FIRST)) == raw(SCRAM_FIRST)
    assert stage.broker(raw(SERVER_FIRST)) == raw(SERVER_FIRST)
    assert stage.client(raw(CLIENT_FINAL)) == raw(CLIENT_FINAL)
    assert stage.broker(raw(SERVER_FINAL)) == raw(SERVER_FINAL)

    assert recorded_user(stage) == "al,ice="


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 12])
def test_raw_tokens_may_come_in_pieces(cut: int) -> None:
    stage = Stage()
    shake_hands(stage, "SCRAM-SHA-512", version=0)
    stage.client(raw(SCRAM_FIRST)[:cut], raw(SCRAM_FIRST)[cut:])

    assert stage.broker(raw(SERVER_FIRST)[:cut], raw(SERVER_FIRST)[cut:]) == raw(SERVER_FIRST)
    stage.client(raw(CLIENT_FINAL)[:cut], raw(CLIENT_FINAL)[cut:])
    final = raw(SERVER_FINAL) + b""
    assert stage.broker(final[:cut], final[cut:]) == final

    assert recorded_user(stage) == "al,ice="


def test_large_raw_tokens_that_are_not_here_share_the_room_for_announced_bytes() -> None:
    cluster = Cluster(budget_bytes=TOKEN_BYTES)
    first, second = (Stage(cluster, number=number) for number in range(2))
    large = raw(bytes(TOKEN_BYTES))
    for stage in (first, second):
        shake_hands(stage, "PLAIN", version=0)
        stage.client(large[: 2 * EVIDENCE_BYTES])

    assert cluster.shared.budgets.used_bytes == TOKEN_BYTES
    assert first.machine.keeps_others_waiting  # so that it has to send, or is closed
    assert (first.machine.pauses_reading, second.machine.pauses_reading) == (False, True)

    assert first.client(large[2 * EVIDENCE_BYTES :]) == large
    second.wake_up()
    assert not second.machine.pauses_reading
    assert second.client(large[2 * EVIDENCE_BYTES :]) == large
    assert cluster.shared.budgets.used_bytes == 0


def test_a_handshake_and_its_raw_token_may_come_in_one_chunk() -> None:
    stage = Stage()
    sent = handshake("PLAIN", 0) + raw(PLAIN_ALICE)

    assert stage.client(sent) == handshake("PLAIN", 0)
    assert stage.broker(handshake_answer(0)) == handshake_answer(0)
    assert stage.to_broker == sent
    assert stage.broker(raw(b"")) == raw(b"")

    assert recorded_user(stage) == "alice"


def test_after_a_refused_raw_handshake_requests_are_requests() -> None:
    stage = Stage(Cluster(quotas(PRODUCE=1)))
    behind = produce(records=b"r" * 500)

    assert stage.client(handshake("SCRAM-SHA-256", 0) + behind) == handshake("SCRAM-SHA-256", 0)
    stage.broker(handshake_answer(0, ErrorCode.illegal_sasl_state))

    assert stage.to_broker.endswith(behind)
    assert stage.machine.due_count == 1  # a Produce that is due, charged and muted for
    assert stage.mutes


def test_a_request_behind_a_raw_token_waits_for_the_login() -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN", version=0)
    behind = produce()

    assert stage.client(raw(PLAIN_ALICE) + behind) == raw(PLAIN_ALICE)
    stage.broker(raw(b""))

    assert stage.to_broker.endswith(behind)
    stage.machine.close()
    assert [row.memo.user for row in stage.cluster.rows] == ["alice"]


def test_a_raw_login_whose_end_cannot_be_seen_closes() -> None:
    stage = Stage()

    assert stage.client(handshake("GSSAPI", 0)) == handshake("GSSAPI", 0)
    with pytest.raises(
        ProtocolError, match=r"SaslHandshake v0 with 'GSSAPI'.* has to send SaslHandshake v1"
    ):
        stage.broker(handshake_answer(0))


def test_a_raw_login_with_a_mechanism_that_the_broker_does_not_take_has_its_answer() -> None:
    stage = Stage()
    refusal = handshake_answer(0, ErrorCode.unsupported_sasl_mechanism, taken=("PLAIN",))

    stage.client(handshake("GSSAPI", 0))
    assert stage.broker(refusal) == refusal

    assert stage.warnings == [LoginRefusal(None, "GSSAPI", "the broker takes PLAIN")]


@pytest.mark.parametrize("size", [-1, 524_289, 2**31 - 1])
def test_a_raw_token_of_impossible_size_closes(size: int) -> None:
    stage = Stage()
    shake_hands(stage, "PLAIN", version=0)

    with pytest.raises(ProtocolError, match=f"SASL token of {size} bytes"):
        stage.client(size.to_bytes(4, "big", signed=True))
