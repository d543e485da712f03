"""``sasl.jaas.config``: a login module, a flag and the module's options, as Kafka's clients read it."""

import re
from collections.abc import Collection

from kvota.model.errors import UsageError

_MODULE = re.compile(r"\s*[\w$.-]+\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
# A value stands in quotes of either kind, or is a word.
_OPTION = re.compile(
    r"""\s+([A-Za-z_$][\w$.-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([A-Za-z_$][\w$.-]*))(?=[\s;]|$)"""
)
_END = re.compile(r"\s*;?\s*")
_SHOWN_MAX = 100


def read_options(config: str, *, known: Collection[str], example: str) -> dict[str, str]:
    """Return the options.

    Args:
        config: what stands behind ``sasl.jaas.config``.
        known: names of options; one that ends in ``_`` is how names begin.
        example: what to write, for who has written something else.

    Raises:
        UsageError: it cannot be read, or has an option that is not known; no value is in its text.
    """
    module = _MODULE.match(config)
    at, found = 0 if module is None else module.end(), {}
    while module is not None and (option := _OPTION.match(config, at)) is not None:
        name, double, single, word = option.groups()
        text = word if word is not None else re.sub(r"\\(.)", r"\1", double or single or "")
        found[name] = text
        at = option.end()
    if module is None or _END.fullmatch(config, at) is None:
        msg = f"sasl.jaas.config: it cannot be read. Write e.g. {example}"
        raise UsageError(msg)
    for name in found:
        if name not in known and not any(
            one.endswith("_") and name.startswith(one) for one in known
        ):
            msg = (
                f'sasl.jaas.config: the option "{name[:_SHOWN_MAX]}" is not known here; '
                f"known are {', '.join(known) or 'none'}"
            )
            raise UsageError(msg)
    return found
