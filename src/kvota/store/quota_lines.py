"""On which line of a quotas file each entity has its quotas."""

import re
from collections.abc import Mapping
from pathlib import Path

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import QuotaEntity

_TABLE = re.compile(rb"^[ \t]*\[\[[ \t]*quota[ \t]*\]\]", re.MULTILINE)


def quota_lines(path: Path, quotas: ConfiguredQuotas) -> Mapping[QuotaEntity, int]:
    """Return the line of each entity's ``[[quota]]``, counted from 1.

    Args:
        path: of the file.
        quotas: just read from it, so that they are in its order.

    Returns:
        Nothing where the file is written in another way, or is another one by now: a wrong line is worse.
    """
    try:
        content = path.read_bytes()
    except OSError:
        return {}
    starts = [match.start() for match in _TABLE.finditer(content)]
    if len(starts) != len(quotas):
        return {}
    lines, line, before = [], 1, 0
    for start in starts:
        line += content.count(b"\n", before, start)
        lines.append(line)
        before = start
    return dict(zip(quotas.entries(), lines, strict=True))
