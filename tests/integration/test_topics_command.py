"""``kvota topics`` on a real broker and on a gateway before it, with and without room in the mutation quota."""

import asyncio
import io
import json
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.integration.brokers_in_step import await_quotas_in_force
from tests.integration.tapped_gateway import tapped_gateway

from kvota.admin import AdminClient, ClientQuotaAlteration, QuotaEntity
from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka

# Eleven windows of a second are kept: 22 partitions at once; the topic that makes it less than 0 is let through.
RATE, AT_ONCE = 2.0, 23
KEY = "controller_mutation_rate"


@dataclass
class Place:
    """Where to ask, with a quota of this client id."""

    servers: str
    folder: Path
    made: list[str] = field(default_factory=list)

    def run(self, words: str, *, client_id: str = "", typed: str = "") -> "Ended":
        """Run ``kvota topics``."""
        config = self.folder / f"{client_id or 'free'}.properties"
        config.write_text(f"client.id={client_id or 'free'}\n")
        line = ["topics", *words.split(), "--bootstrap-server", self.servers]
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr("sys.stdin", io.StringIO(typed))
            exit_code = main([*line, "--command-config", str(config)])
        return Ended(exit_code, out.getvalue(), err.getvalue())

    def known(self, *names: str) -> None:
        """Wait until the broker follows its controller."""
        end = time.monotonic() + 60
        while not set(names) <= set(self.run("list").stdout.splitlines()):
            assert time.monotonic() < end, names


@dataclass
class Ended:
    """How it ended, and what it has written."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def topics(self) -> dict[str, dict[str, Any]]:
        """The results, of ``--output json``."""
        content = json.loads(self.stdout)
        assert content["schema"] == 1
        return {each["topic"]: each for each in content["topics"]}


def limited(place: str, case: str) -> str:
    return f"topics-{place}-{case}"


CASES = ("said", "waits", "late")


@pytest.fixture(scope="module")
def places(
    kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Place]]:
    folder = tmp_path_factory.mktemp("topics")
    quotas = "".join(
        f'[[quota]]\nclient_id = "{limited("gateway", case)}"\n{KEY} = {RATE}\n' for case in CASES
    )
    with tapped_gateway(folder, kafka, quotas=quotas) as tapped:
        asyncio.run(limit(kafka.bootstrap_servers))
        await_quotas_in_force(kafka.nodes[0].address)
        yield {
            "kafka": Place(kafka.bootstrap_servers, folder),
            "gateway": Place(tapped.process.bootstrap_servers, folder),
        }


async def limit(servers: str) -> None:
    entities = {QuotaEntity(client_id=limited("kafka", case)) for case in CASES}
    async with AdminClient(servers) as admin:
        wanted = [ClientQuotaAlteration(entity, {KEY: RATE}) for entity in entities]
        (await admin.alter_client_quotas(wanted)).all()
        async with asyncio.timeout(60):
            while not entities <= set(await admin.describe_client_quotas()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture(params=["kafka", "gateway"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(places: dict[str, Place], where: str) -> Place:
    return places[where]


def test_topics_of_a_file_are_checked_created_and_described(place: Place, tmp_path: Path) -> None:
    one, two = (f"life-{uuid4().hex[:8]}" for _ in range(2))
    (tmp_path / "names").write_text(f"# of this test\n{one}\n\n  {two}\r\n")
    file = f"--from-file {tmp_path / 'names'}"

    checked = place.run(f"create {file} --partitions 2 --validate-only")
    assert checked.exit_code == 0, checked.stderr
    assert checked.stdout.startswith(f"{one}: the cluster would take it; partitions 2")
    made = place.run(
        f"create {file} no/topic --partitions 2 --replication-factor 1 --config retention.ms=3600000 --output json"
    )
    assert made.exit_code == 1, made.stderr
    assert {name: each["result"] for name, each in made.topics.items()} == {
        "no/topic": "refused",
        one: "created",
        two: "created",
    }
    assert made.topics[one]["partitions"] == 2
    assert (made.topics["no/topic"]["error"], made.topics["no/topic"]["error_code"]) == (
        "invalid_topic_exception",
        17,
    )
    place.known(one, two)

    shown = place.run(f"describe nowhere {two} --output json")
    assert shown.exit_code == 1
    assert shown.topics["nowhere"]["error_code"] == 3
    first, _ = shown.topics[two]["partitions"]
    assert first["replicas"] == first["in_sync"]
    assert first["leader"] in first["replicas"]


def test_topics_that_are_there_grow_and_go(place: Place) -> None:
    one, two = (f"grown-{uuid4().hex[:8]}" for _ in range(2))
    assert place.run(f"create {one} {two}").exit_code == 0
    place.known(one, two)

    again = place.run(f"create {one}")
    assert again.exit_code == 1
    assert f'topic "{one}" cannot be created: topic_already_exists (36)' in again.stdout
    fine = place.run(f"create {one} --if-not-exists")
    assert (fine.exit_code, fine.stdout) == (0, f"{one}: is there already\n")

    grown = place.run("alter --from-file - --partitions 5", typed=one)
    assert (grown.exit_code, grown.stdout) == (0, f"{one}: altered; partitions 5\n")
    fewer = place.run(f"alter {one} --partitions 3")
    assert fewer.exit_code == 1
    assert "invalid_partitions (37)" in fewer.stdout

    while len(place.run(f"describe {one} --partitions").stdout.splitlines()) < 6:
        pass  # the broker follows its controller
    everything = place.run("describe")
    assert everything.exit_code == 0
    # Beside a topic with a long name the table may stand in two parts, each with the names in front.
    rows = [line.split() for line in everything.stdout.splitlines() if line.startswith(one)]
    assert [cell for row in rows for cell in row[1:]] == ["5", "1", "0", "0"]

    gone = place.run(f"delete {one} {two} nowhere")
    assert gone.exit_code == 1
    assert gone.stdout.splitlines()[:2] == [f"{one}: deleted", f"{two}: deleted"]
    assert "unknown_topic_or_partition (3)" in gone.stdout.splitlines()[2]
    absent = place.run("delete nowhere --if-exists")
    assert (absent.exit_code, absent.stdout) == (0, "nowhere: is not there\n")


def test_where_the_quota_is_spent_it_says_how_long_and_does_not_repeat_it(
    place: Place, where: str
) -> None:
    client_id = limited(where, "said")
    large, small = (f"said-{uuid4().hex[:8]}" for _ in range(2))
    first = place.run(f"create {large} --partitions {AT_ONCE + 79}", client_id=client_id)
    assert first.exit_code == 0, first.stdout

    # It lacks 80 partitions, less what has come meanwhile: up to forty seconds.
    begin = time.monotonic()
    ended = place.run(f"create {small} --partitions 1 --output json", client_id=client_id)
    assert time.monotonic() - begin < 20  # without waiting
    assert ended.exit_code == 1
    told = ended.topics[small]
    assert (told["result"], told["error_code"]) == ("throttled", 89)
    assert 4_000 < told["throttle_time_ms"] <= 40_000
    assert (
        "1 of 1 topics: the quota on topic mutations is spent; try them again in " in ended.stderr
    )
    assert small not in place.run("list").stdout.splitlines()

    as_text = place.run(f"delete {large}", client_id=client_id)
    assert as_text.exit_code == 1
    assert f'topic "{large}" cannot be deleted: throttling_quota_exceeded (89)' in as_text.stdout


def test_with_wait_it_goes_on_until_it_is_done(place: Place, where: str) -> None:
    client_id = limited(where, "waits")
    names = [f"waits-{uuid4().hex[:8]}" for _ in range(AT_ONCE + 3)]
    begin = time.monotonic()
    ended = place.run(f"create {' '.join(names)} --partitions 1 --wait", client_id=client_id)

    assert ended.exit_code == 0, ended.stdout + ended.stderr
    assert time.monotonic() - begin >= 3 / RATE - 0.05
    assert [line.partition(":")[0] for line in ended.stdout.splitlines()] == names
    place.known(*names)


def test_with_wait_it_gives_up_when_time_is_up(place: Place, where: str) -> None:
    client_id = limited(where, "late")
    large, small = (f"late-{uuid4().hex[:8]}" for _ in range(2))
    assert (
        place.run(f"create {large} --partitions {AT_ONCE + 79}", client_id=client_id).exit_code == 0
    )

    ended = place.run(f"create {small} --wait --timeout 12s", client_id=client_id)
    assert ended.exit_code == 1
    assert "throttling_quota_exceeded (89)" in ended.stdout
    assert "or with a longer --timeout" in ended.stderr
    assert small not in place.run("list").stdout.splitlines()


def test_a_cluster_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    ended = Place("127.0.0.1:1", tmp_path).run("list")

    assert (ended.exit_code, ended.stdout) == (3, "")
    assert "127.0.0.1:1" in ended.stderr
