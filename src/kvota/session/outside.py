"""What a conversation needs of the world around: it is asked for by ``Do.ERRAND``, and its result told.

The gateway runs the errands; whatever goes wrong with one is a result, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kvota.model.broker_settings import NO_SETTINGS, DescribedSetting, SettingChanges, Settings
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
        settings: of the gateway, which are stored with them.
    """

    changes: Sequence[KeyChange]
    by: str
    settings: SettingChanges = field(default_factory=lambda: NO_SETTINGS)


@dataclass(frozen=True, slots=True)
class AlterSettings:
    """Alter the gateway's settings and put them in force. The result: None, or a ``Refusal``; nothing is half done.

    Attributes:
        changes: what is to be otherwise.
        validate_only: find out whether it could be done, and leave it at that.
        by: who has asked for it, for the log.
    """

    changes: SettingChanges
    validate_only: bool
    by: str


class Owner(NamedTuple):
    """Whose a delegation token is.

    Attributes:
        name: of the user; None: that cannot be told.
        why: it cannot be told.
    """

    name: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class FindTokenOwner:
    """Find out whose a delegation token is that a broker has accepted. The result: an ``Owner``."""

    token_id: str


Errand = LookUpHosts | StoreQuotas | AlterSettings | FindTokenOwner


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


class BrokerSettings(Protocol):
    """The gateway's own settings under Kafka's names of a broker's."""

    @property
    def stored(self) -> Settings:
        """What is set dynamically."""
        ...

    @property
    def described(self) -> Sequence[DescribedSetting]:
        """All settings, as they are now."""
        ...

    @property
    def refusal(self) -> Refusal | None:
        """Why nobody may alter them over the network; None: who has the right may."""
        ...

    @property
    def may_lag(self) -> bool:
        """Whether others alter them, too, so that what is kept may be newer than ``stored``."""
        ...


class FixedQuotas:
    """Quotas that nobody alters over the network."""

    may_lag = False

    def __init__(self, quotas: ClientQuotas, refusal: Refusal) -> None:
        self.quotas = quotas
        self.refusal = refusal
