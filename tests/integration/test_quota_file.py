"""A gateway whose file of quotas is damaged: said, and traffic goes on under the quotas before."""

import resource
import subprocess
import sys
from pathlib import Path

from tests.integration.bandwidth_frames import produce_frame, produce_result
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import address, asked, gateway
from tests.unit.quota_api.written import alteration, altered, described, description

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka

TOPIC, FULL_TOPIC = "written-under-a-damaged-file", "written-under-a-full-disk"
FILE_BYTES_MAX = 100_000
KEY = "producer_byte_rate"
OTHER_USER = ({"user": "alice"}, {KEY: 5.0})


def test_a_half_written_file_is_said_and_what_was_in_force_before_holds(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    kafka.create_topic(TOPIC)
    path = tmp_path / "quotas.json"
    process = gateway(tmp_path, kafka.bootstrap_servers, enforce=("PRODUCE",))
    with process, RawClient(address(process)) as client:
        alter(client, "slow", 1_000.0)
        alter(client, "other", 1e9)  # the document before this one is kept
    whole = path.read_bytes()
    half = whole[: len(whole) // 2]
    path.write_bytes(half)

    code, said = checked(tmp_path)
    with process, RawClient(address(process)) as client:
        assert throttled_ms(process, kafka, "slow") > 10_000
        assert throttled_ms(process, kafka, "other") == 0
        found = described(asked(client, description(strict=False)))
        ((_, refusal, words),) = altered(asked(client, alteration(OTHER_USER)))
        assert path.read_bytes() == half  # nobody's work is written over
    log = process.log

    assert code == 2
    assert "quotas.json: cannot be used: it is no whole JSON document" in said
    assert found == {(("client-id", "slow"),): {KEY: 1_000.0}}
    assert (refusal, "must be mended first" in str(words)) == (-1, True)
    (line,) = (line for line in log.splitlines() if " ERROR " in line)
    assert "quotas.json cannot be used" in line
    assert "In force are the 1 entities of " in line
    assert "quotas.json.previous, as they were before the last alteration" in line

    path.write_bytes(whole)
    assert checked(tmp_path) == (0, "")


def test_a_disk_that_is_full_is_said_and_clients_are_held_to_what_is_stored(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    kafka.create_topic(FULL_TOPIC)
    path = tmp_path / "quotas.json"
    process = gateway(tmp_path, kafka.bootstrap_servers, enforce=("PRODUCE",))
    # Their document is larger than a file may be, which the gateway's log is not.
    many = [({"client-id": f"client-{number}".ljust(100)}, {KEY: 5.0}) for number in range(1_000)]
    lifted = ({"client-id": "slow"}, {KEY: None})
    with process, RawClient(address(process)) as client:
        alter(client, "slow", 1_000.0)
        before = path.read_bytes()
        limit_files(process, FILE_BYTES_MAX)

        told = altered(asked(client, alteration(lifted, *many)))

        assert {code for _, code, _ in told} == {-1}
        assert "stay as they were: quotas.json: File too large" in str(told[0][2])
        assert path.read_bytes() == before
        found = described(asked(client, description(strict=False)))
        assert found == {(("client-id", "slow"),): {KEY: 1_000.0}}
        assert throttled_ms(process, kafka, "slow", FULL_TOPIC) > 10_000
        assert throttled_ms(process, kafka, "other", FULL_TOPIC) == 0

        limit_files(process, resource.RLIM_INFINITY)
        told = altered(asked(client, alteration(lifted, *many)))
        assert {code for _, code, _ in told} == {0}
        assert throttled_ms(process, kafka, "slow", FULL_TOPIC) == 0
    assert len(path.read_bytes()) > FILE_BYTES_MAX
    assert process.log.count("quotas.json: File too large") == 1


def limit_files(process: GatewayProcess, most_bytes: int) -> None:
    """A file of it cannot become larger."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


def alter(client: RawClient, client_id: str, value: float) -> None:
    frame = alteration(({"client-id": client_id}, {KEY: value}))
    assert [code for _, code, _ in altered(asked(client, frame))] == [0]


def checked(folder: Path) -> tuple[int, str]:
    """What ``kvota gateway --check`` ends with, and says of faults."""
    command = [
        sys.executable,
        "-m",
        "kvota.app.cli.main",
        "gateway",
        "-c",
        "gateway.toml",
        "--check",
    ]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def throttled_ms(
    process: GatewayProcess, kafka: LocalKafka, client_id: str, topic: str = TOPIC
) -> int:
    """Of a Produce request of 50 KB that goes through to the broker."""
    host, port = address(process)
    frame = produce_frame(topic, value_bytes=50_000, client_id=client_id)
    with RawClient((host, port + 1 + kafka.nodes[0].node_id)) as client:
        code, throttle_ms = produce_result(asked(client, frame)[4:], topic)
    assert code == 0
    return throttle_ms
