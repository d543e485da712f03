"""What all drivers of a gateway work with."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from kvota.gateway.backlog import Backlog
from kvota.gateway.broker_addresses import BrokerAddresses
from kvota.gateway.callback_in_force import CallbackInForce
from kvota.gateway.errands import Errands
from kvota.gateway.journal import Journal
from kvota.gateway.settings import GatewayLimits
from kvota.gateway.turns import Turns
from kvota.metrics.gateway_counts import GatewayCounts
from kvota.session.shared import Shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The gateway's parts that each connection is driven with.

    ``numbers`` gives each connection one of its own.
    """

    loop: asyncio.AbstractEventLoop
    limits: GatewayLimits
    shared: Shared
    asking: CallbackInForce
    errands: Errands
    brokers: BrokerAddresses
    counts: GatewayCounts
    turns: Turns
    backlog: Backlog
    journal: Journal
    numbers: Iterator[int]
