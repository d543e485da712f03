"""Looks again and again until a cluster is as it should be."""

import time
from collections.abc import Callable, Sequence

from kvota.localkafka.cluster.node import Node, words_of_end, words_with_log
from kvota.model.errors import KvotaError, ProtocolError, UnreachableError

READY_S = 120
_LOOK_INTERVAL_S = 0.05


def await_so(what: str, is_so: Callable[[], bool], alive: Sequence[Node]) -> None:
    """Looks until it is so.

    Raises:
        UnreachableError: one of ``alive`` has ended meanwhile, or two minutes have passed; the text quotes its log.
    """
    deadline_s = time.monotonic() + READY_S
    last_error: KvotaError | None = None
    while time.monotonic() < deadline_s:
        try:
            if is_so():
                return
        except (UnreachableError, ProtocolError) as error:
            last_error = error
        for node in alive:
            if not node.running:
                raise UnreachableError(words_of_end(node))
        time.sleep(_LOOK_INTERVAL_S)
    version = alive[0].version
    msg = f"Kafka {version}: not so after {READY_S} s: {what} (last: {last_error})"
    raise UnreachableError(words_with_log(msg, alive[0]))
