"""A storm of topic mutations at a plain broker and at a gateway, each without and with a quota; and how long others wait for Metadata.

    ./run bench topic_storm [--seconds 60] [--connections 50] [--rate 20] [--way "gateway, quota"]

Fifty connections of one client id create and delete topics of the same thirty names, one to three in a request, and heed no throttle
time. What was carried out is counted in the cluster's own log of metadata, and held against rate x time + burst + one topic's
partitions; each answer that somebody was given must be true there. Another client asks for Metadata, from a process of its own, every 10 ms.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.adversary.good_client import GoodClient, GoodLoad, Waits  # noqa: E402
from tests.integration.topic_storm import REFUSED, Storm  # noqa: E402

from kvota.admin import AdminClient, ClientQuotaAlteration, QuotaEntity  # noqa: E402
from kvota.app.gateway_process import GatewayProcess, gateway_toml  # noqa: E402
from kvota.localkafka import LocalKafka  # noqa: E402

RESULT = Path(__file__).parent / "results/topic_storm.json"
HOST = "127.0.0.2"
KEY = "controller_mutation_rate"
WINDOWS = 11
WAYS = ("broker, quota", "gateway, quota", "broker, no quota", "gateway, no quota")
REST_S = 5.0
# Topics come and go: what is deleted leaves its files soon, and they are small.
PROPERTIES = {"log.index.size.max.bytes": "4096", "file.delete.delay.ms": "1000"}


async def limit(servers: str, client_id: str, rate: float) -> None:
    async with AdminClient(servers) as admin:
        entity = QuotaEntity(client_id=client_id)
        (await admin.alter_client_quotas([ClientQuotaAlteration(entity, {KEY: rate})])).all()
        while entity not in await admin.describe_client_quotas():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def tidy(kafka: LocalKafka, prefix: str) -> None:
    async with AdminClient(kafka.bootstrap_servers) as admin:
        there = [name for name in await admin.list_topics() if name.startswith(prefix)]
        (await admin.delete_topics(there)).all()


def alone(address: tuple[str, int], seconds: float) -> Waits:
    """How long the neighbour waits without a storm."""
    with GoodClient(address, "", GoodLoad(value_bytes=0), None) as neighbour:
        time.sleep(seconds)
        return neighbour.waits()


def run_way(
    kafka: LocalKafka, way: str, address: tuple[str, int], asked: argparse.Namespace
) -> dict[str, object]:
    client_id = way.replace(", ", "-").replace(" ", "-")
    storm = Storm(prefix=f"{client_id}-", client_id=client_id, connections=asked.connections)
    with GoodClient(address, "", GoodLoad(value_bytes=0), None) as neighbour:
        asyncio.run(storm.rage(address, asked.seconds))
        waits = neighbour.waits()
    found, allowed = storm.judge(kafka, rate=asked.rate, burst=asked.rate * WINDOWS)
    asyncio.run(tidy(kafka, storm.prefix))
    is_limited = way.endswith(", quota")
    result: dict[str, object] = {
        "seconds": round(storm.seconds, 2),
        "partitions_carried_out": found.partitions,
        "partitions_allowed": round(allowed, 1) if is_limited else None,
        "mutations_carried_out": found.mutations,
        "requests": len(storm.waits_s),
        "topics_refused_by_quota": storm.answers[REFUSED],
        "metadata_of_others": asdict(waits),
    }
    held = f" of {allowed:.0f} allowed" if is_limited else ""
    print(
        f"{way:<20}{found.partitions:>7} partitions{held} in {storm.seconds:.1f} s, {storm.answers[REFUSED]} topics refused; "
        f"Metadata of others p50 {waits.p50_ms:.1f} ms, p99 {waits.p99_ms:.1f} ms, worst {waits.worst_ms:.0f} ms",
        flush=True,
    )
    if is_limited and found.partitions > allowed:
        result["failed"] = "more than the quota allows"
        print(f"{way}: more than the quota allows", file=sys.stderr)
    return result


def main() -> int:
    options = argparse.ArgumentParser(description="a storm of topic mutations")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--connections", type=int, default=50)
    options.add_argument("--rate", type=float, default=20)
    options.add_argument("--way", choices=WAYS, help="only one of them")
    asked = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kvota-storm-") as folder,
        LocalKafka(host=HOST, properties=PROPERTIES) as kafka,
    ):
        config = gateway_toml(
            upstream=kafka.bootstrap_servers,
            node_ids="0-2",
            enforce={"CONTROLLER_MUTATION": True},
        )
        quotas = f'[[quota]]\nclient_id = "gateway-quota"\n{KEY} = {asked.rate}\n'
        asyncio.run(limit(kafka.bootstrap_servers, "broker-quota", asked.rate))
        with GatewayProcess(Path(folder), config=config, quotas=quotas) as gateway:
            addresses = {
                "broker": kafka.nodes[0].address,
                "gateway": ("127.0.0.1", gateway.first_port + 2),
            }
            found: dict[str, object] = {}
            for name, address in addresses.items():
                waits = alone(address, min(10.0, asked.seconds))
                found[f"{name}, no storm"] = {"metadata_of_others": asdict(waits)}
                print(f"{name + ', no storm':<20}Metadata p50 {waits.p50_ms:.1f} ms, p99 {waits.p99_ms:.1f} ms")  # fmt: skip
            for way in WAYS if asked.way is None else (asked.way,):
                time.sleep(REST_S)
                found[way] = run_way(kafka, way, addresses[way.partition(",")[0]], asked)
    kept = json.loads(RESULT.read_text())["ways"] if RESULT.exists() else {}
    result = {"rate": asked.rate, "connections": asked.connections, "ways": kept | found}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if any("failed" in way for way in found.values() if isinstance(way, dict)) else 0


if __name__ == "__main__":
    sys.exit(main())
