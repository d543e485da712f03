"""From what was summed up and looked at to the series of each metric."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kvota.engine.reading import Reading
from kvota.metrics import cells, declared
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.exposition import Family, HistogramFamily, Sample
from kvota.metrics.glance import GatewayGlance
from kvota.metrics.labels import counter_labels, label_text, other_labels
from kvota.metrics.metric import Metric
from kvota.metrics.process_facts import ProcessFacts
from kvota.metrics.record_facts import RecordFacts
from kvota.metrics.tally import TallySnapshot, TypeTotals
from kvota.metrics.volume_families import VolumeFacts, static_families, volume_families
from kvota.model.decision_sink import OUTCOMES
from kvota.model.quota_type import QuotaType

AnyFamily = Family | HistogramFamily

_RATES = {
    QuotaType.PRODUCE: (declared.PRODUCE_BYTE_RATE,),
    QuotaType.FETCH: (declared.FETCH_BYTE_RATE,),
    QuotaType.REQUEST: (declared.REQUEST_TIME,),
    QuotaType.CONTROLLER_MUTATION: (declared.MUTATION_RATE, declared.MUTATION_RATE_KIP),
}
_THROTTLE_TIMES = {
    QuotaType.PRODUCE: declared.PRODUCE_THROTTLE_TIME,
    QuotaType.FETCH: declared.FETCH_THROTTLE_TIME,
    QuotaType.REQUEST: declared.REQUEST_THROTTLE_TIME,
    QuotaType.CONTROLLER_MUTATION: declared.MUTATION_THROTTLE_TIME,
}
_QUEUE_SIZES = {
    QuotaType.PRODUCE: declared.PRODUCE_QUEUE_SIZE,
    QuotaType.FETCH: declared.FETCH_QUEUE_SIZE,
    QuotaType.REQUEST: declared.REQUEST_QUEUE_SIZE,
    QuotaType.CONTROLLER_MUTATION: declared.MUTATION_QUEUE_SIZE,
}
_OUTCOME_ROWS = {
    "admitted": cells.ADMITTED,
    "throttled": cells.THROTTLED,
    "rejected": cells.REJECTED,
}


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


# Of one counter: without and with its quota type.
_Texts = tuple[str, str]


class Labels:
    """The label texts of counters, made once while they are shown."""

    def __init__(self) -> None:
        self._of: dict[CounterKey, _Texts] = {}

    def of(self, keys: Iterable[CounterKey]) -> list[_Texts]:
        """The labels of each of these; those of others are forgotten."""
        known = self._of
        self._of = {key: known.get(key) or _texts(key) for key in keys}
        return list(self._of.values())


def _texts(key: CounterKey) -> _Texts:
    labels = counter_labels(key)
    return labels, f'quota_type="{key.quota_type}",{labels}'.rstrip(",")


def families(observed: Observed, labels: Labels) -> Iterator[AnyFamily]:
    """All metrics with their series; each is made when it is asked for."""
    yield from _of_counters(observed, labels.of(observed.tally.keys))
    yield from _of_decisions(observed)
    yield from _of_connections(observed.glance)
    yield from _of_requests(observed)
    yield from _of_gateway(observed)
    if observed.static_limits is not None:
        yield from static_families(observed.static_limits)
    if observed.volumes is not None:
        yield from volume_families(observed.volumes)


# ---------------------------------------------------------------- counters


class _Shown:
    """The shown counters with their labels, type by type."""

    def __init__(self, observed: Observed, labels: list[_Texts]) -> None:
        self.tally = observed.tally
        self.readings = observed.glance.readings
        self.labels = labels
        self.of_type: dict[QuotaType, list[int]] = {}
        for index, key in enumerate(self.tally.keys):
            self.of_type.setdefault(key.quota_type, []).append(index)

    def all_of(self, quota_type: QuotaType) -> Iterator[tuple[int, Reading | None, str]]:
        for index in self.of_type.get(quota_type, ()):
            yield index, self.readings.get(self.tally.keys[index]), self.labels[index][0]

    def typed(self) -> Iterator[tuple[int, Reading | None, str]]:
        """All of them, with their type among their labels."""
        for index, key in enumerate(self.tally.keys):
            yield index, self.readings.get(key), self.labels[index][1]


def _of_counters(observed: Observed, labels: list[_Texts]) -> Iterator[AnyFamily]:
    shown = _Shown(observed, labels)
    for quota_type, metrics in _RATES.items():
        for metric in metrics:
            yield Family(metric, _rates(shown, quota_type))
    yield Family(
        declared.MUTATION_TOKENS,
        (
            (of_series, reading.tokens)
            for _, reading, of_series in shown.all_of(QuotaType.CONTROLLER_MUTATION)
            if reading is not None and reading.tokens is not None
        ),
    )
    for quota_type, metric in _THROTTLE_TIMES.items():
        means = shown.tally.mean_throttle_ms
        yield Family(
            metric,
            [
                (of_series, float(means[index]))
                for index, reading, of_series in shown.all_of(quota_type)
                if reading is not None
            ],
        )
    for quota_type, metric in _QUEUE_SIZES.items():
        yield Family(metric, [("", observed.glance.muted.get(quota_type, 0))])
    yield from _read(shown)
    yield from _summed(shown)


def _rates(shown: _Shown, quota_type: QuotaType) -> Iterator[Sample]:
    """Of counters that there are; what a sampled rate measures itself, else what was charged lately."""
    rates = shown.tally.rates
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        rates = shown.tally.long_rates
    for index, reading, of_series in shown.all_of(quota_type):
        if reading is not None:
            yield of_series, float(rates[index]) if reading.rate is None else reading.rate


def _read(shown: _Shown) -> Iterator[AnyFamily]:
    there = [(reading, labels) for _, reading, labels in shown.typed() if reading is not None]
    yield Family(
        declared.QUOTA_LIMIT,
        ((labels, reading.limit) for reading, labels in there if reading.limit is not None),
    )
    yield Family(
        declared.QUOTA_WAIT,
        ((labels, max(0, reading.throttle_ms) / 1000) for reading, labels in there),
    )
    yield Family(
        declared.QUOTA_DEBT,
        (
            (labels, reading.debt_ms / 1000)
            for reading, labels in there
            if reading.debt_ms is not None
        ),
    )
    yield Family(declared.QUOTA_WAITING, ((labels, reading.waiting) for reading, labels in there))


def _summed(shown: _Shown) -> Iterator[AnyFamily]:
    """Of all counters that are shown, and of the others as one."""
    others = [
        (f'quota_type="{quota_type}",{other_labels()}', sums)
        for quota_type, sums in shown.tally.others.items()
        if any(sums)
    ]

    def samples(row: int, prefix: str = "", factor: float = 1.0) -> Iterator[Sample]:
        values = (shown.tally.sums[row] * factor).tolist()
        for (_, labels), value in zip(shown.labels, values, strict=True):
            yield prefix + labels, value
        for labels, sums in others:
            yield prefix + labels, sums[row] * factor

    yield Family(declared.QUOTA_CHARGED, samples(cells.VALUE))
    yield Family(
        declared.QUOTA_DECISIONS,
        (
            sample
            for outcome, row in _OUTCOME_ROWS.items()
            for sample in samples(row, f'outcome="{outcome}",')
        ),
    )
    yield Family(declared.QUOTA_THROTTLE, samples(cells.THROTTLE_MS, factor=0.001))
    tally = shown.tally
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
    yield _one(declared.UNCOUNTED, observed.uncounted)
    yield _one(declared.COUNTERS, observed.glance.counters)
    yield _one(declared.COUNTERS_LOST, observed.glance.counters_lost)


def _of_connections(glance: GatewayGlance) -> Iterator[AnyFamily]:
    counts = glance.counts
    yield _one(declared.CONNECTIONS, glance.connections)
    yield _one(declared.CONNECTIONS_MAX, glance.connections_max)
    yield _one(declared.CONNECTIONS_ACCEPTED, counts.accepted)
    yield _by("reason", declared.CONNECTIONS_REFUSED, counts.refused)
    yield _by("reason", declared.CONNECTIONS_CLOSED, counts.closed)
    yield _by("reason", declared.CONNECTIONS_PAUSED, glance.paused)
    yield _by("reason", declared.BAD_FRAMES, counts.bad_frames)
    yield _by("reason", declared.UPSTREAM_ERRORS, counts.upstream_errors)
    yield _one(declared.MUTES, counts.mute_lateness.count)
    yield HistogramFamily(declared.MUTE_LATENESS, counts.mute_lateness)
    yield HistogramFamily(declared.LOOP_LAG, counts.loop_lag)
    yield _by("method", declared.CALLBACK_ERRORS, glance.callback_faults)


def _of_requests(observed: Observed) -> Iterator[AnyFamily]:
    glance, tally = observed.glance, observed.tally
    yield _by("api", declared.REQUESTS, {**glance.requests, "Produce": tally.produce_requests})
    yield _by(
        "api", declared.REQUEST_BYTES, {**glance.request_bytes, "Produce": tally.produce_bytes}
    )
    yield _by("api", declared.FETCHED_BYTES, {"Fetch": tally.fetched_bytes})
    yield _one(declared.REQUEST_TIME_EXEMPT, glance.exempt_ns / 1e9)
    yield _one(declared.EXEMPT_REQUEST_TIME, glance.exempt_percent)
    yield _by(
        "budget",
        declared.BUDGET,
        {name: budget.used_bytes for name, budget in glance.budgets.items()},
    )
    yield _by(
        "budget",
        declared.BUDGET_LIMIT,
        {name: budget.limit_bytes for name, budget in glance.budgets.items()},
    )


def _of_gateway(observed: Observed) -> Iterator[AnyFamily]:
    glance, record, process = observed.glance, observed.record, observed.process
    if record is not None:
        yield _one(declared.ROWS_WRITTEN, record.rows_written)
        yield _one(declared.ROWS_DROPPED, record.rows_dropped)
        yield _one(declared.RECORD_FILES, record.files)
        yield _one(declared.RECORD_BYTES, record.bytes)
        yield _one(declared.RECORDING, int(record.recording))
    yield _one(declared.QUOTAS_VERSION, glance.quotas_version)
    yield _one(declared.QUOTAS_ENTITIES, glance.entities)
    yield _by(
        "quota_type",
        declared.QUOTAS_ENFORCED,
        {quota_type: int(quota_type in glance.enforced) for quota_type in QuotaType},
    )
    yield _by("result", declared.RELOADS, glance.counts.reloads)
    yield _one(declared.CLUSTER_STALE, int(glance.cluster_is_old))
    yield _one(declared.DRAINING, int(glance.is_draining))
    yield Family(declared.BUILD_INFO, [(label_text({"version": observed.version}), 1)])
    yield Family(
        declared.HTTP_REQUESTS,
        [
            (label_text({"path": path, "code": str(code)}), count)
            for (path, code), count in observed.http_requests.items()
        ],
    )
    yield _by("reason", declared.HTTP_REFUSED, observed.http_closed)
    yield _one(declared.CPU, process.cpu_s)
    yield _one(declared.MEMORY, process.memory_bytes)
    yield _one(declared.OPEN_FDS, process.open_fds)
    yield _one(declared.MAX_FDS, process.fds_max)
    yield _one(declared.START_TIME, process.started_s)


def _one(metric: Metric, value: float) -> Family:
    return Family(metric, [("", value)])


def _by(label: str, metric: Metric, values: Mapping[str, float]) -> Family:
    return Family(metric, [(label_text({label: name}), value) for name, value in values.items()])
