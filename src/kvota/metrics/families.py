"""From what was summed up and looked at to the series of each metric."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kvota.engine.reading import PEEKED
from kvota.metrics import cells, declared
from kvota.metrics.cells import Column, Flags
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.exposition import AnyFamily, ColumnFamily, Family, HistogramFamily
from kvota.metrics.glance import GatewayGlance, InitsOfUser, ProducerIdGlance
from kvota.metrics.labels import OTHER, counter_labels, label_text, other_labels, user_labels
from kvota.metrics.metric import Metric
from kvota.metrics.process_facts import ProcessFacts
from kvota.metrics.record_facts import RecordFacts
from kvota.metrics.tally import TallySnapshot, TypeTotals
from kvota.metrics.volume_families import VolumeFacts, static_families, volume_families
from kvota.model.decision_sink import OUTCOMES
from kvota.model.quota_type import QuotaType

_RATES = {
    QuotaType.PRODUCE: (declared.PRODUCE_BYTE_RATE,),
    QuotaType.FETCH: (declared.FETCH_BYTE_RATE,),
    QuotaType.REQUEST: (declared.REQUEST_TIME,),
    QuotaType.CONTROLLER_MUTATION: (declared.MUTATION_RATE, declared.MUTATION_RATE_KIP),
    QuotaType.PRODUCER_ID: (declared.PRODUCER_IDS_RATE,),
}
_THROTTLE_TIMES = {
    QuotaType.PRODUCE: declared.PRODUCE_THROTTLE_TIME,
    QuotaType.FETCH: declared.FETCH_THROTTLE_TIME,
    QuotaType.REQUEST: declared.REQUEST_THROTTLE_TIME,
    QuotaType.CONTROLLER_MUTATION: declared.MUTATION_THROTTLE_TIME,
    QuotaType.PRODUCER_ID: declared.PRODUCER_IDS_THROTTLE_TIME,
}
_QUEUE_SIZES = {
    QuotaType.PRODUCE: declared.PRODUCE_QUEUE_SIZE,
    QuotaType.FETCH: declared.FETCH_QUEUE_SIZE,
    QuotaType.REQUEST: declared.REQUEST_QUEUE_SIZE,
    QuotaType.CONTROLLER_MUTATION: declared.MUTATION_QUEUE_SIZE,
    QuotaType.PRODUCER_ID: declared.PRODUCER_IDS_QUEUE_SIZE,
}
_TOKENS = {
    QuotaType.CONTROLLER_MUTATION: declared.MUTATION_TOKENS,
    QuotaType.PRODUCER_ID: declared.PRODUCER_IDS_TOKENS,
}
_OUTCOME_ROWS = (cells.ADMITTED, cells.THROTTLED, cells.REJECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that one scrape shows.

    Attributes:
        tally: decisions.
        glance: counters and connections.
        record: how the recording stands; None: nothing is recorded.
        uncounted: decisions that nobody could sum up.
        process: of the gateway.
        http_requests: requests to the HTTP port, by path and code.
        http_closed: connections to it that were closed, by reason.
        version: of kvota.
        volumes: how full they are; None: nobody looks.
        static_limits: of the static callback; None: another one is in force.
    """

    tally: TallySnapshot
    glance: GatewayGlance
    record: RecordFacts | None
    uncounted: int
    process: ProcessFacts
    http_requests: Mapping[tuple[str, int], int]
    http_closed: Mapping[str, int]
    version: str
    volumes: VolumeFacts | None = None
    static_limits: Mapping[QuotaType, float] | None = None


def are_there(glance: GatewayGlance) -> Flags:
    """Which of the counters that were asked for there are."""
    flags: Flags = ~np.isnan(_peeked(glance)["waiting"])
    return flags


def _peeked(glance: GatewayGlance) -> dict[str, Column]:
    """What ``engine.reading.PEEKED`` names, of all that were asked for."""
    table = np.frombuffer(glance.peeks).reshape(-1, len(PEEKED))
    return dict(zip(PEEKED, table.T, strict=True))


class Labels:
    """The label texts of counters, made once while they are shown."""

    def __init__(self) -> None:
        self._texts: dict[CounterKey, _Texts] = {}
        self._lists: _Lists | None = None

    def of(self, observed: Observed) -> "_Lists":
        """The labels of these counters; those of others are forgotten."""
        tally = observed.tally
        others = tuple(quota_type for quota_type, sums in tally.others.items() if any(sums))
        flags = are_there(observed.glance)
        known = self._lists
        if known is None or not known.are_of(tally.keys, flags, others):
            texts = self._texts
            self._texts = {
                key: texts.get(key) or _texts(key.quota_type, counter_labels(key))
                for key in tally.keys
            }
            known = self._lists = _Lists(tally.keys, flags, others, list(self._texts.values()))
        return known


class _Texts(NamedTuple):
    """The labels of one counter: alone, with its quota type, and by outcome, in the order of ``OUTCOMES``."""

    alone: str
    typed: str
    by_outcome: tuple[str, ...]


def _texts(quota_type: QuotaType, alone: str) -> _Texts:
    typed = f'quota_type="{quota_type}",{alone}'.rstrip(",")
    return _Texts(alone, typed, tuple(f'outcome="{outcome}",{typed}' for outcome in OUTCOMES))


class _Lists:
    """The labels of each family of counters, for as long as the same ones are shown.

    Attributes:
        of_type: those that there are, by their type: places among all that are shown, and labels.
        there: places of all that there are.
        typed_there: their labels, with the type.
        others: quota types that have counters which are not shown.
        typed: labels of all that are shown, and of the others, with the type.
        by_outcome: the same for each outcome.
    """

    def __init__(
        self,
        keys: tuple[CounterKey, ...],
        flags: Flags,
        others: tuple[QuotaType, ...],
        texts: list[_Texts],
    ) -> None:
        self._keys, self._flags, self.others = keys, flags, others
        self.there = np.flatnonzero(flags)
        self.of_type: dict[QuotaType, tuple[list[int], list[str]]] = {}
        for place in self.there.tolist():
            places, alone = self.of_type.setdefault(keys[place].quota_type, ([], []))
            places.append(place)
            alone.append(texts[place].alone)
        self.typed_there = [texts[place].typed for place in self.there.tolist()]
        texts = [*texts, *(_texts(quota_type, other_labels()) for quota_type in others)]
        self.typed = [one.typed for one in texts]
        self.by_outcome = [
            one.by_outcome[outcome] for outcome in range(len(OUTCOMES)) for one in texts
        ]

    def are_of(
        self, keys: tuple[CounterKey, ...], flags: Flags, others: tuple[QuotaType, ...]
    ) -> bool:
        """True where these are shown, and are there."""
        return (
            others == self.others
            and keys == self._keys
            and bool(np.array_equal(flags, self._flags))
        )


def families(observed: Observed, labels: Labels) -> Iterator[AnyFamily]:
    """All metrics with their series; each is made when it is asked for."""
    lists = labels.of(observed)
    yield from _of_counters(observed, lists)
    yield from _summed(observed.tally, lists)
    yield from _of_decisions(observed)
    yield from _of_connections(observed.glance)
    yield from _of_requests(observed)
    yield from _of_producer_ids(observed.glance.producer_ids)
    yield from _of_gateway(observed)
    if observed.static_limits is not None:
        yield from static_families(observed.static_limits)
    if observed.volumes is not None:
        yield from volume_families(observed.volumes)


# ---------------------------------------------------------------- counters


def _of_counters(observed: Observed, lists: _Lists) -> Iterator[AnyFamily]:
    tally, peeked = observed.tally, _peeked(observed.glance)

    def of_type(quota_type: QuotaType, metric: Metric, column: Column) -> ColumnFamily:
        places, labels = lists.of_type.get(quota_type, ([], []))
        return ColumnFamily(metric, labels, column[places])

    for quota_type, metrics in _RATES.items():
        # What a sampled rate measures itself, else what was charged lately.
        is_mutation = quota_type is QuotaType.CONTROLLER_MUTATION
        lately = tally.long_rates if is_mutation else tally.rates
        rates = np.where(np.isnan(peeked["rate"]), lately, peeked["rate"])
        for metric in metrics:
            yield of_type(quota_type, metric, rates)
    for quota_type, metric in _TOKENS.items():
        yield _numbers(of_type(quota_type, metric, peeked["tokens"]))
    for quota_type, metric in _THROTTLE_TIMES.items():
        yield of_type(quota_type, metric, tally.mean_throttle_ms)
    for quota_type, metric in _QUEUE_SIZES.items():
        yield Family(metric, [("", observed.glance.muted.get(quota_type, 0))])
    for metric, column in (
        (declared.QUOTA_LIMIT, peeked["limit"]),
        (declared.QUOTA_WAIT, np.maximum(peeked["throttle_ms"], 0) / 1000),
        (declared.QUOTA_DEBT, peeked["debt_ms"] / 1000),
        (declared.QUOTA_WAITING, peeked["waiting"]),
    ):
        yield _numbers(ColumnFamily(metric, lists.typed_there, column[lists.there]))


def _numbers(family: ColumnFamily) -> ColumnFamily:
    """Without those that have no such number."""
    has_one = ~np.isnan(family.values)
    if has_one.all():
        return family
    labels = [family.labels[place] for place in np.flatnonzero(has_one).tolist()]
    return ColumnFamily(family.metric, labels, family.values[has_one])


def _summed(tally: TallySnapshot, lists: _Lists) -> Iterator[AnyFamily]:
    """Of all counters that are shown, and of the others as one."""
    of_others = [tally.others[quota_type] for quota_type in lists.others]
    sums = np.hstack([tally.sums, np.array(of_others).reshape(-1, len(tally.sums)).T])
    yield ColumnFamily(declared.QUOTA_CHARGED, lists.typed, sums[cells.VALUE])
    of_outcomes = sums[list(_OUTCOME_ROWS)].reshape(-1)
    yield ColumnFamily(declared.QUOTA_DECISIONS, lists.by_outcome, of_outcomes)
    yield ColumnFamily(declared.QUOTA_THROTTLE, lists.typed, sums[cells.THROTTLE_MS] * 0.001)
    yield Family(
        declared.SERIES,
        [('shown="true"', len(tally.keys)), ('shown="false"', tally.hidden)],
    )


# ---------------------------------------------------------------- the rest


def _of_decisions(observed: Observed) -> Iterator[AnyFamily]:
    totals = observed.tally.totals

    def mode(one: TypeTotals) -> dict[str, str]:
        return {"quota_type": one.quota_type, "enforced": str(one.enforced).lower()}

    yield Family(
        declared.DECISIONS,
        [
            (label_text({**mode(one), "outcome": outcome}), count)
            for one in totals
            for outcome, count in zip(OUTCOMES, one.decisions, strict=True)
        ],
    )
    yield Family(declared.CHARGED, [(label_text(mode(one)), one.charged) for one in totals])
    yield Family(declared.GIVEN_BACK, [(label_text(mode(one)), one.given_back) for one in totals])
    yield Family(
        declared.GIVEN_BACK_ROWS, [(label_text(mode(one)), one.given_back_rows) for one in totals]
    )
    yield Family.one(declared.UNCOUNTED, observed.uncounted)
    yield Family.one(declared.COUNTERS, observed.glance.counters)
    yield Family.one(declared.COUNTERS_LOST, observed.glance.counters_lost)


def _of_connections(glance: GatewayGlance) -> Iterator[AnyFamily]:
    counts = glance.counts
    yield Family.one(declared.CONNECTIONS, glance.connections)
    yield Family.one(declared.CONNECTIONS_MAX, glance.connections_max)
    yield Family.one(declared.CONNECTIONS_ACCEPTED, counts.accepted)
    yield Family.by("reason", declared.CONNECTIONS_REFUSED, counts.refused)
    yield Family.by("reason", declared.CONNECTIONS_CLOSED, counts.closed)
    yield Family.by("reason", declared.CONNECTIONS_PAUSED, glance.paused)
    yield Family.by("reason", declared.BAD_FRAMES, counts.bad_frames)
    yield Family.by("reason", declared.UPSTREAM_ERRORS, counts.upstream_errors)
    yield Family.one(declared.MUTES, counts.mute_lateness.count)
    yield HistogramFamily(declared.MUTE_LATENESS, counts.mute_lateness)
    yield HistogramFamily(declared.LOOP_LAG, counts.loop_lag)
    yield Family.by("method", declared.CALLBACK_ERRORS, glance.callback_faults)


def _of_requests(observed: Observed) -> Iterator[AnyFamily]:
    glance, tally = observed.glance, observed.tally
    yield Family.by(
        "api", declared.REQUESTS, {**glance.requests, "Produce": tally.produce_requests}
    )
    yield Family.by(
        "api", declared.REQUEST_BYTES, {**glance.request_bytes, "Produce": tally.produce_bytes}
    )
    yield Family.by("api", declared.FETCHED_BYTES, {"Fetch": tally.fetched_bytes})
    yield Family.one(declared.REQUEST_TIME_EXEMPT, glance.exempt_ns / 1e9)
    yield Family.one(declared.EXEMPT_REQUEST_TIME, glance.exempt_percent)
    yield Family.by(
        "budget",
        declared.BUDGET,
        {name: budget.used_bytes for name, budget in glance.budgets.items()},
    )
    yield Family.by(
        "budget",
        declared.BUDGET_LIMIT,
        {name: budget.limit_bytes for name, budget in glance.budgets.items()},
    )


def _of_producer_ids(glance: ProducerIdGlance) -> Iterator[AnyFamily]:
    distinct = [(user_labels(user), ids) for user, ids in glance.distinct_ids.items()]
    yield Family(declared.PRODUCER_IDS_DISTINCT, distinct)
    yield Family.one(declared.PRODUCER_IDS_USERS, glance.users)
    yield Family.one(declared.PRODUCER_IDS_BYTES, glance.filter_bytes)
    yield Family.one(declared.PRODUCER_IDS_KEPT_BACK, glance.refused_partitions)
    yield Family.one(declared.PRODUCER_IDS_UNTRACKED, glance.untracked)
    yield Family.one(declared.PRODUCER_IDS_OVERFILLED, glance.overfilled)
    yield Family.one(declared.PRODUCER_IDS_CLOSED, glance.connections_closed)
    of_users = [(user_labels(init.user), init) for init in glance.inits]
    by_kind = [
        (f'{labels},kind="{kind}"'.lstrip(","), count)
        for labels, init in (*of_users, *_others(glance))
        for kind, count in (
            ("idempotent", init.idempotent),
            ("transactional", init.transactional),
        )
    ]
    yield Family(declared.INIT_PRODUCER_IDS, by_kind)
    rates = [(user_labels(init.user), init.per_s) for init in glance.inits]
    yield Family(declared.INIT_PRODUCER_ID_RATE, rates)


def _others(glance: ProducerIdGlance) -> list[tuple[str, InitsOfUser]]:
    others = glance.other_inits
    return [(f'user="{OTHER}"', others)] if others.idempotent or others.transactional else []


def _of_gateway(observed: Observed) -> Iterator[AnyFamily]:
    glance, record, process = observed.glance, observed.record, observed.process
    if record is not None:
        yield Family.one(declared.ROWS_WRITTEN, record.rows_written)
        yield Family.one(declared.ROWS_DROPPED, record.rows_dropped)
        yield Family.one(declared.RECORD_FILES, record.files)
        yield Family.one(declared.RECORD_BYTES, record.bytes)
        yield Family.one(declared.RECORDING, int(record.recording))
        if record.topic is not None:
            yield Family.one(declared.TOPIC_ROWS_WRITTEN, record.topic.rows_written)
            yield Family.one(declared.TOPIC_ROWS_DROPPED, record.topic.rows_dropped)
            yield Family.one(declared.RECORDING_TO_TOPIC, int(record.topic.is_up))
    yield Family.one(declared.QUOTAS_VERSION, glance.quotas_version)
    yield Family.one(declared.QUOTAS_ENTITIES, glance.entities)
    yield Family.by(
        "quota_type",
        declared.QUOTAS_ENFORCED,
        {quota_type: int(quota_type in glance.enforced) for quota_type in QuotaType},
    )
    yield Family.by("result", declared.RELOADS, glance.counts.reloads)
    yield Family.one(declared.CLUSTER_STALE, int(glance.cluster_is_old))
    yield Family.one(declared.DRAINING, int(glance.is_draining))
    yield Family(declared.BUILD_INFO, [(label_text({"version": observed.version}), 1)])
    yield Family(
        declared.HTTP_REQUESTS,
        [
            (label_text({"path": path, "code": str(code)}), count)
            for (path, code), count in observed.http_requests.items()
        ],
    )
    yield Family.by("reason", declared.HTTP_REFUSED, observed.http_closed)
    yield Family.one(declared.CPU, process.cpu_s)
    yield Family.one(declared.MEMORY, process.memory_bytes)
    yield Family.one(declared.OPEN_FDS, process.open_fds)
    yield Family.one(declared.MAX_FDS, process.fds_max)
    yield Family.one(declared.START_TIME, process.started_s)
