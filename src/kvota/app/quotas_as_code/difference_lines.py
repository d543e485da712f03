"""Changes of quotas as lines for people: sign, whom, what, old and new with their units."""

from collections.abc import Sequence

from kvota.app.text_width import columns_of, filled_to, moved_to
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.planning.wanted_quotas import Difference
from kvota.store.quota_limit import value_text

# More lines tell a person nothing; JSON has them all.
_LINES_MAX = 200
_WORDS = (("user", "user"), ("client_id", "client"), ("ip", "ip"))


def shown_lines(differences: Sequence[Difference]) -> list[str]:
    """A line for each, in columns; of very many the first, and how many more there are.

    Names are whole, however wide: somebody decides by these lines.
    """
    shown = differences[:_LINES_MAX]
    rows = [_cells(each) for each in shown]
    widths = [max((columns_of(row[column]) for row in rows), default=0) for column in range(5)]
    lines = [
        "  ".join(
            (
                row[0],
                filled_to(row[1], widths[1]),
                filled_to(row[2], widths[2]),
                f"{moved_to(row[3], widths[3])} → {filled_to(row[4], widths[4])}",
                row[5],
            )
        ).rstrip()
        for row in rows
    ]
    if len(differences) > len(shown):
        lines.append(f"and {len(differences) - len(shown)} more (--output json has them all)")
    return lines


def entity_words(entity: QuotaEntity) -> str:
    """Whom a quota is for, in few words.

    >>> entity_words(QuotaEntity(user="orders", client_id=DEFAULT))
    'user orders, every client'
    """
    parts = []
    for (_, word), name in zip(_WORDS, entity, strict=True):
        if name is DEFAULT:
            parts.append(f"every {word}")
        elif name is not None:
            parts.append(f"{word} {_printable(str(name))}")
    return ", ".join(parts)


def _printable(name: str) -> str:
    """As it is, where it can be seen; a name may hold what moves a terminal's cursor."""
    return name if name.isprintable() and " " not in name else repr(name)


def _cells(difference: Difference) -> tuple[str, str, str, str, str, str]:
    old, new = difference.old, difference.new
    sign = "+" if old is None else "-" if new is None else "~"
    share = ""
    if old is not None and new is not None and 0 < abs(old) < float("inf"):
        share = f"{100 * (new - old) / old:+.3g} %" if new < float("inf") else ""
    return (
        sign,
        entity_words(difference.entity),
        difference.key,
        _value(difference.key, old),
        _value(difference.key, new),
        share,
    )


def _value(key: str, value: float | None) -> str:
    if value is None:
        return "none"
    if value != value or value == float("inf"):  # noqa: PLR0124  (NaN differs from itself)
        return "beyond reach"
    return value_text(key, value)
