"""Streams groups (KIP-1071), by Java's Kafka Streams: two members count exactly once, directly and through the gateway."""

import subprocess
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.tapped_gateway import tapped_gateway

from kvota.java.find import java_command
from kvota.localkafka import LocalKafka
from kvota.localkafka.jars.class_path import streams_classpath
from kvota.localkafka.jars.compile_java import compile_java

_SOURCE = Path(__file__).parent / "java/StreamsCounting.java"
NUMBERS, REMAINDERS = 2_000, 7
QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = "10GB/s"
consumer_byte_rate = "10GB/s"
"""


def counted(servers: str, group: str, folder: Path) -> list[str]:
    """What the application says of each step, without its own name."""
    classes = compile_java([_SOURCE], classpath=streams_classpath())
    done = subprocess.run(
        [
            *(str(java_command()), "-Xmx300m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"),
            *(f"-Djava.io.tmpdir={folder}", "-cp", f"{classes}:{streams_classpath()}"),
            *("StreamsCounting", servers, group, str(NUMBERS)),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
    return done.stdout.replace(group, "GROUP").splitlines()


def requests_of(http_url: str) -> dict[str, float]:
    """How many requests of each API the gateway has taken."""
    with urllib.request.urlopen(f"{http_url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    beginning = 'kvota_requests_total{api="'
    rows = [line.removeprefix(beginning) for line in lines if line.startswith(beginning)]
    return {row.partition('"')[0]: float(row.rpartition(" ")[2]) for row in rows}


@pytest.mark.timeout(600)
def test_a_streams_group_counts_the_same_through_the_gateway(
    kafka3: LocalKafka, tmp_path: Path
) -> None:
    direct = counted(kafka3.bootstrap_servers, "direct-group", tmp_path)
    with tapped_gateway(tmp_path / "gateway", kafka3, quotas=QUOTAS, http_port=0) as gateway:
        through = counted(gateway.bootstrap_servers, "through-group", tmp_path)
        requests = requests_of(gateway.process.http_url)
        gateway.assert_no_address_leaked()

    assert through == direct
    counts = Counter(str(number % REMAINDERS) for number in range(NUMBERS))
    meant = ", ".join(f"{key}={counts[key]}" for key in sorted(counts))
    assert direct[0] == f"counted: {{{meant}}}"
    assert direct[1].startswith("described: Stable, members 2, tasks {0=3, 1=3}")
    assert direct[-1] == "deleted: all"
    assert requests["StreamsGroupHeartbeat"] > 2
    assert requests["StreamsGroupDescribe"] > 0
    # Transactions of version 2 (KIP-890): a partition is in one with its first batch, offsets with their commit.
    assert requests["TxnOffsetCommit"] > 0
    assert {"AddPartitionsToTxn", "AddOffsetsToTxn"}.isdisjoint(requests)
