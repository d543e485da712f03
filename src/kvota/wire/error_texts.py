"""Hides brokers' addresses in the error texts of AlterConfigs and IncrementalAlterConfigs answers.

A broker that refuses a setting of its listeners answers with all its listeners as they are, those of
controllers included. Both APIs' answers have one form; everything but such texts passes byte for byte.
"""

import re
from collections.abc import Collection

from kvota.model.address import address_text
from kvota.wire.address_rewrite import AddressRewrite
from kvota.wire.apis import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from kvota.wire.encode import encode_words
from kvota.wire.headers import answer_scanner, request_scanner, with_size
from kvota.wire.steps import STEP_BYTES, Steps, at_once
from kvota.wire.varint import Bytes, Frame

KEYS = frozenset({ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS})
HIDDEN = "hidden"
# Resources in one request, each with an error text in its answer: all topics of a large cluster. An answer
# with as many of a broker's texts is below 10 MB.
RESOURCES_MAX = 30_000
ANSWER_BYTES_MAX = 16 * 2**20

# PLAINTEXT://host:9092 as in listeners, 1@host:9093 as in quorum voters. Lengths are bounded, so that a
# text of 32 KB costs its length and not its square.
_LISTENER = re.compile(
    r"""(://|@)(?:\[[0-9A-Za-z:.%]{1,64}\]|[^\s,;'"()<>\[\]/@]{0,255}):[0-9]{1,5}(?![0-9])"""
)
_TRACES = (b"://", b"@")
_RESULT_BYTES_MIN = 2 + 1 + 1 + 1  # error code, message, resource type, name
_RESOURCE_BYTES_MIN = 1 + 1 + 1  # type, name, settings
# The pattern takes up to 80 ns for each byte of a text.
_TEXTS_BYTES_PER_STEP = 16_384

Address = tuple[str, int]


def check_request(request: Bytes, key: int) -> None:
    """Refuses a whole request frame that is about too many resources.

    Raises:
        ProtocolError: more than ``RESOURCES_MAX``, or it is no such request.
    """
    scanner = request_scanner(request, key, items_max=RESOURCES_MAX)
    scanner.count(_RESOURCE_BYTES_MIN)


def hide_addresses(answer: Frame, key: int, version: int, brokers: Collection[Address]) -> Frame:
    """Returns the answer frame without addresses in its error texts; ``answer`` itself if it has none.

    Args:
        answer: a whole frame, size field included.
        key: one of ``KEYS``, of the request it answers.
        version: of the request it answers.
        brokers: addresses that are hidden wherever they stand; what is written as a listener or a
            voter is hidden whosever it is.

    Raises:
        ProtocolError: the bytes are not such an answer.
    """
    return at_once(hide_addresses_in_steps(answer, key, version, brokers))


def hide_addresses_in_steps(
    answer: Frame, key: int, version: int, brokers: Collection[Address]
) -> Steps[Frame]:
    """Returns the same as ``hide_addresses``, made a little at a time.

    Raises:
        ProtocolError: the bytes are not such an answer.
    """
    for trace in (*_TRACES, *(address_text(*broker).encode() for broker in brokers)):
        if trace in answer:
            return (yield from without_addresses(answer, key, version, brokers))
        if len(answer) > STEP_BYTES:
            yield
    return answer


def without_addresses(
    answer: Frame, key: int, version: int, brokers: Collection[Address]
) -> Steps[Frame]:
    """Does the same, without a look first whether there is anything to hide."""
    known = [address_text(host, port) for host, port in brokers]
    is_known = re.compile("|".join(rf"(?<![\w.-]){re.escape(text)}(?![0-9])" for text in known))
    scanner = answer_scanner(answer, key, version, items_max=RESOURCES_MAX)
    rewrite = AddressRewrite(scanner, _no_address)
    texts_bytes = 0
    scanner.skip(4)  # throttle
    for _ in range(scanner.count(_RESULT_BYTES_MIN)):
        scanner.skip(2)  # error code
        text_at = scanner.at
        text = scanner.text()
        if text:
            hidden = _LISTENER.sub(rf"\1{HIDDEN}", text)
            if known:
                hidden = is_known.sub(HIDDEN, hidden)
            if hidden != text:
                rewrite.put(text_at, encode_words(hidden, flexible=scanner.flexible))
        scanner.skip(1)  # resource type
        scanner.skip_text()  # resource name
        scanner.skip_tags()
        texts_bytes += len(text or "")
        if scanner.is_step_done() or texts_bytes > _TEXTS_BYTES_PER_STEP:
            texts_bytes = 0
            yield
    scanner.skip_tags()
    scanner.finish()
    parts = rewrite.parts()
    return answer if parts is None else with_size(parts)


def _no_address(node_id: int, host: str, port: int) -> tuple[str, int]:
    msg = f"no address stands in a field of its own: {node_id}, {host}:{port}"
    raise AssertionError(msg)
