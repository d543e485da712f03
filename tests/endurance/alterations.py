"""Alterations of quotas while the gateway is killed: each acknowledged one is there, and none is half."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.endurance.findings import Findings
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import address, asked
from tests.unit.quota_api.written import alteration, altered, described, description

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

STORES = ("file", "topic")
KEYS = ("producer_byte_rate", "consumer_byte_rate")
USERS = description(("user", 2, None))
# Long names make the largest alterations of several MB.
NAME_CHARS = 500
# So long before its answer comes an alteration may be killed, until one has been answered.
_ANSWER_S = 0.5
_READY_S = 30.0
_LOOK_S = 0.02

# The one value that all keys of a user have, by user.
Values = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Alterations:
    """How the gateway is killed.

    Attributes:
        kills: how often, each time while an alteration is not answered.
        users: among whom alterations go round.
        many: one in four alterations is of so many users, two values each; and each second kill is during one.
        seed: of all that is random.
    """

    kills: int
    users: int
    many: int
    seed: int


def run_alterations(kafka: LocalKafka, folder: Path, store: str, plan: Alterations) -> Findings:
    """One alteration after the other; each kill comes while one is not answered."""
    rng = Random(plan.seed)
    process = gateway_with_quotas(kafka, folder, store, f"altered-{plan.seed}")
    known: Values = {}
    count = many = lost = half = kept = 0
    with process:
        wait_until_it_takes_them(process)
        for number in range(plan.kills):
            size = plan.many if number % 2 else 1
            acknowledged, waiting = _altered_until_killed(process, plan, rng, count, size)
            process.start()
            wait_until_it_takes_them(process)
            count += len(acknowledged)
            known |= {user: value for values in acknowledged for user, value in values.items()}
            found, halves = _found(process)
            half += halves
            there = {user for user, value in waiting.items() if found.get(user) == value}
            half += 0 < len(there) < len(waiting)
            kept += bool(there)
            many += len(waiting) > 1
            expected = known | {user: waiting[user] for user in there}
            lost += sum(found.get(user) != value for user, value in expected.items())
            known = expected
    found_all = Findings(
        {
            "kills": plan.kills,
            "acknowledged": count,
            "lost": lost,
            "half": half,
            "not answered, and there": kept,
            "not answered, of many users": many,
            "values in one of many users": plan.many * len(KEYS),
        }
    )
    found_all.expect(count > plan.kills, "hardly any was acknowledged")
    found_all.expect(many == plan.kills // 2, "no kill came during a large one")
    found_all.expect(not lost, f"{lost} acknowledged values are not there")
    found_all.expect(not half, f"{half} alterations are there in part")
    log = process.log
    found_all.expect("cannot be used" not in log, "the store was damaged")
    found_all.expect("Traceback" not in log, "the gateway's log has a stack trace")
    return found_all


def gateway_with_quotas(kafka: LocalKafka, folder: Path, store: str, topic: str) -> GatewayProcess:
    """One that keeps its quotas there; not started yet."""
    config = gateway_toml(upstream=kafka.bootstrap_servers, node_ids="0-4", source=store)
    if store == "topic":
        config = config.replace("[quotas]", f'[quotas]\ntopic = "{topic}"')
    return GatewayProcess(folder, config=config, quotas="")


def wait_until_it_takes_them(process: GatewayProcess) -> None:
    """A gateway that has not read its topic yet refuses alterations."""
    nothing = alteration(({"user": "nobody"}, {KEYS[0]: None}))
    end = time.monotonic() + _READY_S
    with RawClient(address(process)) as client:
        while altered(asked(client, nothing))[0][1]:
            assert time.monotonic() < end, process.log[-3_000:]
            time.sleep(_LOOK_S)


def _altered_until_killed(
    process: GatewayProcess, plan: Alterations, rng: Random, begin: int, last_size: int
) -> tuple[list[Values], Values]:
    """Returns what was acknowledged, in its order, and the one that was not: of so many users."""
    acknowledged: list[Values] = []
    took_s: dict[int, float] = {}
    sizes = [plan.many if rng.random() < 1 / 4 else 1 for _ in range(rng.randrange(2, 7))]
    with RawClient(address(process)) as client:
        for size in sizes:
            values = _values(plan, rng, size, begin + len(acknowledged) + 1)
            sent_s = time.monotonic()
            client.send(_alteration_of(values))
            assert {code for _, code, _ in altered(client.frame())} == {0}
            took_s[size] = time.monotonic() - sent_s
            acknowledged.append(values)
        values = _values(plan, rng, last_size, begin + len(acknowledged) + 1)
        frame = _alteration_of(values)
        client.send(frame)
        time.sleep(rng.uniform(0, took_s.get(last_size, _ANSWER_S)))
        process.kill()
    return acknowledged, values


def _values(plan: Alterations, rng: Random, size: int, number: int) -> Values:
    users = rng.sample(range(plan.users), size)
    return {f"user-{user}-".ljust(NAME_CHARS, "x"): float(number) for user in users}


def _alteration_of(values: Mapping[str, float]) -> bytes:
    return alteration(
        *(({"user": user}, dict.fromkeys(KEYS, value)) for user, value in values.items())
    )


def _found(process: GatewayProcess) -> tuple[Values, int]:
    """What each user has; and how many have one key without the other."""
    with RawClient(address(process)) as client:
        entries = described(asked(client, USERS))
    found = {str(entity[0][1]): values for entity, values in entries.items()}
    half = sum(len(set(values.values())) != 1 or len(values) != 2 for values in found.values())
    return {user: values[KEYS[0]] for user, values in found.items() if KEYS[0] in values}, half
