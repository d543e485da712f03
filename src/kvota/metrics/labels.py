"""Labels of series: names that Prometheus takes, values escaped once."""

import re
from collections.abc import Mapping

from kvota.metrics.counter_key import CounterKey
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tag_value, tags_text

# All that has no series of its own; a real user or client of this name is written in another way.
OTHER = "__other__"
_OTHER_ENCODED = "%5F%5Fother%5F%5F"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_OWN = frozenset({"quota_type", "node_id", "outcome", "enforced", "le"})
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
# What ends a line for some readers, and cannot be seen.
_UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")


def label_text(labels: Mapping[str, str]) -> str:
    r"""Labels as they stand in braces; those without a value are left out, as an exporter of JMX does.

    >>> label_text({"user": "", "client_id": 'a "b"', "node_id": "1"})
    'client_id="a \\"b\\"",node_id="1"'
    """
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)


def counter_labels(key: CounterKey) -> str:
    """The labels of one counter, but for its quota type: its tags, and the broker's node id.

    A user is percent-encoded, a client id is not, as in Kafka's own metrics.

    >>> from kvota.model.quota_type import QuotaType
    >>> counter_labels(CounterKey(QuotaType.PRODUCE, "client-id=my%20app,user=team%20a", 2))
    'client_id="my app",user="team%20a",node_id="2"'
    """
    labels: dict[str, str] = {}
    for part in filter(None, key.tags.split(",")):
        encoded_name, _, encoded = part.partition("=")
        value = tag_value(key.tags, CLIENT_ID_TAG) if encoded_name == CLIENT_ID_TAG else encoded
        value = encoded if value is None else value
        name = "user" if encoded_name == USER_TAG else _label_name(encoded_name, labels)
        labels[name] = _OTHER_ENCODED if value == OTHER else value
    if key.node_id != CLUSTER_NODE_ID:
        labels["node_id"] = str(key.node_id)
    return label_text(labels)


def user_labels(user: str) -> str:
    """The labels of a user of whom there is no counter.

    >>> user_labels("team a")
    'user="team%20a"'
    """
    return counter_labels(
        CounterKey(QuotaType.PRODUCER_ID, tags_text({USER_TAG: user}), CLUSTER_NODE_ID)
    )


def other_labels() -> str:
    """The labels of all counters that have no series of their own."""
    return label_text({"client_id": OTHER, "user": OTHER})


def _label_name(tag: str, taken: Mapping[str, str]) -> str:
    name = _NOT_IN_NAMES.sub("_", tag)
    if not name or name[0].isdigit() or name.startswith("__") or name in _OWN:
        name = f"tag_{name}"
    while name in taken:
        name += "_"
    return name


def _escaped(value: str) -> str:
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", value).translate(_ESCAPES)
