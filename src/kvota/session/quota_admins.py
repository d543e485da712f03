"""Who may alter quotas where the cluster cannot be asked, or has nobody who could say."""

from dataclasses import dataclass
from ipaddress import ip_address

from kvota.session.principal import ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAdmins:
    """A list of those who may; without any of these, nobody.

    Attributes:
        users: who has logged in by one of these names.
        hosts: who comes from one of these addresses.
        loopback: who comes from this machine; only where the gateway listens nowhere else.
    """

    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    loopback: bool = False

    def may_alter(self, user: str, host: str) -> bool:
        """True where this user, or a client from this address, is on the list."""
        if user != ANONYMOUS and user in self.users:
            return True
        return host in self.hosts or (self.loopback and is_loopback(host))


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can come from or reach."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
