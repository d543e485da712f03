"""What one call asks for, in parts: by kind, by size, by who is asked."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from kvota.admin import configs
from kvota.admin.configs import ConfigResource
from kvota.admin.topics import TopicKey
from kvota.client import Destination

# So many topics are described by one request: while an answer is read the broker makes the next one.
_IN_ONE_REQUEST = 1_000


def by_name_and_id(topics: Iterable[TopicKey]) -> tuple[list[TopicKey], list[TopicKey]]:
    """Return the names, and the ids, each of them once."""
    names: list[TopicKey] = []
    ids: list[TopicKey] = []
    for topic in dict.fromkeys(topics):
        (ids if isinstance(topic, UUID) else names).append(topic)
    return names, ids


def in_parts(topics: list[TopicKey]) -> Iterable[list[TopicKey]]:
    """Yield as many as one request asks for."""
    for begin in range(0, len(topics), _IN_ONE_REQUEST):
        yield topics[begin : begin + _IN_ONE_REQUEST]


def by_destination(
    resources: Iterable[ConfigResource],
) -> Mapping[Destination, Sequence[ConfigResource]]:
    """Return them by who is asked, each of them once."""
    found: dict[Destination, list[ConfigResource]] = defaultdict(list)
    for resource in dict.fromkeys(resources):
        found[configs.destination(resource)].append(resource)
    return found
