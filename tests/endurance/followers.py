"""Two gateways that share a topic of quotas and settings: each has what the other one has acknowledged, soon, also after brokers' deaths."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from kafka import KafkaAdminClient
from tests.endurance.alterations import gateway_with_quotas, wait_until_it_takes_them
from tests.endurance.findings import Findings
from tests.integration.raw_client import RawClient
from tests.integration.settings_client import CLASS, GROUP, GROUPS, NUM, Settings, alter, dynamic
from tests.integration.test_client_quotas import address, asked
from tests.unit.quota_api.written import alteration, altered, described, description

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka

KEY = "producer_byte_rate"
TOPIC = "followed-quotas"
# One after the other: a window, the class of the quota callback with a property of its own, and both gone.
SETTINGS: tuple[Settings, ...] = (
    {NUM: "5"},
    {CLASS: GROUPS, GROUP: "team-"},
    {CLASS: None, GROUP: None, NUM: None},
)
_FOLLOWED = description(("user", 0, "followed"))
_WAIT_S, _LOOK_S = 60.0, 0.005


@dataclass(frozen=True, kw_only=True)
class Followers:
    """What happens.

    Attributes:
        alterations: so many before the first death, and after each one, by the two gateways in turn.
        settings: so often each of SETTINGS is altered as well, there.
        deaths: so often the leader of the topic is killed.
        within_ms: so soon after one gateway's answer the other one describes what it has acknowledged.
    """

    alterations: int
    settings: int
    deaths: int
    within_ms: float


def run_followers(kafka: LocalKafka, folder: Path, plan: Followers) -> Findings:
    """Alterations by two gateways in turn; the time counts from the one's answer to the other one's description."""
    found = Findings()
    answered_ms = []
    with (
        gateway_with_quotas(kafka, folder / "a", "topic", TOPIC) as first,
        gateway_with_quotas(kafka, folder / "b", "topic", TOPIC) as second,
    ):
        both = _Both((first, second), plan, found)
        for process in both.gateways:
            wait_until_it_takes_them(process)
        both.alter_in_turn("all brokers there")
        for death in range(1, plan.deaths + 1):
            leader = _leader(kafka)
            kafka.kill(leader)
            killed_s = time.monotonic()
            try:
                # The first one waits for another leader, and counts, too.
                both.alter_in_turn(f"after death {death}")
                answered_ms.append(round((both.first_answered_s - killed_s) * 1_000))
            finally:
                kafka.start_node(leader)
        logs = first.log + second.log
    for name in ("a", "b"):
        kept = json.loads((folder / name / "quotas.json").read_text())["quotas"]
        found.expect(
            kept == [{"user": "followed", "values": {KEY: both.last}}], f"{name} has kept {kept}"
        )
    found.figures["from a death to the next answer, ms"] = answered_ms
    found.expect("Traceback" not in logs, "a gateway's log has a stack trace")
    return found


class _Both:
    def __init__(
        self, gateways: tuple[GatewayProcess, GatewayProcess], plan: Followers, found: Findings
    ) -> None:
        self.gateways = gateways
        self.first_answered_s = 0.0
        self._plan = plan
        self._found = found
        self._number = 0  # of values
        self._turns = 0  # of settings
        self._settings: Settings = {}

    @property
    def last(self) -> float:
        """The value that was acknowledged last."""
        return float(self._number)

    def alter_in_turn(self, when: str) -> None:
        took_ms: list[float] = []
        for _ in range(self._plan.alterations):
            self._number += 1
            one, other = self._turn()
            answered_s = _altered(one, float(self._number))
            if not took_ms:
                self.first_answered_s = answered_s
            took_ms.append((_described(other, float(self._number)) - answered_s) * 1_000)
        self._judge(when, took_ms)
        self._alter_settings(when)

    def _alter_settings(self, when: str) -> None:
        took_ms: list[float] = []
        for settings in SETTINGS * self._plan.settings:
            self._settings = {
                name: value for name, value in {**self._settings, **settings}.items() if value
            }
            self._turns += 1
            one, other = self._turn()
            took_ms.append(_settings_followed_ms(one, other, settings, self._settings))
        self._judge(f"{when}, settings", took_ms)

    def _judge(self, when: str, took_ms: list[float]) -> None:
        self._found.figures[when] = {
            "alterations": len(took_ms),
            "median_ms": round(median(took_ms), 1),
            "worst_ms": round(max(took_ms), 1),
        }
        self._found.expect(
            max(took_ms) < self._plan.within_ms,
            f"{when}: {max(took_ms):.0f} ms from the one's answer to the other one's description",
        )

    def _turn(self) -> tuple[GatewayProcess, GatewayProcess]:
        """Who is asked, and who follows."""
        number = (self._number + self._turns) % 2
        return self.gateways[number], self.gateways[1 - number]


def _altered(process: GatewayProcess, value: float) -> float:
    """When it was answered; while brokers have no controller nobody can say who may, so it is asked again."""
    frame = alteration(({"user": "followed"}, {KEY: value}))
    end = time.monotonic() + _WAIT_S
    while True:
        with RawClient(address(process)) as client:
            ((_, code, words),) = altered(asked(client, frame))
        if not code:
            return time.monotonic()
        assert time.monotonic() < end, (words, process.log[-3_000:])
        time.sleep(_LOOK_S)


def _described(process: GatewayProcess, value: float) -> float:
    """When it was described first."""
    wanted = {(("user", "followed"),): {KEY: value}}
    with RawClient(address(process)) as client:
        _wait(lambda: described(asked(client, _FOLLOWED)) == wanted, process)
    return time.monotonic()


def _settings_followed_ms(
    one: GatewayProcess, other: GatewayProcess, altered: Settings, expected: Settings
) -> float:
    """From the one's answer until the other one describes these."""
    end = time.monotonic() + _WAIT_S
    with RawClient(address(one)) as client, RawClient(address(other)) as follower:
        while (answer := alter(client, altered))[0]:
            assert time.monotonic() < end, (answer, one.log[-3_000:])
            time.sleep(_LOOK_S)
        answered_s = time.monotonic()
        _wait(lambda: dynamic(follower) == expected, other)
    return (time.monotonic() - answered_s) * 1_000


def _wait(is_so: Callable[[], bool], process: GatewayProcess) -> None:
    end = time.monotonic() + _WAIT_S
    while not is_so():
        assert time.monotonic() < end, process.log[-3_000:]
        time.sleep(_LOOK_S)


def _leader(kafka: LocalKafka) -> int:
    client = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    (found,) = client.describe_topics([TOPIC])
    client.close()
    leader: int = found["partitions"][0]["leader_id"]
    return leader
