"""What a conversation needs of the world around: it is asked for by ``Do.ERRAND``, and its result told.

The gateway runs the errands; whatever goes wrong with one is a result, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kvota.model.client_quotas import ClientQuotas, KeyChange


class Refusal(NamedTuple):
    """Why something was not done: an error code of Kafka's, and words."""

    error_code: int
    message: str | None


@dataclass(frozen=True, slots=True)
class LookUpHosts:
    """Find out which of these names of hosts nobody knows. The result: a set of them."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class StoreQuotas:
    """Store changed quotas and put them in force. The result: None, or a ``Refusal``; nothing is half done.

    Attributes:
        changes: what is to be otherwise.
        by: who has asked for it, for the log.
    """

    changes: Sequence[KeyChange]
    by: str


Errand = LookUpHosts | StoreQuotas


class QuotaSource(Protocol):
    """Where the configured quotas come from."""

    @property
    def quotas(self) -> ClientQuotas:
        """Those in force."""
        ...

    @property
    def refusal(self) -> Refusal | None:
        """Why nobody may alter them over the network; None: who has the right may."""
        ...

    @property
    def may_lag(self) -> bool:
        """Whether others alter them, too, so that what is stored may be newer than ``quotas``."""
        ...


class FixedQuotas:
    """Quotas that nobody alters over the network."""

    may_lag = False

    def __init__(self, quotas: ClientQuotas, refusal: Refusal) -> None:
        self.quotas = quotas
        self.refusal = refusal
