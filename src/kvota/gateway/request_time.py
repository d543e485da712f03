"""Takes the time of a connection's steps, where REQUEST is charged; elsewhere no read is looked at for it."""

from time import time_ns
from typing import Protocol

from kvota.gateway.means import Means
from kvota.gateway.side import Side
from kvota.session.connection import Connection


class Driven(Protocol):
    """What is asked of a ``Driver``."""

    closing: bool

    @property
    def means(self) -> Means:
        """The gateway's parts."""
        ...

    @property
    def machine(self) -> Connection:
        """What is driven."""
        ...

    @property
    def client(self) -> Side:
        """The client's side."""
        ...

    @property
    def upstream(self) -> Side | None:
        """The broker's side, once it has accepted."""
        ...

    def look(self) -> None:
        """Carry out what the machine says."""
        ...


def charge_time_or_not(driver: Driven) -> None:
    """Charge what this connection takes of the loop, or do not, as quotas have it now."""
    is_charged = driver.means.shared.charges_time
    driver.machine.charge_time(is_charged=is_charged)
    driver.client.time_reads(are_charged=is_charged)
    if driver.upstream is not None:
        driver.upstream.time_reads(are_charged=is_charged)


def took(driver: Driven, began_ns: int, data: bytes | None = None) -> int:
    """A step is done, with ``data`` of the client; returns how long it has taken, in ns."""
    now_ns = time_ns()
    took_ns = now_ns - began_ns
    machine = driver.machine
    request_time = machine.request_time
    if request_time is None or driver.closing:
        return took_ns
    if data is None:
        request_time.took(took_ns, now_ns // 1000)
    else:
        request_time.took_from_client(data, took_ns, now_ns // 1000)
    if machine.commands or machine.pausing.deadline_changed:
        driver.look()
    return took_ns
