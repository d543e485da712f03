"""The pinned requirements: a gateway's and an image's are part of all, and are what their extras need."""

import re
from pathlib import Path

import pytest
from tests.integration.wheelhouse import needed_by

ROOT = Path(__file__).parents[2]


def pins(name: str) -> dict[str, set[str]]:
    """By package: its pinned versions, each with its hashes."""
    found: dict[str, set[str]] = {}
    text = (ROOT / "requirements" / name).read_text()
    without_comments = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    for pin in re.split(r"\n(?=[a-z0-9_.-]+==)", without_comments):
        found.setdefault(pin.partition("==")[0], set()).add(" ".join(pin.split()))
    return found


@pytest.mark.parametrize("file", ["gateway.txt", "image.txt"])
def test_what_a_gateway_needs_is_pinned_as_everywhere(file: str) -> None:
    everything = pins("all.txt")

    for name, found in pins(file).items():
        assert found == everything[name], name


@pytest.mark.parametrize(
    ("file", "extras"),
    [("gateway.txt", ["gateway"]), ("image.txt", ["gateway", "client", "pkcs12"])],
)
def test_the_pins_of_a_gateway_are_what_its_extras_need(file: str, extras: list[str]) -> None:
    pinned, needed = set(pins(file)), {name for extra in extras for name in needed_by(extra)}

    assert needed <= pinned
    assert pinned - needed <= {"typing-extensions"}  # newer Pythons need fewer


def test_every_pin_has_hashes() -> None:
    for name in ("all.txt", "gateway.txt", "image.txt", "java.txt", "peers.txt"):
        for found in pins(name).values():
            assert all("--hash=sha256:" in pin for pin in found), name
