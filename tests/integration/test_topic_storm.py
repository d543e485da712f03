"""Fifty connections that create and delete topics without heeding their quota: it holds, and what they are told is true."""

import asyncio
from pathlib import Path

from tests.adversary.good_client import GoodClient, GoodLoad
from tests.integration.tapped_gateway import tapped_gateway
from tests.integration.topic_storm import REFUSED, Storm

from kvota.admin import AdminClient
from kvota.localkafka import LocalKafka

RATE, SAMPLES, SECONDS = 20.0, 3, 6.0
ANSWERS_MIN = 11
BURST = RATE * SAMPLES
QUOTAS = f"""
[[quota]]
client_id = "storm"
controller_mutation_rate = {RATE}
"""


async def test_a_storm_of_topic_mutations_keeps_to_its_quota(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    storm = Storm(prefix="storm-", client_id="storm")
    window = {"controller.quota.window.num": SAMPLES, "controller.quota.window.size.seconds": 1}
    with tapped_gateway(tmp_path, kafka, quotas=QUOTAS, kafka_properties=window) as gateway:
        load = GoodLoad(value_bytes=0)
        with GoodClient(gateway.node(1), "", load, None) as neighbour:
            await storm.rage(gateway.node(1), SECONDS)
            waits = neighbour.waits(answers_min=ANSWERS_MIN)
        rows = gateway.recorded()

    found, allowed = storm.judge(kafka, rate=RATE, burst=BURST)

    assert BURST < found.partitions <= allowed
    assert storm.answers[REFUSED] > storm.connections
    charged = sum(float(str(row["value"])) for row in rows if row["outcome"] != "rejected")
    assert charged >= found.partitions
    async with AdminClient(kafka.bootstrap_servers) as admin:
        async with asyncio.timeout(60):  # the broker follows its controller
            there: set[str] | None = None
            while there != found.there:
                listed = await admin.list_topics()
                there = {name for name in listed if name.startswith(storm.prefix)}
        (await admin.delete_topics(sorted(found.there))).all()
    assert waits.answers >= ANSWERS_MIN
    assert waits.reconnects == 0
