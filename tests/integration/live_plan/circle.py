"""Once round the circle with a plan: tenants of known demand in shadow mode, a plan by the command, the same tenants under it.

All by what a user has: ``kvota recommend`` with its options, ``kvota quotas apply`` through a gateway, ``enforce = true`` with
``token_bucket``. Judged from the record of the second run.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.endurance.findings import Findings
from tests.integration.live_plan import fair
from tests.integration.live_plan.clients import TOPIC, secret_of, send_all, warm_up
from tests.integration.live_plan.demand import KB, TENANTS, Demand

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_type import QuotaType
from kvota.store.quotas_yaml import load_document

MB = 1_000 * KB
OPERATOR = "operator"
USERS = {name: secret_of(name) for name in (OPERATOR, *(tenant.name for tenant in TENANTS))}
# At most so much of a behaving tenant's requests may be throttled, and in so many seconds more let in than there is.
THROTTLED_MAX, OVER_MAX = 0.001, 0.001
SHARE_WITHIN = 0.05
# Buckets are full at first: so long a tenant may do more than its limit, its burst.
SETTLE_S = 3
_LOGIN = "client.quota.callback.kafka.admin"
# Where the machine has had too much other work for the demand, it comes once more.
TRIES, LATE_S_MAX = 6, 0.4
# A gateway or a broker stands still with the machine, too, which no demand is late for: a plan that does not hold misses each time.
MISSES = 3
# A gateway has what another one has altered within a second; more where the machine has other work.
FOLLOWS_S = 60.0


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str


Kvota = Callable[..., Said]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One round.

    Attributes:
        demand: of the tenants.
        capacity: of each broker, in bytes per second.
        over_max_s: so many seconds may be above it, however few there are.
    """

    demand: Demand
    capacity: int
    over_max_s: int = 0

    @property
    def options(self) -> list[str]:
        """What an operator says behind ``kvota recommend``, beside the record."""
        weights = [tenant for tenant in self.demand.tenants if tenant.weight != 1]
        return [
            *("--capacity", f"PRODUCE={self.capacity / MB:g}MB/s"),
            *(
                word
                for tenant in weights
                for word in ("--weight", f"{tenant.name}={tenant.weight:g}")
            ),
            # A trial of some seconds, for gateways that will count by token buckets; nobody's usual rate is sacred.
            *("--min-hours", "0", "--min-events", "20", "--allow-below-median"),
            *("--algorithm", "token_bucket"),
        ]


def make_topic(kafka: LocalKafka) -> None:
    """The topic of all tenants: a partition for each broker, all of which are warm then."""
    kafka.create_topic(TOPIC, partitions=len(kafka.nodes))
    asyncio.run(warm_up([kafka.bootstrap_servers.partition(",")[0]]))


@dataclass(frozen=True)
class Recorded:
    """A run in shadow mode: the record of each gateway, when it began, for ``--since``, and how late its demand came."""

    records: Sequence[Path]
    since: str
    late_s: float


def recorded(trial: Trial, kafka: LocalKafka, folder: Path) -> Recorded:
    """Run the tenants in shadow mode."""
    for number in range(1, TRIES + 1):
        with ExitStack() as stack:
            gateways = _gateways(stack, trial, kafka, folder / str(number), enforced=False)
            servers = [each.bootstrap_servers for each in gateways]
            sent = asyncio.run(send_all(trial.demand, servers))
        if sent.late_s <= LATE_S_MAX or number == TRIES:
            break
    return Recorded(
        [gateway.folder / "record" for gateway in gateways],
        datetime.fromtimestamp(sent.began_us / 1e6, UTC).isoformat(),
        sent.late_s,
    )


def judged(trial: Trial, kafka: LocalKafka, folder: Path, plan: Path, kvota: Kvota) -> Findings:
    """Run the tenants with a plan applied, and judge what was let in by the record and the plan."""
    planned = {
        line["user"]: line for line in json.loads(plan.with_suffix(".json").read_text())["lines"]
    }
    misses = 0
    for number in range(1, TRIES + 1):
        with ExitStack() as stack:
            gateways = _gateways(stack, trial, kafka, folder / str(number), enforced=True)
            servers = [each.bootstrap_servers for each in gateways]
            if number == 1:
                _apply(plan, servers[0], folder, kvota)
            _await_plan(plan, servers, folder, kvota)
            sent = asyncio.run(send_all(trial.demand, servers))
        if sent.late_s > LATE_S_MAX and number < TRIES:
            continue
        rows = _rows([gateway.folder / "record" for gateway in gateways])
        found = _Judge(trial, planned, rows, sent.began_us).findings()
        misses += bool(found.missed)
        if not found.missed or misses == MISSES:
            break
    with ExitStack() as stack:
        (gateway, *_) = _gateways(stack, trial, kafka, folder / "undone", enforced=True)
        # Until it has read the topic it has nothing to undo, and says so.
        _await_plan(plan, [gateway.bootstrap_servers], folder, kvota)
        _undo(plan, gateway.bootstrap_servers, folder, kvota)
    found.figures["runs"] = {
        "enforced": {"late_s": round(sent.late_s, 3), "tries": number, "misses": misses}
    }
    return found


def recommended(
    trial: Trial, place: Sequence[str], plan: Path, kvota: Kvota
) -> Mapping[str, object]:
    """Make the plan by the command, as YAML and, beside it, as JSON."""
    said = kvota("recommend", *place, *trial.options, "--plan-file", str(plan), "--output", "json")
    assert said.code == 0, said.err
    plan.with_suffix(".json").write_text(said.out)
    found: Mapping[str, object] = json.loads(said.out)
    return found


def _apply(plan: Path, server: str, folder: Path, kvota: Kvota) -> None:
    """Bring the plan into force through one gateway."""
    _once_read(kvota, "quotas", "apply", str(plan), *_at(server, folder), "--yes")


def _await_plan(plan: Path, servers: Sequence[str], folder: Path, kvota: Kvota) -> None:
    """Return when all gateways have it."""
    wanted = load_document(plan).wanted.quotas
    for server in servers:
        at, end_s = _at(server, folder), time.monotonic() + FOLLOWS_S
        while (found := _in_force(at, folder, kvota)) != wanted:
            assert time.monotonic() < end_s, f"{server}: {found}"


def _once_read(kvota: Kvota, *words: str) -> None:
    """A gateway that has just begun refuses until it has read the topic, and nothing has changed."""
    end_s = time.monotonic() + FOLLOWS_S
    while (done := kvota(*words)).code:
        assert "has not been read yet" in done.err, done.err
        assert time.monotonic() < end_s, done.err
        time.sleep(0.2)


def _undo(plan: Path, server: str, folder: Path, kvota: Kvota) -> None:
    """Bring back what was before: no quota at all."""
    at = _at(server, folder)
    _once_read(kvota, "quotas", "undo", str(plan.with_suffix(".undo.yaml")), *at, "--yes")
    assert not len(_in_force(at, folder, kvota))


def _in_force(at: Sequence[str], folder: Path, kvota: Kvota) -> ClientQuotas:
    exported = folder / "exported.yaml"
    said = kvota("quotas", "export", *at)
    assert said.code == 0, said.err
    exported.write_text(said.out)
    return load_document(exported).wanted.quotas


def _at(server: str, folder: Path) -> tuple[str, ...]:
    """The options of the operator's login."""
    login, jaas = folder / "operator.properties", _jaas('"')
    login.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={jaas}\n"
    )
    return ("--bootstrap-server", server, "--command-config", str(login))


def _jaas(quote: str) -> str:
    secret = secret_of(OPERATOR)
    return (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f"username={quote}{OPERATOR}{quote} password={quote}{secret}{quote};"
    )


def _gateways(
    stack: ExitStack, trial: Trial, kafka: LocalKafka, folder: Path, *, enforced: bool
) -> list[GatewayProcess]:
    """Gateways that share their quotas in a topic, each with a name and a record of its own."""
    gateways = []
    for number in range(1, trial.demand.gateways + 1):
        login = {
            f"{_LOGIN}.security.protocol": "SASL_PLAINTEXT",
            f"{_LOGIN}.sasl.mechanism": "SCRAM-SHA-256",
            f"{_LOGIN}.sasl.jaas.config": _jaas("'"),
        }
        config = gateway_toml(
            upstream=kafka.sasl_bootstrap_servers,
            node_ids=f"0-{len(kafka.nodes)}",
            source="topic",
            enforce={QuotaType.PRODUCE: enforced},
            buckets={QuotaType.PRODUCE: BucketSettings()} if enforced else None,
            record="record",
            kafka=login,
        ).replace("[gateway]\n", f'[gateway]\nname = "gateway-{number}"\n')
        gateway = GatewayProcess(folder / f"gateway-{number}", config=config, quotas="")
        gateways.append(stack.enter_context(gateway))
    return gateways


def _rows(records: Sequence[Path]) -> pa.Table:
    columns = [
        "ts_us",
        "gateway",
        "node_id",
        "quota_type",
        "user",
        "value",
        "outcome",
        "throttle_ms",
    ]
    files = sorted(file for record in records for file in record.glob("*.parquet"))
    table = pa.concat_tables([pq.read_table(file, columns=columns) for file in files])
    return table.filter(pc.equal(table["quota_type"], "PRODUCE"))


class _Judge:
    def __init__(
        self,
        trial: Trial,
        planned: Mapping[str, Mapping[str, object]],
        rows: pa.Table,
        began_us: int,
    ) -> None:
        self._trial = trial
        self._planned = planned
        self._rows = rows
        self._began_us = began_us
        self._found = Findings()

    def findings(self) -> Findings:
        tenants = {}
        for tenant in self._trial.demand.tenants:
            line = self._planned[tenant.name]
            of_tenant = self._rows.filter(pc.equal(self._rows["user"], tenant.name))
            waited = pc.or_(
                pc.greater(of_tenant["throttle_ms"], 0), pc.equal(of_tenant["outcome"], "rejected")
            )
            throttled = pc.sum(waited).as_py() / max(1, len(of_tenant))
            tenants[tenant.name] = {
                "need_mb_per_s": round(_number(line["need_per_s"]) / MB, 4),
                "quota_mb_per_s": round(_number(line["proposed_per_s"]) / MB, 4),
                "reason": line["reason"],
                "requests": len(of_tenant),
                # What replay said of the time that was held out, and what happened.
                "replay_open_pct": _percent(line["open_over_ratio"]),
                "replay_backlog_pct": _percent(line["backlog_over_ratio"]),
                "throttled_pct": _percent(throttled),
            }
            if tenant.is_greedy:
                continue
            self._found.expect(
                line["behaves"] is True and line["reason"] in {"need", "floor"},
                f"{tenant.name}: {line['reason']}: {line['evidence']}",
            )
            self._found.expect(
                throttled < THROTTLED_MAX,
                f"{tenant.name}: {throttled:.3%} throttled, below 0.1 % is the bar",
            )
        self._found.figures["tenants"] = tenants
        self._judge_greedy()
        self._judge_capacity()
        return self._found

    def _judge_greedy(self) -> None:
        """Each has its part by weight of what the others leave, in earnest, whatever the plan says."""
        demand = self._trial.demand
        brokers = len(set(self._rows["node_id"].to_pylist()))
        shares = fair.shares(demand, self._trial.capacity, brokers)
        unused = fair.unused_shares(demand, self._trial.capacity, brokers)
        seen = {}
        for name, share in shares.items():
            admitted = self._admitted(pc.equal(self._rows["user"], name))
            seconds = demand.seconds - SETTLE_S
            rate = (pc.sum(admitted["value"]).as_py() or 0.0) / seconds / brokers
            planned = _number(self._planned[name]["proposed_per_s"]) * demand.gateways
            seen[name] = {
                "share_mb_per_s": round(share / MB, 4),
                "planned_mb_per_s": round(planned / MB, 4),
                "let_in_mb_per_s": round(rate / MB, 4),
                "of_share": round(rate / share, 4),
                "of_unused": round(rate / unused[name], 4),
            }
            self._found.expect(
                abs(rate / share - 1) <= SHARE_WITHIN,
                f"{name}: {rate / MB:.3f} MB/s of a broker, its share is {share / MB:.3f} (planned "
                f"{planned / MB:.3f}); within 5 % is the bar",
            )
        self._found.figures["greedy"] = seen

    def _judge_capacity(self) -> None:
        brokers = {}
        for node_id in sorted(set(self._rows["node_id"].to_pylist())):
            admitted = self._admitted(pc.equal(self._rows["node_id"], node_id))
            second = (admitted["ts_us"].to_numpy() - self._began_us) // 1_000_000
            sums = np.bincount(second, weights=admitted["value"].to_numpy())[SETTLE_S:]
            over = int(np.count_nonzero(sums > self._trial.capacity))
            brokers[str(node_id)] = {
                "seconds": len(sums),
                "seconds_over": over,
                "mean_mb_per_s": round(float(sums.mean()) / MB, 3),
                "most_mb_per_s": round(float(sums.max()) / MB, 3),
            }
            self._found.expect(
                over <= max(self._trial.over_max_s, len(sums) * OVER_MAX),
                f"broker {node_id}: above its capacity in {over} of {len(sums)} s, {sums.max() / MB:.3f} MB/s at most",
            )
        self._found.figures["brokers"] = brokers

    def _admitted(self, mask: pa.ChunkedArray) -> pa.Table:
        """What was let in, behind the first seconds and before the end of the demand."""
        first = self._began_us + SETTLE_S * 1_000_000
        end = self._began_us + round(self._trial.demand.seconds * 1_000_000)
        inside = pc.and_(
            pc.greater_equal(self._rows["ts_us"], first), pc.less(self._rows["ts_us"], end)
        )
        let_in = pc.not_equal(self._rows["outcome"], "rejected")
        return self._rows.filter(pc.and_(pc.and_(mask, inside), let_in))


def _percent(share: object) -> float | None:
    """Of a share that a plan does not say, nothing."""
    return None if share is None else round(100 * _number(share), 3)


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
