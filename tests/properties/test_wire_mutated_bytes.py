"""Whatever bytes come, there is a result or a ProtocolError, in bounded time and memory."""

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import Kind, RandomMessages, mutate, versions
from kvota.wire import (
    addresses,
    api_versions,
    broker_configs,
    client_quotas,
    error_texts,
    fetch,
    mutations,
    permission_questions,
    produce,
    questions,
    sasl,
    share_fetch,
)
from kvota.wire.address_rewrite import AddressRewrite
from kvota.wire.answer_walker import AnswerWalker
from kvota.wire.apis import APIS
from kvota.wire.fetch_walker import FetchAnswerWalker
from kvota.wire.headers import (
    REQUEST_HEAD,
    answer_body_offset,
    is_flexible,
    read_answer_head,
    request_body_offset,
    request_header_version,
)
from kvota.wire.node_endpoints import blank_endpoint_array, blank_endpoints
from kvota.wire.scanner import Scanner
from kvota.wire.share_fetch_walker import ShareFetchAnswerWalker
from kvota.wire.steps import at_once

# A function of a whole frame and the version it is taken for.
Reader = Callable[[bytes, int], object]


def address_of(_node_id: int, _host: str, _port: int) -> tuple[str, int]:
    return "gateway.example", 9092


def read_acks(frame: bytes, version: int) -> object:
    at = read_request_head(0)(frame, version)
    return None if at is None else produce.acks(frame, at, version, len(frame))


def read_request_head(key: int) -> Callable[[bytes, int], int | None]:
    def read(frame: bytes, version: int) -> int | None:
        if len(frame) < REQUEST_HEAD.size:
            return None
        client_id_bytes = REQUEST_HEAD.unpack_from(frame)[4]
        header_version = request_header_version(key, version)
        return request_body_offset(frame, 0, len(frame), client_id_bytes, header_version)

    return read


def limits_of_share_fetch(frame: bytes, version: int) -> object:
    at = read_request_head(78)(frame, version)
    if at is None:
        return None
    at = share_fetch.min_bytes_offset(frame, at, len(frame), version)
    lowered = share_fetch.lowered(frame, at, most_bytes=0, wait_ms=10_000)
    return share_fetch.max_bytes(lowered, at), share_fetch.names_topics(
        frame, at, len(frame), version
    )


def rewrite(key: int) -> Reader:
    return lambda frame, version: addresses.rewrite(frame, key, version, address_of)


def hide_configs(frame: bytes, version: int) -> object:
    """Past the look for names, which random messages do not have."""
    body_at = read_answer_head(frame, 32, version).body_at
    flexible = is_flexible(32, version)
    scanner = Scanner(frame, body_at, len(frame), flexible=flexible, what="answer")
    return broker_configs.hide_addresses(AddressRewrite(scanner, address_of), version)


def hide_texts(key: int) -> Reader:
    """Past the look for addresses, which random messages do not have; one of their texts is hidden."""
    return lambda frame, version: error_texts.without_addresses(
        frame, key, version, [("node-3.example", 9092)]
    )


def scan_request(key: int) -> Reader:
    return lambda frame, version: mutations.scan_request(frame, key, version)


def merge(key: int) -> Reader:
    refusal = mutations.Refusal(name="t", error_code=89)
    return lambda frame, version: mutations.merge(frame, key, version, [refusal], 5)


READERS: list[tuple[str, int, Kind, int, Reader]] = [
    *((f"addresses {a.name}", a.key, "response", a.addresses_from, rewrite(a.key))
      for a in APIS.values() if a.addresses_from <= a.version_max),
    ("broker configs", 32, "response", 0, hide_configs),
    *((f"error texts {key}", key, "response", 0, hide_texts(key)) for key in (33, 44)),
    # One API of each kind of head.
    *((f"request head {key}", key, "request", 0, read_request_head(key)) for key in (1, 17, 18)),
    *((f"scan request {key}", key, "request", 0, scan_request(key)) for key in (19, 20, 37)),
    *((f"merge answer {key}", key, "response", 0, merge(key)) for key in (19, 20, 37)),
    ("acks", 0, "request", 0, read_acks),
    ("throttle offset", 0, "response", 1, produce.throttle_offset),
    ("fetch tags", 1, "response", 16, fetch.tags_offset),
    ("blank", 1, "response", 16, lambda frame, _version: blank_endpoints(frame[-40:])),
    ("share fetch limits", 78, "request", 1, limits_of_share_fetch),
    ("share fetch endpoints", 78, "response", 1, share_fetch.endpoints_offset),
    ("blank array", 78, "response", 1,
     lambda frame, _version: blank_endpoint_array(frame[-40:], what="answer")),
    ("clamp", 18, "response", 0, api_versions.clamp),
    ("metadata", 3, "response", 0, questions.scan_metadata),
    ("configs", 32, "response", 1, lambda frame, _version: questions.scan_configs(frame)),
    ("alteration", 49, "request", 0,
     lambda frame, _version: at_once(client_quotas.scan_alteration(frame))),
    ("filter", 48, "request", 0, lambda frame, _version: client_quotas.scan_filter(frame)),
    ("alteration answer", 49, "response", 0,
     lambda frame, version: at_once(permission_questions.scan_alteration(frame, version))),
    ("description", 48, "response", 0, permission_questions.scan_description),
    ("acls", 29, "response", 1, lambda frame, _version: permission_questions.scan_acls(frame)),
    ("mechanism", 17, "request", 0, lambda frame, _version: sasl.mechanism(frame)),
    ("handshake answer", 17, "response", 0, lambda frame, _version: sasl.handshake_answer(frame)),
    ("token", 36, "request", 0, lambda frame, _version: sasl.auth_bytes(frame)),
    ("token answer", 36, "response", 0, sasl.authenticate_answer),
    ("answer head", 1, "response", 12, lambda frame, _version: read_answer_head(frame, 1, 12)),
]  # fmt: skip


def outcome(reader: Reader, frame: bytes, version: int) -> str:
    try:
        reader(frame, version)
    except ProtocolError as fault:
        return str(fault) or "no text"
    return "read"


@pytest.mark.parametrize(
    ("key", "kind", "version_min", "reader"),
    [reader[1:] for reader in READERS],
    ids=[reader[0] for reader in READERS],
)
@given(data=st.data(), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_damaged_messages_are_read_or_refused_with_a_reason(
    key: int, kind: Kind, version_min: int, reader: Reader, data: st.DataObject, seed: int
) -> None:
    version = data.draw(st.sampled_from([v for v in versions(key) if v >= version_min]))
    rng = Random(seed)
    frame = mutate(RandomMessages(rng).frame(key, version, kind), rng)

    assert outcome(reader, frame, version) != "no text"


@pytest.mark.parametrize(
    ("key", "kind", "version_min", "reader"),
    [reader[1:] for reader in READERS],
    ids=[reader[0] for reader in READERS],
)
@given(data=st.data(), frame=st.binary(max_size=100))
@settings(deadline=None, max_examples=30)
def test_any_bytes_are_read_or_refused_with_a_reason(
    key: int, kind: Kind, version_min: int, reader: Reader, data: st.DataObject, frame: bytes
) -> None:
    version = data.draw(st.sampled_from([v for v in versions(key) if v >= version_min]))

    assert outcome(reader, frame, version) != "no text"


COUNTS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x7f\xff"]


@pytest.mark.parametrize(
    ("key", "kind", "version_min", "reader"),
    [reader[1:] for reader in READERS],
    ids=[reader[0] for reader in READERS],
)
@given(data=st.data(), seed=st.integers(0, 2**32), count=st.sampled_from(COUNTS))
@settings(deadline=None, max_examples=10)
def test_announced_billions_take_no_memory(  # noqa: PLR0917 - named by parametrize and given
    key: int,
    kind: Kind,
    version_min: int,
    reader: Reader,
    data: st.DataObject,
    seed: int,
    count: bytes,
) -> None:
    version = data.draw(st.sampled_from([v for v in versions(key) if v >= version_min]))
    frame = RandomMessages(Random(seed)).frame(key, version, kind)
    at = data.draw(st.integers(8, len(frame)))
    damaged = sized(frame[:at] + count + frame[at:])

    tracemalloc.start()
    outcome(reader, damaged, version)
    _now, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 100_000 + 100 * len(damaged)


def sized(frame: bytes) -> bytes:
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


@given(data=st.data(), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=200)
def test_a_damaged_answer_in_pieces_is_found_out_as_in_one(data: st.DataObject, seed: int) -> None:
    rng = Random(seed)
    frame = mutate(RandomMessages(rng).frame(1, 17, "response"), rng)
    cut = data.draw(st.integers(0, len(frame)))

    assert walked(frame, [0, cut, len(frame)]) == walked(frame, [0, len(frame)])


@given(data=st.data(), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=200)
def test_a_damaged_answer_to_a_share_fetch_in_pieces_is_found_out_as_in_one(
    data: st.DataObject, seed: int
) -> None:
    rng = Random(seed)
    frame = mutate(RandomMessages(rng).frame(78, 2, "response"), rng)
    cut = data.draw(st.integers(0, len(frame)))
    whole = walked(frame, [0, len(frame)], ShareFetchAnswerWalker(2))

    assert walked(frame, [0, cut, len(frame)], ShareFetchAnswerWalker(2)) == whole


def walked(frame: bytes, cuts: list[int], walker: AnswerWalker | None = None) -> int:
    """Where the last tags, or the endpoints, begin; -1: never, or refused."""
    walker = walker or FetchAnswerWalker(17)
    found = -1
    for at, stop in pairwise(cuts):
        try:
            found = walker.feed(frame, at, stop) if found < 0 else found
        except ProtocolError:
            return -1
    return found


@given(
    frame=st.binary(max_size=60), end=st.integers(0, 100), header_version=st.sampled_from((0, 1))
)
def test_the_head_of_an_answer_asks_for_more_or_is_refused(
    frame: bytes, end: int, header_version: int
) -> None:
    found: object = "refused"
    try:
        found = answer_body_offset(frame, 0, end, header_version)
    except ProtocolError:
        found = "refused"

    assert found in {None, "refused", *range(8, len(frame) + 1)}
