"""What is asked of whatever holds quotas: a cluster, a gateway, or what a test has in their place."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kvota.admin import Results
from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.planning.wanted_quotas import Difference

# A controller writes no more values in one request.
VALUES_PER_REQUEST_MAX = 10_000


class NotAllowedError(UsageError):
    """This user may not do that."""


class LeftOut(NamedTuple):
    """A value in force that a file of quotas cannot have."""

    entity: QuotaEntity
    key: str
    sentence: str


class InForce(NamedTuple):
    """What is there at a moment."""

    quotas: ClientQuotas
    left_out: Sequence[LeftOut]


class AlterableQuotas(Protocol):
    """Quotas that can be looked at and altered."""

    async def cluster_id(self) -> str | None:
        """The cluster's own name; None: it does not say."""
        ...

    async def in_force(self) -> InForce:
        """Look.

        Raises:
            NotAllowedError: this user may not see them.
            KvotaError: nobody answers, or the answer is an error.
        """
        ...

    async def check(self, differences: Sequence[Difference]) -> None:
        """Have a change checked, and change nothing.

        Raises:
            NotAllowedError: this user may not alter quotas.
            UsageError: some of it would be refused; names all of that.
            KvotaError: nobody answers.
        """
        ...

    async def alter(self, differences: Sequence[Difference]) -> Results[QuotaEntity, None]:
        """Change them with one request, of at most ``VALUES_PER_REQUEST_MAX``; an entity is altered wholly or not at all.

        Raises:
            KvotaError: it cannot be asked for; nothing was sent.
        """
        ...

    async def until_in_force(self, differences: Sequence[Difference]) -> None:
        """Wait until all of it is shown: a broker follows its controller.

        Raises:
            UnreachableError: it is not in time.
        """
        ...
