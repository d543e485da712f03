"""Random requests about client quotas: right ones, wrong ones, and those that are nearly right."""

from math import inf, nan
from random import Random

from tests.unit.quota_api.written import alteration, description

# Nobody of these comes to the broker, so none of them is held back.
NAMES = (
    None,
    "",
    "a",
    "b",
    "müller",
    "c" * 300,
    "<default>",
    "127.0.0.1",
    "1.2.3.4",
    "::1",
    "1.2.3",
)
TYPES = ("user", "user", "user", "client-id", "client-id", "ip", "ip", "foo", "")
KEYS = ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate")
ALL_KEYS = (
    *KEYS,
    *KEYS,
    "request_percentage",
    "connection_creation_rate",
    "foo",
    "",
    KEYS[0].upper(),
)
# A request percentage is a million and more: the default user's is the test's own.
VALUES = (
    *(None, None, 0.0, -1.0, 1e6, 1e6 + 0.5, 1_000_235.0000001, 1_000_234.9999999, 2e6),
    *(nan, inf, -inf, 2.0**63, 2.0**64, 2_147_483_647.0, 2_147_483_648.0, 1e300),
)
Parts = list[tuple[str, str | None]]
KINDS = (("user",), ("client-id",), ("user", "client-id"), ("client-id", "user"), ("ip",))


def random_alteration(rng: Random, version: int) -> bytes:
    """An AlterClientQuotas request frame."""
    entries = [_entry(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6)))]
    if entries and rng.random() < 0.3:
        entries.append(rng.choice(entries))
    return alteration(*entries, version=version, validate_only=rng.random() < 0.2)


def random_description(rng: Random, version: int) -> bytes:
    """A DescribeClientQuotas request frame."""
    if rng.random() < 0.4:
        components = [
            (rng.choice(TYPES), rng.choice((0, 0, 0, 1, 1, 2, 2, 3, -1)), rng.choice(NAMES))
            for _ in range(rng.choice((0, 1, 1, 2, 3)))
        ]
    else:
        components = [_component(rng, kind) for kind in rng.choice(((), *KINDS))]
    return description(*components, strict=rng.random() < 0.5, version=version)


def _component(rng: Random, kind: str) -> tuple[str, int, str | None]:
    how = rng.choice((0, 1, 2))
    return kind, how, rng.choice(NAMES[1:]) if how == 0 else None


def _entry(rng: Random) -> tuple[Parts, list[tuple[str, float | None]]]:
    if rng.random() < 0.6:
        parts = [(kind, rng.choice(NAMES)) for kind in rng.choice(KINDS)]
    else:
        parts = [
            (rng.choice(TYPES), rng.choice(NAMES)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))
        ]
    operations = [
        (rng.choice(ALL_KEYS), rng.choice(VALUES))
        for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 5)))
    ]
    if rng.random() < 0.7:
        operations = list(dict(operations).items())
    if rng.random() < 0.5:  # mostly right ones
        operations = [
            (key, value if value is None or abs(value) != int(abs(value)) else 1e6 + abs(value))
            for key, value in operations
            if value is None or abs(value) < 1e9
        ]
    return parts, operations
