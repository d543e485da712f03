"""Requests about client quotas as Hypothesis draws them: right ones, wrong ones, and those that are nearly right."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

from hypothesis import strategies as st
from tests.unit.quota_api.written import alteration, description

Parts = tuple[tuple[str, str | None], ...]
Operation = tuple[str, float | None]
Entry = tuple[Parts, Sequence[Operation]]
Component = tuple[str, int, str | None]

# Nobody of these comes to the broker, so none of them is held back. None: the default.
USERS = (None, "a", "b", "müller", "c" * 300, "<default>")
IPS = (None, "127.0.0.1", "1.2.3.4", "::1", "1.2.3")
RIGHT: tuple[Parts, ...] = (
    *((("user", name),) for name in USERS),
    *((("client-id", name),) for name in USERS),
    *((("user", user), ("client-id", client)) for user, client in itertools.product(USERS, USERS)),
    (("client-id", "b"), ("user", "a")),
    *((("ip", name),) for name in IPS),
    (("user", "a"), ("user", "b")),  # the last one counts
    (("user", "a"), ("user", None)),
)
WRONG: tuple[Parts, ...] = (
    (),
    *(((kind, name),) for kind in ("foo", "") for name in (None, "", "a")),
    *(((kind, ""),) for kind in ("user", "client-id", "ip")),
    (("user", "a"), ("ip", "1.2.3.4")),
    (("ip", None), ("client-id", None)),
    (("user", None), ("client-id", None), ("ip", None)),
    (("user", "a"), ("foo", "b")),
    (("user", "a"), ("client-id", "")),
    (("ip", "no such host"),),
)
BANDWIDTH = ("producer_byte_rate", "consumer_byte_rate")
DOUBLES = ("controller_mutation_rate", "request_percentage")
OF_IP = "connection_creation_rate"
# A percentage is a million and more, and so is whatever an address of this machine has: the default's is the test's own.
GOOD_VALUES = (None, None, 1e6, 1_000_235.0000001, 2e6, nan)
GOOD: tuple[Operation, ...] = tuple(itertools.product((*BANDWIDTH, *DOUBLES), GOOD_VALUES))
GOOD_OF_IP: tuple[Operation, ...] = tuple(
    itertools.product((OF_IP,), (None, 1e6, 2_147_483_647.0, nan))
)
ANY: tuple[Operation, ...] = tuple(
    itertools.product(
        (*BANDWIDTH, *DOUBLES, OF_IP, "foo", "", "PRODUCER_BYTE_RATE"),
        (None, 0.0, -1.0, 1e6 + 0.5, 1_000_234.9999999, inf, -inf, 2.0**63, 2.0**64, 2_147_483_648.0, 1e300),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Alteration:
    """One request; a test shows it like this where it fails."""

    version: int
    validate_only: bool
    entries: Sequence[Entry]

    @property
    def frame(self) -> bytes:
        """What is sent."""
        return alteration(*self.entries, version=self.version, validate_only=self.validate_only)


@dataclass(frozen=True)
class Description:
    """The same of a filter."""

    version: int
    strict: bool
    components: Sequence[Component]

    @property
    def frame(self) -> bytes:
        """What is sent."""
        return description(*self.components, strict=self.strict, version=self.version)


def _operations(pool: Sequence[Operation]) -> st.SearchStrategy[list[Operation]]:
    """Nearly always each key once."""
    each = st.sampled_from(pool)
    once = st.lists(each, min_size=1, max_size=4, unique_by=lambda operation: operation[0])
    return st.one_of(once, once, once, st.lists(each, max_size=5))


_MIXED = _operations((*GOOD, *GOOD_OF_IP, *ANY))


def _entry(parts: Parts) -> st.SearchStrategy[Entry]:
    good = _operations(GOOD_OF_IP if parts and parts[0][0] == "ip" else GOOD)
    return st.tuples(st.just(parts), st.one_of(good, good, _MIXED))


# Two of three are right in what they name.
ENTRIES = st.sampled_from((*RIGHT, *RIGHT, *RIGHT, *WRONG, *WRONG)).flatmap(_entry)
_VERSIONS = st.sampled_from((0, 1))


_FEW, _MANY = st.lists(ENTRIES, max_size=8), st.lists(ENTRIES, min_size=25, max_size=60)
# Most have many entries, some of them about the same entity; a broker takes as long for few.
ALTERATIONS = st.builds(
    Alteration,
    _VERSIONS,
    st.sampled_from((False, False, False, True)),
    st.one_of(_FEW, _MANY, _MANY, _MANY),
)


_TYPES = ("user", "client-id", "ip", "foo", "")
_NAMES = ("", *(name for name in (*USERS, *IPS) if name is not None))
_COMPONENTS = st.one_of(
    st.tuples(st.sampled_from(_TYPES[:3]), st.just(0), st.sampled_from(_NAMES)),
    st.tuples(st.sampled_from(_TYPES[:3]), st.sampled_from((1, 2)), st.none()),
    st.tuples(
        st.sampled_from(_TYPES), st.sampled_from((0, 1, 2, 3, -1)), st.sampled_from((None, *_NAMES))
    ),
)
DESCRIPTIONS = st.builds(Description, _VERSIONS, st.booleans(), st.lists(_COMPONENTS, max_size=3))
