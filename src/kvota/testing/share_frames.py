"""Frames of share groups (KIP-932), encoded by kio; what a test does not name is fixed, not random."""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from kvota.testing.frames import TOPIC_ID, answer, node_endpoints, parts, request
from kvota.testing.kafka_messages import throttle

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79


def share_fetch(
    version: int = 2,
    *,
    correlation: int = 1,
    max_bytes: int = 50_000_000,
    acknowledges: bool = False,
    client: str | None = "app",
    tags: bytes = b"\0",
    wait_ms: int = 500,
) -> bytes:
    """A ShareFetch that goes on with a session; with acknowledgements it names a topic."""
    batch = parts(
        SHARE_FETCH, version, "request", "AcknowledgementBatch",
        {"first_offset": 3, "last_offset": 5, "acknowledge_types": (1,)},
    )  # fmt: skip
    partition = parts(
        SHARE_FETCH, version, "request", "FetchPartition",
        {"partition_index": 0, "acknowledgement_batches": batch},
    )  # fmt: skip
    topic = parts(
        SHARE_FETCH, version, "request", "FetchTopic",
        {"topic_id": TOPIC_ID, "partitions": partition},
    )  # fmt: skip
    return request(
        SHARE_FETCH, version, correlation=correlation, client=client, tags=tags, group_id="g",
        member_id="m", share_session_epoch=1, min_bytes=1, max_bytes=max_bytes,
        max_wait=throttle(wait_ms), topics=topic if acknowledges else (), forgotten_topics_data=(),
    )  # fmt: skip


def share_answer(
    version: int = 2,
    *,
    correlation: int = 1,
    throttle_ms: int = 0,
    records: bytes = b"f" * 100,
    partitions: int = 1,
    endpoints: Sequence[tuple[int, str, int]] = (),
    tags: bytes = b"\0",
    error: int = 0,
) -> bytes:
    """The answer to a ShareFetch, with ``records`` in each partition."""
    row: dict[str, object] = {"records": records, "error_code": ErrorCode(0), "error_message": None}
    rows = [{**row, "partition_index": index} for index in range(partitions)]
    topic = {
        "topic_id": TOPIC_ID,
        "partitions": parts(SHARE_FETCH, version, "response", "PartitionData", *rows),
    }
    return answer(
        SHARE_FETCH, version, correlation=correlation, throttle_ms=throttle_ms, tags=tags,
        error_code=ErrorCode(error), error_message=None,
        responses=parts(SHARE_FETCH, version, "response", "ShareFetchableTopicResponse", topic),
        node_endpoints=node_endpoints(SHARE_FETCH, version, endpoints),
    )  # fmt: skip
