"""All metrics as Prometheus reads them, in both formats; docs and dashboards name nothing else."""

import json
import re
from array import array
from math import nan
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.metrics.conftest import START_MS, Rows, memo

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import QuotaEngine
from kvota.engine.reading import PEEKED, peek_lane
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.declared import DECLARED
from kvota.metrics.exposition import Exposition
from kvota.metrics.families import Labels, Observed, families
from kvota.metrics.gateway_counts import GatewayCounts
from kvota.metrics.glance import Budget, GatewayGlance, InitsOfUser, ProducerIdGlance
from kvota.metrics.labels import counter_labels
from kvota.metrics.process_facts import process_facts
from kvota.metrics.volume_families import VolumeFacts, facts_of, volume_families
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import sanitise
from kvota.record.record_limits import RecordStatus, TopicStatus
from kvota.volumes import (
    Observation,
    PerVolumeLimit,
    Status,
    SummedUsedLimit,
    Threshold,
    Volume,
    VolumeThrottle,
)
from kvota.web.views import tenants_view

ROOT = Path(__file__).parents[3]
PRODUCE, FETCH, MUTATION = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.CONTROLLER_MUTATION
EVIL = '"}\n\\{,=" \x00 \r é'

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def peeks(keys: tuple[CounterKey, ...]) -> "array[float]":
    """Of counters as a gateway has them."""
    limits = {PRODUCE: 1000.0, FETCH: 2000.0, MUTATION: 5.0}
    engine = QuotaEngine(
        DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user=DEFAULT): limits})), {}
    )
    found = array("d")
    for key in keys:
        user = key.tags.partition("user=")[2]
        lane = engine.lane(key.quota_type, 1, user, "app", START_MS)
        assert lane is not None
        lane.charge(500, START_MS)
        found.extend(peek_lane(lane, START_MS + 1000))
    return found


def observed(rows: Rows) -> Observed:
    tally = rows.tally.snapshot(START_MS + 1000)
    counts = GatewayCounts(accepted=3)
    counts.refused["full"] += 1
    counts.loop_lag.add(0.004)
    counts.loop_lag.add(7.0)
    glance = GatewayGlance(
        at_ms=START_MS,
        peeks=peeks(tally.keys),
        readings={},
        put_away=frozenset(),
        uses={},
        connections=2,
        connections_max=2000,
        paused={"muted": 1},
        muted={PRODUCE: 1},
        counts=counts,
        requests={"Metadata": 4, "Produce": 99},
        request_bytes={"Metadata": 400},
        budgets={"announced": Budget(used_bytes=1, limit_bytes=2)},
        counters=5,
        counters_lost=0,
        exempt_ns=1_500_000_000,
        exempt_percent=2.5,
        quotas_version=1,
        entities=1,
        enforced=frozenset({PRODUCE}),
        cluster_is_old=True,
        callback_faults={"quota_limit": 2},
        producer_ids=ProducerIdGlance(
            users=2,
            distinct_ids={"team a": 7},
            distinct_ids_in_all=None,
            window_ms=3_600_000,
            filter_bytes=80,
            refused_partitions=3,
            untracked=1,
            overfilled=2,
            connections_closed=4,
            inits=(InitsOfUser("team a", 5, 1, 0.5),),
            other_inits=InitsOfUser("", 9, 0, 0.0),
        ),
        is_draining=False,
        unreachable=(),
        reaches_brokers=True,
    )
    return Observed(
        tally=tally,
        glance=glance,
        record=RecordStatus(
            recording=True,
            rows_written=5,
            rows_dropped=0,
            files=1,
            bytes=10,
            last_error=None,
            topic=TopicStatus(is_up=False, rows_written=3, rows_dropped=2, last_error="away"),
        ),
        uncounted=0,
        process=process_facts(1.5),
        http_requests={("/metrics", 200): 3},
        http_closed={"late": 1},
        version="0.1.0",
        volumes=volumes(),
        static_limits={PRODUCE: 1e6},
    )


def volumes() -> VolumeFacts:
    """Of three brokers: one is away, the disk of another is nearly full."""
    limit = PerVolumeLimit(hard=Threshold(available_bytes=10), soft=Threshold(available_bytes=30))
    throttle = VolumeThrottle(limit, fallback=0.0, validity_ms=1000, per_broker=True, now_ms=0)
    seen = [
        Volume(broker_id=broker, log_dir=f"/d{broker}", total_bytes=100, available_bytes=free)
        for broker, free in ((1, 90), (2, 20), (3, 50))
    ]
    throttle.take(Observation(status=Status.SUCCESS, volumes=seen, broker_ids=(1, 2, 3)), 0)
    throttle.take(Observation(status=Status.SAFETY_TIMEOUT, broker_ids=(1, 2, 3)), 1001)
    throttle.take(
        Observation(status=Status.SUCCESS, volumes=seen[:2], broker_ids=(1, 2), dropped=1), 1002
    )
    return facts_of(throttle, "gw")


@pytest.fixture
def busy(make_tally) -> Observed:
    _, rows = make_tally()
    rows.add(
        (memo("alice"), 0, 100, 0, ADMITTED, 0),
        (memo("alice"), 1, 200, 50, THROTTLED, 0),
        (memo("alice", quota_type=FETCH), 2, 300, 0, ADMITTED, 0),
        (memo("bob", enforced=False), 3, 400, 60, REJECTED, NO_ANSWER),
        (memo("bob", quota_type=MUTATION), 4, 7),
        (memo("x", tags=f"client-id={sanitise(EVIL)},user=x"), 5, 1),
    )
    return observed(rows)


def written(one: Observed, *, openmetrics: bool = False) -> str:
    return b"".join(Exposition(openmetrics=openmetrics).written(families(one, Labels()))).decode()


def parsed(text: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def series(text: str, name: str, **labels: str) -> float:
    return parsed(text)[name, tuple(sorted(labels.items()))]


def test_every_declared_metric_is_written_and_no_other(busy: Observed) -> None:
    names = re.findall(r"^# TYPE (\S+) ", written(busy), re.MULTILINE)

    assert sorted(names) == sorted(metric.name for metric in DECLARED)


def test_both_formats_say_the_same(busy: Observed) -> None:
    text = parsed(written(busy))
    found: Series = {}
    for family in openmetrics.text_string_to_metric_families(written(busy, openmetrics=True)):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value

    assert found.keys() == text.keys()
    assert all(str(found[key]) == str(text[key]) for key in text)


def test_kafkas_names_and_labels(busy: Observed) -> None:
    text = written(busy)

    assert series(text, "kafka_server_produce_byte_rate", user="alice", node_id="1") > 0
    assert series(text, "kafka_server_fetch_byte_rate", user="alice", node_id="1") > 0
    assert series(text, "kafka_server_produce_throttle_time", user="alice", node_id="1") == 50
    assert series(text, "kafka_server_controllermutation_tokens", user="bob") < 5 * 11
    assert series(text, "kafka_server_controllermutation_mutation_rate", user="bob") > 0
    assert series(text, "kafka_server_produce_queue_size") == 1


def test_producer_ids_and_who_asks_for_them(busy: Observed) -> None:
    text = written(busy)
    for line in (
        'kvota_producer_ids_distinct{user="team%20a"} 7',
        "kvota_producer_ids_refused_partitions 3",
        'kvota_init_producer_id_total{user="team%20a",kind="idempotent"} 5',
        'kvota_init_producer_id_total{user="team%20a",kind="transactional"} 1',
        'kvota_init_producer_id_total{user="__other__",kind="idempotent"} 9',
        'kvota_init_producer_id_rate{user="team%20a"} 0.5',
    ):
        assert line in text.splitlines()


def test_sums_of_counters_and_of_all(busy: Observed) -> None:
    text = written(busy)
    alice = {"quota_type": "PRODUCE", "user": "alice", "node_id": "1"}

    assert series(text, "kvota_quota_charged_total", **alice) == 300
    assert series(text, "kvota_quota_decisions_total", outcome="throttled", **alice) == 1
    assert series(text, "kvota_quota_throttle_seconds_total", **alice) == 0.05
    assert series(text, "kvota_quota_limit", **alice) == 1000
    of_shadow = {"quota_type": "PRODUCE", "enforced": "false", "outcome": "rejected"}
    assert series(text, "kvota_decisions_total", **of_shadow) == 1
    # Each Produce has a row: those that connections count are left out.
    assert series(text, "kvota_requests_total", api="Produce") == 4
    assert series(text, "kvota_requests_total", api="Metadata") == 4


def test_a_histogram_is_cumulative(busy: Observed) -> None:
    text = written(busy)

    assert series(text, "kvota_loop_lag_seconds_bucket", le="0.0025") == 0
    assert series(text, "kvota_loop_lag_seconds_bucket", le="0.005") == 1
    assert series(text, "kvota_loop_lag_seconds_bucket", le="+Inf") == 2
    assert series(text, "kvota_loop_lag_seconds_count") == 2
    assert series(text, "kvota_loop_lag_seconds_sum") == pytest.approx(7.004)


def test_names_that_clients_make_up_stay_in_their_quotes(busy: Observed) -> None:
    clients = {
        dict(labels).get("client_id")
        for name, labels in parsed(written(busy))
        if name == "kvota_quota_charged_total"
    }

    assert EVIL.replace("\x00", "\ufffd").replace("\r", "\ufffd") in clients


def test_all_that_are_not_shown_are_one_series(make_tally) -> None:
    _, rows = make_tally(shown_max=2)
    rows.add(*[(memo(f"u{n}"), n, 10) for n in range(50)])
    text = written(observed(rows))
    charged = {
        dict(labels)["user"]: value
        for (name, labels), value in parsed(text).items()
        if name == "kvota_quota_charged_total"
    }

    assert charged == {"u0": 10, "u1": 10, "__other__": 480}
    assert series(text, "kvota_quota_series", shown="false") == 48


def test_a_user_called_other_is_told_from_the_others(make_tally) -> None:
    _, rows = make_tally(shown_max=1)
    rows.add((memo("x", tags="client-id=__other__,user=__other__"), 0, 5), (memo("y"), 1, 7))
    charged = {
        dict(labels)["user"]: value
        for (name, labels), value in parsed(written(observed(rows))).items()
        if name == "kvota_quota_charged_total"
    }

    assert charged == {"%5F%5Fother%5F%5F": 5, "__other__": 7}


@pytest.mark.parametrize(
    ("tags", "labels"),
    [
        ("group=etl", 'group="etl",node_id="1"'),
        ("", 'node_id="1"'),
        ("a.b=1,a_b=2", 'a_b="1",a_b_="2",node_id="1"'),
        ("node_id=x,quota_type=y,0=z", 'tag_node_id="x",tag_quota_type="y",tag_0="z",node_id="1"'),
        ("__name__=x", 'tag___name__="x",node_id="1"'),
    ],
)
def test_tags_of_a_callback_become_labels(tags: str, labels: str) -> None:
    assert counter_labels(CounterKey(PRODUCE, tags, 1)) == labels


def test_a_counter_that_is_gone_has_no_kafka_metrics_any_more(make_tally) -> None:
    _, rows = make_tally()
    rows.add((memo("alice"), 0, 100, 50, THROTTLED))
    one = observed(rows)
    one.glance.peeks[:] = array("d", [nan] * len(PEEKED))

    names = {name for name, labels in parsed(written(one)) if ("user", "alice") in labels}

    assert names == {
        "kvota_quota_charged_total",
        "kvota_quota_decisions_total",
        "kvota_quota_throttle_seconds_total",
    }


def test_a_counter_that_is_put_away_is_listed_with_the_limit_of_its_last_decision(
    make_tally,
) -> None:
    tally, rows = make_tally()
    rows.add((memo("alice", limit=500.0), 0, 5_000), (memo("bob", limit=None), 0, 5_000))
    glance = observed(rows).glance
    alice, bob = tenants_view(tally.busiest(10, START_MS), glance, lambda _: "quotas.toml:1")

    assert (alice["user"], alice["limit_per_s"]) == ("alice", 500.0)
    assert alice["share"] == pytest.approx(alice["rate_per_s"] / 500.0)
    assert (bob["user"], bob["limit_per_s"], bob["share"]) == ("bob", None, None)


def test_the_page_on_metrics_has_each_of_them_as_declared() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| ([^|]*) \| (.*) \|$", page, re.MULTILINE)

    assert rows == [
        (
            metric.name,
            str(metric.kind),
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.meaning.replace("|", "\\|"),
        )
        for metric in DECLARED
    ]


STRIMZI = "io_strimzi_kafka_quotas_"
OBSERVER = {"observingBrokerId": "gw"}


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("staticquotacallback_produce", {}, 1e6),
        ("throttlefactor_throttlefactor", OBSERVER, 0.5),
        ("throttlefactor_fallbackthrottlefactorapplied_total", OBSERVER, 1),
        ("throttlefactor_limitviolated_total", OBSERVER, 2),
        ("volumesource_activebrokers", OBSERVER, 2),
        ("volumesource_activelogdirs", OBSERVER, 2),
        ("volumesource_availablebytes", OBSERVER | {"remoteBrokerId": "2", "logDir": "/d2"}, 20),
        ("volumesource_consumedbytes", OBSERVER | {"remoteBrokerId": "1", "logDir": "/d1"}, 10),
        ("cachingvolumeobserver_cachedentries", OBSERVER, 2),
        (
            "cachingvolumeobserver_logdirevictions_total",
            OBSERVER | {"remoteBrokerId": "3", "logDir": "/d3"},
            1,
        ),
        ("localthrottlefactor_throttlefactor", {}, 0.5),
        (
            "localthrottlefactor_fallbackthrottlefactorapplied_total",
            {"reason": "SAFETY_TIMEOUT"},
            1,
        ),
        ("localthrottlefactor_throttlingvolume", {"brokerId": "2", "volumeLogDir": "/d2"}, 1),
        ("clustervolumesource_activebrokers", {}, 2),
        ("clustervolumesource_activelogdirs", {}, 2),
    ],
)
def test_strimzis_names_and_tags(
    busy: Observed, name: str, labels: dict[str, str], value: float
) -> None:
    assert series(written(busy), STRIMZI + name, **labels) == value


def test_what_strimzi_does_not_tell_of_volumes(busy: Observed) -> None:
    text = written(busy)

    assert series(text, "kvota_produce_factor", node_id="2") == 0.5
    assert series(text, "kvota_produce_factor") == 1.0
    assert series(text, "kvota_produce_factor_is_fallback") == 0
    assert series(text, "kvota_volume_looks_total", status="SUCCESS") == 2
    assert series(text, "kvota_volume_looks_total", status="SAFETY_TIMEOUT") == 1
    assert series(text, "kvota_volumes_without_size") == 1


def test_a_broker_that_is_gone_has_no_sizes_any_more(busy: Observed) -> None:
    assert 'remoteBrokerId="3"' not in "".join(
        line for line in written(busy).splitlines() if "bytes" in line
    )


def test_the_volume_that_throttled_stays_named_with_0_when_it_is_over() -> None:
    limit = PerVolumeLimit(hard=Threshold(available_bytes=10))
    throttle = VolumeThrottle(limit, fallback=0.0, validity_ms=1000, per_broker=False, now_ms=0)
    for at_ms, free in ((0, 5), (1, 50)):
        full = Volume(broker_id=1, log_dir="/d", total_bytes=100, available_bytes=free)
        throttle.take(Observation(status=Status.SUCCESS, volumes=[full]), at_ms)

    text = b"".join(
        Exposition(openmetrics=False).written(volume_families(facts_of(throttle, "gw")))
    ).decode()

    name = f"{STRIMZI}localthrottlefactor_throttlingvolume"
    assert series(text, name, brokerId="1", volumeLogDir="/d") == 0


def test_used_bytes_of_one_machine_and_their_limits() -> None:
    limit = SummedUsedLimit(soft_bytes=800, hard_bytes=900)
    throttle = VolumeThrottle(limit, fallback=0.0, validity_ms=1000, per_broker=False, now_ms=0)
    here = [
        Volume(broker_id=-1, log_dir=log_dir, total_bytes=500, available_bytes=75)
        for log_dir in ("/a", "/b")
    ]
    throttle.take(Observation(status=Status.SUCCESS, volumes=here), 0)

    text = b"".join(
        Exposition(openmetrics=False).written(volume_families(facts_of(throttle, "gw")))
    ).decode()

    assert series(text, f"{STRIMZI}storagechecker_totalstorageusedbytes") == 850
    assert series(text, f"{STRIMZI}storagechecker_softlimitbytes") == 800
    assert series(text, f"{STRIMZI}storagechecker_hardlimitbytes") == 900
    assert series(text, f"{STRIMZI}throttlefactor_throttlefactor", **OBSERVER) == 0.5


MONITORING = ROOT / "monitoring"


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b((?:kvota|kafka_server|process)_[a-z_]+)\b", text))


@pytest.mark.parametrize("file", sorted(path.name for path in MONITORING.glob("*.[jy]*")))
def test_rules_and_dashboard_name_only_metrics_that_there_are(file: str) -> None:
    known = {metric.name for metric in DECLARED}
    known |= {
        name + suffix
        for name in ("kvota_mute_lateness_seconds", "kvota_loop_lag_seconds")
        for suffix in ("_bucket", "_sum", "_count")
    }

    text = (MONITORING / file).read_text()

    assert names_in(text) - known == set()
    if file.endswith(".json"):
        json.loads(text)
