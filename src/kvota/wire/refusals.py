"""Hides whose connection it was in what a broker says of a request that it refuses.

Who may not do something to the cluster is told the request as the broker's own code prints it, with
``connectionId=HOST:PORT-HOST:PORT-…`` of the broker or, where the broker has passed it on, of the controller. What
stands there instead is as long, so every length in the answer stays right whatever its form is.
"""

import re

from kvota.wire.steps import STEP_BYTES, STEP_PARTS, Steps, at_once
from kvota.wire.varint import Frame

# DescribeAcls, CreateAcls, DeleteAcls, ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments,
# DescribeUserScramCredentials, AlterUserScramCredentials, UpdateFeatures, UnregisterBroker, AddRaftVoter,
# RemoveRaftVoter: those that are about the cluster and have a text for an error. AlterConfigs has one, too (``error_texts``).
KEYS = frozenset({29, 30, 31, 43, 45, 46, 50, 51, 57, 64, 80, 81})
HIDDEN = b"hidden"

_TOKEN = b"connectionId="
# A text ends at 32 KB; two addresses with host names are shorter by far.
_CONNECTION = re.compile(rb"connectionId=([^,()\x00-\x20]{1,600})")


def hide_connections(answer: Frame) -> Frame:
    """Returns the answer frame without the ends of connections; ``answer`` itself if it names none."""
    return at_once(hide_connections_in_steps(answer))


def hide_connections_in_steps(answer: Frame) -> Steps[Frame]:
    """Returns the same as ``hide_connections``, made a little at a time."""
    hidden: bytearray | None = None
    at = parts = 0
    while at < len(answer):
        # A token on the border of two steps is in the second one.
        found = answer.find(_TOKEN, at, at + STEP_BYTES)
        if found < 0:
            at += STEP_BYTES - len(_TOKEN) + 1
            yield
            continue
        at = found + len(_TOKEN)
        named = _CONNECTION.match(answer, found)
        if named is None:
            continue
        hidden = bytearray(answer) if hidden is None else hidden
        begin, end = named.span(1)
        hidden[begin:end] = HIDDEN.ljust(end - begin, b".")[: end - begin]
        at = end
        parts += 1
        if parts % STEP_PARTS == 0:
            yield
    return answer if hidden is None else bytes(hidden)
