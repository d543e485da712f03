"""However logins and requests are sent together and cut: a charge is on the user whom the broker let in."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kvota.model.errors import ProtocolError
from kvota.testing.frames import (
    CREATE_TOPICS,
    FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    decoded,
    fetch,
    parts,
    produce,
    request,
)
from kvota.testing.scripted_broker import ScriptedBroker
from kvota.testing.stage import Cluster, Stage, quotas

CHARGED = frozenset({PRODUCE, FETCH, CREATE_TOPICS})
ILLEGAL_STATE, FAILED, NONE = ErrorCode(34), ErrorCode(58), ErrorCode(0)


@dataclass
class StrictBroker:
    """Takes one frame after the other, as Kafka's ``SaslServerAuthenticator`` and its successor do.

    Attributes:
        has_logins: false on a PLAINTEXT listener, which refuses handshakes and serves everybody.
        user: whom it has let in.
        is_open: a mechanism was accepted, and its last token not yet.
        charged: who had been let in when a request that costs something came.
    """

    has_logins: bool
    user: str = "ANONYMOUS"
    is_open: bool = False
    takes_tokens: bool = False
    closed: bool = False
    mechanism: str = ""
    tokens: int = 0
    claimed: str = ""
    charged: list[str] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    serving: ScriptedBroker = field(default_factory=ScriptedBroker)

    def answers(self, data: bytes) -> list[bytes]:
        """What it says to the frames that are whole now; none behind the one for which it closes."""
        self.received += data
        said = []
        while len(self.received) >= 4 and not self.closed:
            end = 4 + int.from_bytes(self.received[:4], "big")
            if end > len(self.received):
                break
            frame = bytes(self.received[:end])
            del self.received[:end]
            said.append(self._answer(frame))
        return said

    def _answer(self, frame: bytes) -> bytes:
        if self.takes_tokens:
            is_accepted, told = self._judge(frame[4:])
            return len(told).to_bytes(4, "big") + told if is_accepted else b""
        key, version = frame[5], frame[7]
        correlation = int.from_bytes(frame[8:12], "big", signed=True)
        if key == SASL_HANDSHAKE and not self.is_open:
            return self._shake(frame, version, correlation)
        if key == SASL_AUTHENTICATE and self.is_open:
            asked = decoded(frame, key, version, is_answer=False)
            is_accepted, told = self._judge(asked.auth_bytes)
            return _authenticated(version, correlation, NONE if is_accepted else FAILED, told)
        if key == SASL_AUTHENTICATE and self._serves:
            return _authenticated(version, correlation, ILLEGAL_STATE, b"")
        if not self._serves:
            self.closed = True
            return b""
        if key in CHARGED:
            self.charged.append(self.user)
        return self.serving.answers(frame)

    @property
    def _serves(self) -> bool:
        return not self.is_open and (not self.has_logins or self.user != "ANONYMOUS")

    def _shake(self, frame: bytes, version: int, correlation: int) -> bytes:
        error = NONE if self.has_logins else ILLEGAL_STATE
        if error is NONE:
            self.is_open, self.takes_tokens, self.tokens = True, version == 0, 0
            self.mechanism = decoded(frame, SASL_HANDSHAKE, version, is_answer=False).mechanism
        return answer(
            SASL_HANDSHAKE, version, correlation=correlation, throttle_ms=None, error_code=error
        )

    def _judge(self, token: bytes) -> tuple[bool, bytes]:
        self.tokens += 1
        if self.mechanism == "PLAIN":
            name, _, password = token[1:].decode(errors="replace").partition("\0")
            is_last, told = True, b""
        elif self.tokens == 1:
            name, password = token.decode(errors="replace")[5:].partition(",")[0], "right"
            is_last, told = False, b"r=nonce,s=c2FsdA==,i=4096"
        else:
            name, password = self.claimed, "right" if token.endswith(b"right") else ""
            is_last, told = True, b"v=c2ln"
        self.claimed = name
        if password != "right" or (self.user not in {"ANONYMOUS", name} and is_last):
            self.closed = True
            return False, b""
        if is_last:
            self.user, self.is_open, self.takes_tokens = name, False, False
        return True, told


def _authenticated(version: int, correlation: int, error: ErrorCode, token: bytes) -> bytes:
    return answer(
        SASL_AUTHENTICATE,
        version,
        correlation=correlation,
        throttle_ms=None,
        error_code=error,
        error_message=None,
        auth_bytes=token,
    )


def _creation() -> bytes:
    row = {"name": "n", "num_partitions": 3, "replication_factor": 1, "assignments": (), "configs": ()}  # fmt: skip
    asked = parts(CREATE_TOPICS, 7, "request", "CreatableTopic", row)
    return request(CREATE_TOPICS, 7, topics=asked, validate_only=False)


def _plain(user: str, password: str) -> list[bytes]:
    return [f"\0{user}\0{password}".encode()]


def _scram(user: str, password: str) -> list[bytes]:
    return [f"n,,n={user},r=nonce".encode(), f"c=biws,r=nonce,p={password}".encode()]


def _login(version: int, mechanism: str, tokens: list[bytes]) -> list[bytes]:
    first = request(SASL_HANDSHAKE, version, mechanism=mechanism)
    if version == 0:
        return [first, *(len(token).to_bytes(4, "big") + token for token in tokens)]
    return [first, *(request(SASL_AUTHENTICATE, 2, auth_bytes=token) for token in tokens)]


USERS, PASSWORDS = st.sampled_from(["alice", "bob"]), st.sampled_from(["right"] * 5 + ["wrong"])
LOGINS = st.one_of(
    st.builds(_login, st.integers(0, 1), st.just("PLAIN"), st.builds(_plain, USERS, PASSWORDS)),
    st.builds(
        _login, st.integers(0, 1), st.just("SCRAM-SHA-256"), st.builds(_scram, USERS, PASSWORDS)
    ),
)
REQUESTS = st.sampled_from([produce(9), produce(3), fetch(12), _creation()]).map(lambda one: [one])
# A login of which something is missing, or into which something else has come.
BROKEN = st.builds(
    lambda login, cut, between: login[:cut] + between, LOGINS, st.integers(1, 2), REQUESTS
)
SENT = st.lists(st.one_of(LOGINS, REQUESTS, REQUESTS, BROKEN), min_size=1, max_size=8)


def _cut(data: bytes, lengths: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for length in lengths:
        pieces.append(data[at : at + length])
        at += length
    return [piece for piece in (*pieces, data[at:]) if piece]


@settings(deadline=None, max_examples=300)
@given(
    sent=SENT,
    has_logins=st.sampled_from([True, True, False]),
    lengths=st.lists(st.sampled_from([1, 3, 4, 9, 13, 14, 30, 60, 999]), max_size=15),
    answer_lengths=st.lists(st.sampled_from([1, 4, 8, 30]), max_size=3),
)
def test_a_charge_is_on_the_user_whom_the_broker_has_let_in(
    sent: list[list[bytes]], has_logins: bool, lengths: list[int], answer_lengths: list[int]
) -> None:
    limits = quotas(PRODUCE=2**40, FETCH=2**40, CONTROLLER_MUTATION=2**40)
    stage, broker = Stage(Cluster(limits)), StrictBroker(has_logins)

    try:
        for chunk in _cut(b"".join(b"".join(one) for one in sent), lengths):
            going_up = stage.client(chunk)
            while going_up and not broker.closed:
                seen = len(stage.to_broker)
                for said in broker.answers(going_up):
                    for piece in _cut(said, answer_lengths):
                        stage.broker(piece)
                going_up = stage.to_broker[seen:]
            if broker.closed:
                break
    except ProtocolError:
        # Before the broker has seen what it would have closed for. (Bare tokens that are none: the
        # listener has refused the handshake before them.)
        assert broker.is_open or broker.closed or not has_logins
    stage.end()

    rows = sorted(stage.cluster.rows, key=lambda row: row.seq)
    told = [row.memo.user for row in rows]
    assert told[: len(broker.charged)] == broker.charged[: len(told)]
    # What went up and was refused with the connection is a charge, too: only a stranger's can be.
    assert set(told[len(broker.charged) :]) <= {"ANONYMOUS"}
    assert not has_logins or "ANONYMOUS" not in broker.charged
