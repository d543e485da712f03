"""Makes Metadata answers of the versions before 4 out of that of v4.

A request of such a version cannot say that no topic shall be created, so another one is sent in its place.
"""

from kvota.wire.apis import METADATA
from kvota.wire.headers import answer_scanner, with_size
from kvota.wire.scanner import Scanner
from kvota.wire.steps import Steps
from kvota.wire.varint import Bytes, Frame

# What came with which version; v3 and v4 are the same.
_THROTTLE_FROM, _CLUSTER_ID_FROM, _DETAILS_FROM = 3, 2, 1
_V4 = 4


def older_in_steps(answer: Frame, version: int) -> Steps[Frame]:
    """Makes the answer frame of ``version`` (0 to 3) of one of v4, a little at a time.

    Raises:
        ProtocolError: it is no such answer.
    """
    if version >= _THROTTLE_FROM:
        return answer
    scanner = answer_scanner(answer, METADATA, _V4)
    parts: list[Bytes] = [answer[: scanner.at]]
    scanner.skip(4)  # throttle
    has_details = version >= _DETAILS_FROM
    brokers_at = scanner.at
    count = scanner.count(10)
    parts.append(answer[brokers_at : scanner.at])
    for _ in range(count):
        at = scanner.at
        scanner.skip(4)
        scanner.skip_text()
        scanner.skip(4)
        end = scanner.at
        scanner.skip_text()  # rack
        parts.append(answer[at : scanner.at if has_details else end])
        if scanner.is_step_done():
            yield
    cluster_at = scanner.at
    scanner.skip_text()
    at = scanner.at if version < _CLUSTER_ID_FROM else cluster_at
    if not has_details:
        at = scanner.skip(4) + 4  # controller
        yield from _topics(scanner, answer, at, parts)
        at = scanner.at
    parts.append(answer[at:])
    return with_size(parts)


def _topics(scanner: Scanner, answer: Frame, at: int, parts: list[Bytes]) -> Steps[None]:
    """Without what says whether they are internal."""
    count = scanner.count(9)
    for _ in range(count):
        scanner.skip(2)
        scanner.skip_text()
        parts.append(answer[at : scanner.at])
        at = scanner.skip(1) + 1
        for _ in range(scanner.count(18)):
            scanner.skip(2 + 4 + 4)
            for _ in range(2):  # replicas, in sync
                scanner.skip(4 * max(0, scanner.count(4)))
            if scanner.is_step_done():
                yield
        parts.append(answer[at : scanner.at])
        at = scanner.at
        if scanner.is_step_done():
            yield
    parts.append(answer[at : scanner.at])
