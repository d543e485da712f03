"""Logins in which no name can be read (GSSAPI, a vendor's own): opaque both ways, and whose quotas hold behind them."""

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.session.test_logins import (
    ends_uncharged,
    handshake,
    handshake_answer,
    raw,
    recorded_user,
    shake_hands,
    token,
    token_answer,
)

from kvota.model.errors import ProtocolError
from kvota.testing.stage import Cluster, Stage

# As Kerberos has them (RFC 4121, RFC 4752): the tickets, nothing, and what both agree on for later; the broker's last is empty.
AP_REQ, AP_REP = b"\x60\x82\x02\x1c" + bytes(range(256)), b"\x60\x81\x99" + b"\0\xff" * 70
OFFER, CHOICE = b"\x05\x04\x05\xff" + b"\0" * 28, b"\x05\x04\x04\xff" + b"\xfe" * 28
STEPS = [(AP_REQ, AP_REP), (b"", OFFER), (CHOICE, b"")]
KERBEROS = {"GSSAPI": "kerberos"}


def stage_with(users: dict[str, str]) -> Stage:
    cluster = Cluster()
    cluster.shared.users_of_logins = users
    return Stage(cluster)


def log_in(stage: Stage) -> None:
    shake_hands(stage, "GSSAPI")
    for number, (theirs, brokers) in enumerate(STEPS, 2):
        sent = token(theirs, correlation=number)
        assert stage.client(sent) == sent
        told = token_answer(brokers, correlation=number)
        assert stage.broker(told) == told


@pytest.mark.parametrize(("users", "name"), [({}, "ANONYMOUS"), (KERBEROS, "kerberos")])
def test_its_tokens_pass_as_they_are_and_the_quotas_are_those_of_the_rule(
    users: dict[str, str], name: str
) -> None:
    stage = stage_with(users)

    log_in(stage)

    assert recorded_user(stage) == name
    said = [str(warning) for warning in stage.warnings]
    assert ["GSSAPI" in one for one in said] == ([] if users else [True])


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_before_its_end_nobody_is_anybody(steps: int) -> None:
    """The broker has taken a step of it, and not yet let anybody in."""
    stage = stage_with(KERBEROS)
    shake_hands(stage, "GSSAPI")
    for number, (theirs, brokers) in enumerate(STEPS[:steps], 2):
        stage.client(token(theirs, correlation=number))
        stage.broker(token_answer(brokers, correlation=number))

    assert ends_uncharged(stage)


def test_a_refused_ticket_is_nobodys() -> None:
    stage = stage_with(KERBEROS)
    shake_hands(stage, "GSSAPI")
    stage.client(token(AP_REQ))
    stage.broker(token_answer(error=ErrorCode.sasl_authentication_failed))

    assert ends_uncharged(stage)


def test_a_rule_is_of_one_mechanism() -> None:
    stage = stage_with(KERBEROS)
    shake_hands(stage, "AWS_MSK_IAM")
    stage.client(token(b"{}"))
    stage.broker(token_answer(b'{"version":"2020_10_22"}'))

    assert recorded_user(stage) == "ANONYMOUS"


def test_who_logs_in_again_so_keeps_the_name() -> None:
    stage = stage_with(KERBEROS)
    log_in(stage)
    assert recorded_user(stage) == "kerberos"

    stage.client(handshake("GSSAPI"))
    stage.broker(handshake_answer())
    for number, (theirs, brokers) in enumerate(STEPS, 2):
        stage.client(token(theirs, correlation=number))
        stage.broker(token_answer(brokers, correlation=number))

    assert recorded_user(stage) == "kerberos"


def test_bare_tokens_of_it_are_refused_before_one_goes_up() -> None:
    """The broker answers the last one with nothing, so whose requests follow could not be seen."""
    stage = stage_with(KERBEROS)
    sent = handshake("GSSAPI", 0)
    stage.client(sent + raw(AP_REQ))

    with pytest.raises(
        ProtocolError, match=r"SaslHandshake v0 with 'GSSAPI'.* has to send SaslHandshake v1"
    ):
        stage.broker(handshake_answer(0))

    assert stage.to_broker == sent
