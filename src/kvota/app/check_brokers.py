"""Whether brokers answer: those that gateway.toml names, and all that these name."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvota.app.config import GatewayConfig
from kvota.app.missing_extra import needs_extra
from kvota.gateway.dialling import why_unreachable
from kvota.gateway.knocking import knock
from kvota.model.address import Address, address_text
from kvota.model.errors import KvotaError, UsageError
from kvota.volumes.settings import ADMIN_PREFIXES
from kvota.wire.proxy_protocol import OWN_HEAD

if TYPE_CHECKING:
    from kvota.client.cluster import Cluster

_BOOTSTRAP = "upstream.bootstrap_servers"


@dataclass(frozen=True, slots=True)
class Answers:
    """What has come of connecting to brokers.

    Attributes:
        missing: a sentence for each that does not answer.
        note: which brokers were asked, or why only those of gateway.toml were.
    """

    missing: list[str]
    note: str


def ask_brokers(config: GatewayConfig) -> Answers:
    """Connect once to each bootstrap server, and then, logged in as the gateway's own connections are, to each broker of the cluster."""
    return asyncio.run(_asked(config))


async def _asked(config: GatewayConfig) -> Answers:
    servers = config.gateway.upstream
    said = await asyncio.gather(*(_knocked(config, server, _BOOTSTRAP) for server in servers))
    missing = [sentence for sentence in said if sentence]
    if len(missing) == len(servers):
        return Answers(missing, "")
    try:
        count, others = await _all_of_the_cluster(config)
    except KvotaError as error:
        note = (
            f"only {_BOOTSTRAP} were tried: which brokers there are could not be asked ({error}). "
            f"{ADMIN_PREFIXES[0]}* of [kafka] tell how the gateway itself logs in"
        )
        return Answers(missing, note)
    missing += others
    brokers = f"{count} broker{'s' if count > 1 else ''}"
    return Answers(missing, "" if missing else f"all {brokers} of the cluster answer")


async def _all_of_the_cluster(config: GatewayConfig) -> tuple[int, list[str]]:
    """Return how many brokers there are, and a sentence for each that does not answer.

    Raises:
        KvotaError: which ones there are cannot be asked.
    """
    cluster = _cluster(config)
    try:
        named = await _named(cluster, config)
        said = await asyncio.gather(*(_broker(cluster, node, config) for node in named.items()))
    finally:
        await cluster.close()
    return len(named), [sentence for sentence in said if sentence]


def _cluster(config: GatewayConfig) -> "Cluster":
    if config.gateway.tells_clients and not config.kafka.volumes.admin:
        msg = f"{_BOOTSTRAP} want to hear first where a client is"
        raise UsageError(msg)
    try:
        from kvota.app.own_cluster import own_cluster  # kio takes a while
    except ModuleNotFoundError as error:
        raise UsageError(needs_extra(error, "client")) from error
    return own_cluster(config, client_id="kvota-check")


async def _named(cluster: "Cluster", config: GatewayConfig) -> dict[int, Address]:
    connect_ms = config.gateway.limits.connect_ms
    try:
        async with asyncio.timeout(connect_ms / 1000):
            told = await cluster.metadata([])
    except TimeoutError as error:
        msg = f"no answer in {connect_ms} ms"
        raise UsageError(msg) from error
    return {node_id: (one.host, one.port) for node_id, one in sorted(told.brokers.items())}


async def _broker(cluster: "Cluster", node: tuple[int, Address], config: GatewayConfig) -> str:
    """Connect and log in to a broker that the cluster names."""
    node_id, address = node
    connect_ms = config.gateway.limits.connect_ms
    try:
        async with asyncio.timeout(connect_ms / 1000):
            await cluster.connection_to(node_id)
    except TimeoutError:
        reason = f"no answer in {connect_ms} ms"
    except KvotaError as error:
        reason = str(error)
    else:
        return ""
    where = address_text(*address)
    reason = reason.removeprefix(f"{where}: ")
    return (
        f"broker {node_id} of the cluster, {where}, does not answer: {reason}. The gateway must reach each broker where its "
        "advertised.listeners say"
    )


async def _knocked(config: GatewayConfig, address: Address, place: str) -> str:
    connect_ms, tls = config.gateway.limits.connect_ms, config.gateway.upstream_tls
    head = OWN_HEAD if config.gateway.tells_clients else b""
    try:
        await knock(address, timeout_s=connect_ms / 1000, tls=tls, head=head)
    except (OSError, ValueError, UsageError) as error:
        timed_out = isinstance(error, TimeoutError)
        reason = (
            f"no answer in {connect_ms} ms" if timed_out else why_unreachable(error, address, tls)
        )
        return f"{place}: {address_text(*address)} cannot be reached: {reason}"
    return ""
