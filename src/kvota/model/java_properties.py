"""The lines of a file of Java's properties, as Kafka's clients and tools read them."""

from collections.abc import Iterator


def parse_properties(text: str) -> dict[str, str]:
    """Return names and values; comments begin with ``#`` or ``!``, and a line that ends in a backslash goes on.

    Raises:
        ValueError: a line has no value; no value is in its text.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(_whole_lines(text), 1):
        if not line or line[0] in "#!":
            continue
        key, equals, value = line.partition("=")
        if not equals:
            msg = f"property {number}: no value; write name=value"
            raise ValueError(msg)
        found[key.strip()] = value.strip()
    return found


def _whole_lines(text: str) -> Iterator[str]:
    """Lines without blanks around them."""
    begun = ""
    for line in text.splitlines():
        begun += line.strip()
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun
