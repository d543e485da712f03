"""A quota for the whole cluster, split by the partitions that brokers lead (KIP-257's second use)."""

from collections.abc import Sequence

import pytest

from kvota.callbacks import (
    ClusterView,
    PartitionShareQuotaCallback,
    QuotaEntity,
    QuotaType,
    TopicView,
)
from kvota.engine import QuotaEngine
from kvota.model.cluster_view import NO_LEADER
from kvota.model.configured_quotas import QuotaChange
from kvota.model.errors import ConfigurationError

G, S = "client.quota.callback.group.", "client.quota.callback.share."
PRODUCE, FETCH, REQUEST, MUTATION = (
    QuotaType.PRODUCE,
    QuotaType.FETCH,
    QuotaType.REQUEST,
    QuotaType.CONTROLLER_MUTATION,
)


def share(**properties: str) -> PartitionShareQuotaCallback:
    callback = PartitionShareQuotaCallback()
    callback.configure({f"client.quota.callback.{k.replace('__', '.')}": v for k, v in properties.items()})  # fmt: skip
    return callback


def by_separator() -> PartitionShareQuotaCallback:
    return share(share__separator="_")


def cluster(**topics: Sequence[int]) -> ClusterView:
    return ClusterView(topics={name: TopicView(name, leaders) for name, leaders in topics.items()})


def limits(callback: PartitionShareQuotaCallback, group: str, of_type: QuotaType = PRODUCE) -> list[float | None]:  # fmt: skip
    """At nodes 1 to 3."""
    return [callback.broker_limit(of_type, {"group": group}, node_id) for node_id in (1, 2, 3)]


def with_limit(callback: PartitionShareQuotaCallback, limit: float = 1_000.0) -> PartitionShareQuotaCallback:  # fmt: skip
    for of_type in (PRODUCE, FETCH, REQUEST, MUTATION):
        callback.update_quota(of_type, QuotaEntity(user="group:a"), limit)
    return callback


def test_each_broker_has_the_share_of_the_partitions_it_leads() -> None:
    callback = with_limit(by_separator())

    assert callback.update_cluster_metadata(cluster(a_1=[1, 1, 1], a_2=[2], other=[3] * 50))

    assert limits(callback, "a") == [750.0, 250.0, 250.0]  # one that leads none: one of four


def test_a_group_without_partitions_has_all_of_it_everywhere() -> None:
    callback = with_limit(by_separator())
    assert limits(callback, "a") == [1_000.0] * 3

    assert not callback.update_cluster_metadata(cluster(other=[1]))

    assert limits(callback, "a") == [1_000.0] * 3


def test_a_partition_without_a_leader_counts_and_is_nobodys() -> None:
    callback = with_limit(by_separator())

    callback.update_cluster_metadata(cluster(a_1=[1, NO_LEADER, NO_LEADER, 2]))

    assert limits(callback, "a") == [250.0, 250.0, 250.0]
    callback.update_cluster_metadata(cluster(a_1=[NO_LEADER, NO_LEADER]))
    assert limits(callback, "a") == [500.0] * 3


def test_it_tells_whether_anything_has_changed() -> None:
    callback = with_limit(by_separator())
    first = cluster(a_1=[1, 2])

    changes = [
        callback.update_cluster_metadata(each)
        for each in (first, first, cluster(a_1=[1, 2], b=[3]), cluster(a_1=[1, 1]), cluster())
    ]

    assert changes == [True, False, False, True, True]


def test_requests_and_mutations_are_not_split() -> None:
    callback = with_limit(by_separator())
    callback.update_cluster_metadata(cluster(a_1=[1, 2]))

    assert limits(callback, "a", REQUEST) == [1_000.0] * 3
    assert callback.broker_limit(MUTATION, {"group": "a"}, -1) == 1_000.0
    # A broker whose id nobody knows: what it leads nobody knows either.
    assert callback.broker_limit(PRODUCE, {"group": "a"}, -3) == 1_000.0


@pytest.mark.parametrize(
    ("user", "group"), [("a_web", "a"), ("a_b_c", "a"), ("_a", None), ("a", None), ("", None)]
)
def test_the_group_stands_before_the_first_separator(user: str, group: str | None) -> None:
    assert by_separator().quota_metric_tags(PRODUCE, user, "c").get("group") == group


def test_groups_that_are_named_come_first() -> None:
    callback = share(
        group__batch__users="a_etl",
        group__batch__topics="a_dump",
        group__both__topic__prefixes="a_",
        group__both__users="x",
        share__separator="_",
    )
    for group in ("a", "batch", "both"):
        callback.update_quota(PRODUCE, QuotaEntity(user=f"group:{group}"), 100.0)

    callback.update_cluster_metadata(cluster(a_dump=[1, 2], a_x=[3], a=[1]))

    assert callback.quota_metric_tags(PRODUCE, "a_etl", "c") == {"group": "batch"}
    assert callback.quota_metric_tags(PRODUCE, "a_web", "c") == {"group": "a"}
    assert limits(callback, "batch") == [50.0, 50.0, 50.0]
    assert limits(callback, "both") == [pytest.approx(100 / 3)] * 3
    assert limits(callback, "a") == [100.0] * 3  # its topics are others'


def test_limits_of_a_group_go_before_those_of_any_and_these_before_the_properties() -> None:
    callback = share(share__separator="_", share__default__produce="8000", share__default__fetch="2.5KB/s")  # fmt: skip
    assert callback.enabled(PRODUCE)
    assert not callback.enabled(MUTATION)
    assert [limits(callback, "a", of_type)[0] for of_type in (PRODUCE, FETCH)] == [8_000.0, 2_500.0]

    callback.update_quota(PRODUCE, QuotaEntity(user="group:*"), 5.0)
    assert limits(callback, "a")[0] == 5.0
    callback.update_quota(PRODUCE, QuotaEntity(user="group:a"), 7.0)
    assert limits(callback, "a")[0] == 7.0
    callback.remove_quota(PRODUCE, QuotaEntity(user="group:a"))
    callback.remove_quota(PRODUCE, QuotaEntity(user="group:*"))
    assert limits(callback, "a")[0] == 8_000.0


def test_others_count_by_kafkas_own_rules_on_each_broker() -> None:
    callback = by_separator()
    callback.update_quota(PRODUCE, QuotaEntity(user="alice"), 9.0)
    callback.update_cluster_metadata(cluster(alice_1=[1, 1]))

    tags = callback.quota_metric_tags(PRODUCE, "alice", "c")

    assert tags == {"client-id": "", "user": "alice"}
    assert [callback.broker_limit(PRODUCE, tags, node_id) for node_id in (1, 2)] == [9.0, 9.0]


@pytest.mark.parametrize(
    ("properties", "faults"),
    [
        ({}, {f"{S}*": "there is no group"}),
        ({f"{S}separator": ""}, {f"{S}separator": "separates nothing"}),
        ({f"{S}separator": "_", f"{S}default.produce": "much"}, {f"{S}default.produce": "is not a number of bytes"}),
        ({f"{S}separator": "_", f"{S}default.fetch": "-5"}, {f"{S}default.fetch": "is not a number of bytes"}),
        ({f"{S}seperator": "_"}, {f"{S}seperator": "is no property"}),
        ({f"{G}a.topics": ",", f"{G}a.topic": "x"}, {f"{G}a.topics": "names nobody", f"{G}a.topic": "says nothing of a group"}),
    ],
)  # fmt: skip
def test_all_that_is_wrong_is_said(properties: dict[str, str], faults: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PartitionShareQuotaCallback().configure(properties)

    assert [fault.place for fault in refused.value.faults] == list(faults)
    for fault, said in zip(refused.value.faults, faults.values(), strict=True):
        assert said in str(fault)


def test_counters_of_each_broker_follow_the_leaders() -> None:
    callback = by_separator()
    engine = QuotaEngine(callback, {})
    engine.apply([QuotaChange(QuotaEntity(user="group:a"), PRODUCE, 1_000.0)])
    lanes = [engine.lane(PRODUCE, node_id, "a_web", "c", 0) for node_id in (1, 2)]

    for leaders in ([1, 1, 1, 2], [2, 2, 2, 2]):
        assert callback.update_cluster_metadata(cluster(a_1=leaders))
        engine.reset(QuotaType)
        now = [engine.lane(PRODUCE, node_id, "a_web", "c", 0) for node_id in (1, 2)]
        assert now == lanes

        share_of_first = leaders.count(1) / 4 or 1 / 4
        assert [lane.limit for lane in lanes if lane] == [
            1_000.0 * share_of_first,
            1_000.0 * leaders.count(2) / 4,
        ]
