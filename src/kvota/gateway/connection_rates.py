"""How many connections an address may begin each second at one broker: Kafka's connection_creation_rate.

Source: ``ConnectionQuotas`` of Kafka 4.3 (KIP-612). A connection over the rate does not count against it; its
socket is kept for the throttle time, one sample at most, and then closed.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from kvota.engine.sampled_rate import SampledRate
from kvota.gateway.own_addresses import IP, literal_ip, plain_ip
from kvota.gateway.settings import ConnectionRateSettings
from kvota.model.client_quotas import CONNECTION_RATE_KEY, ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT

# Kafka's default, which counts nobody.
UNLIMITED = 2**31 - 1
# Of those that come by a port of all nodes and have not called one yet: no broker's id, and not ``UNKNOWN_NODE``.
ANY_NODE = -3
# So many addresses are counted at a time; a counter is some hundred bytes.
COUNTERS_MAX = 20_000
_FORGET_AFTER_MS = 3_600_000
_NOBODY: Mapping[str, IP] = {}


class ConnectionRates:
    """The limits in force, and what each address has used of them.

    Attributes:
        settings: how the rates are held; may be replaced.
    """

    def __init__(self, settings: ConnectionRateSettings) -> None:
        self.settings = settings
        self._default = UNLIMITED
        self._of_name: dict[str, int] = {}
        self._addresses: dict[str, IP] = {}
        # Of several names of one address the last one that was changed counts.
        self._names: dict[IP, dict[str, None]] = {}
        # Not a plain dict: finding its first keys costs a walk over all that have left.
        self._counters: OrderedDict[tuple[int, IP], SampledRate] = OrderedDict()

    def replace(self, quotas: ClientQuotas) -> frozenset[str]:
        """Other quotas are in force; returns the names of hosts that have to be looked up (``learn``)."""
        known, self._addresses = self._addresses, {}
        self._names.clear()
        self._of_name.clear()
        self._default = UNLIMITED
        return self.change(
            (
                KeyChange(entity, CONNECTION_RATE_KEY, values[CONNECTION_RATE_KEY])
                for entity, values in quotas.entries().items()
                if entity.ip is not None and CONNECTION_RATE_KEY in values
            ),
            known,
        )

    def change(
        self, changes: Iterable[KeyChange], known: Mapping[str, IP] = _NOBODY
    ) -> frozenset[str]:
        """These of the quotas are others now; costs nothing for those that are not among them.

        Args:
            changes: those of other keys, and of entities without an ip, are left out.
            known: addresses of names that need not be looked up.

        Returns:
            The names of hosts that have to be looked up (``learn``).
        """
        to_ask: dict[str, None] = {}
        for entity, key, value in changes:
            if entity.ip is None or key != CONNECTION_RATE_KEY:
                continue
            if entity.ip is DEFAULT:
                self._default = UNLIMITED if value is None else _whole(value)
                continue
            name = str(entity.ip)
            address = self._forget_address(name) or known.get(name) or literal_ip(name)
            to_ask.pop(name, None)
            if value is None:
                self._of_name.pop(name, None)
                continue
            self._of_name[name] = _whole(value)
            if address is None:
                to_ask[name] = None
            else:
                self._remember(name, address)
        return frozenset(to_ask)

    def learn(self, addresses: Mapping[str, str]) -> None:
        """These names mean these addresses."""
        for name, address in addresses.items():
            if name in self._of_name:
                self._forget_address(name)
                self._remember(name, plain_ip(address))

    def limit(self, host: str) -> int:
        """The connections an address may begin each second; ``UNLIMITED`` without a quota."""
        ip = literal_ip(host)
        names = None if ip is None else self._names.get(ip)
        return self._of_name[next(reversed(names))] if names else self._default

    def throttle_ms(self, host: str, node_id: int, now_ms: int, brokers: int = 1) -> int:
        """Count a connection; 0, or for how long its socket is kept because it is one too many.

        Args:
            host: the client's address.
            node_id: the broker for which it has come; ``ANY_NODE``: it has not said so yet.
            now_ms: Unix milliseconds.
            brokers: for one of so many: together they take so many times the limit.
        """
        ip, limit, window = literal_ip(host), self.limit(host), self.settings.window
        if limit == UNLIMITED or ip is None:  # whose address is not known has gone already
            return 0
        limit *= brokers
        counter = self._counters.get((node_id, ip))
        if counter is None:
            self._make_room(now_ms)
            counter = SampledRate(window, limit, forget_after_ms=_FORGET_AFTER_MS, born_ms=now_ms)
            self._counters[node_id, ip] = counter
        if limit == 0:  # from NaN; Kafka divides by it, and bounds what comes out
            return window.sample_ms
        counter.configure(window, limit)
        throttle_ms = counter.charge(1, now_ms)
        if throttle_ms <= 0:
            return 0
        counter.charge(-1, now_ms)
        return min(throttle_ms, window.sample_ms)

    def _remember(self, name: str, address: IP) -> None:
        self._addresses[name] = address
        self._names.setdefault(address, {})[name] = None

    def _forget_address(self, name: str) -> IP | None:
        """Returns the address that it had."""
        address = self._addresses.pop(name, None)
        if address is not None:
            names = self._names[address]
            del names[name]
            if not names:
                del self._names[address]
        return address

    def _make_room(self, now_ms: int) -> None:
        """For each new counter two others are looked at, so that those of no use do not pile up."""
        counters = self._counters
        for _ in range(min(2, len(counters))):
            key = next(iter(counters))
            counter = counters.pop(key)
            if not counter.is_as_new(now_ms):
                counters[key] = counter
        if len(counters) >= COUNTERS_MAX:
            counters.popitem(last=False)


def _whole(rate: float) -> int:
    """As Java makes an int of a double: cut, and 0 of what is no number."""
    return int(min(rate, UNLIMITED)) if rate == rate else 0  # noqa: PLR0124
