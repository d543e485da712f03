"""Several users and client ids under one quota."""

import pytest

from kvota.callbacks.grouped import GroupQuotaCallback
from kvota.engine import QuotaEngine
from kvota.model.configured_quotas import QuotaChange
from kvota.model.errors import ConfigurationError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType

G = "client.quota.callback.group."
PRODUCE = QuotaType.PRODUCE


def grouped(**properties: str) -> GroupQuotaCallback:
    callback = GroupQuotaCallback()
    callback.configure({G + name.replace("__", "."): text for name, text in properties.items()})
    return callback


def group_of(callback: GroupQuotaCallback, user: str, client_id: str = "app") -> str | None:
    return callback.quota_metric_tags(PRODUCE, user, client_id).get("group")


@pytest.mark.parametrize(
    ("user", "client_id", "group"),
    [
        ("alice", "x", "named"),
        ("alicia", "x", None),
        ("etl-1", "x", "batch"),
        ("xetl-1", "x", None),
        ("job-17", "x", "batch"),
        ("job-17b", "x", None),  # the pattern is for the whole name
        ("anybody", "probe", "probes"),
        ("anybody", "probe2", None),
        ("alice", "probe", "named"),  # the first group that fits
        ("carol", "app-1", "both"),
        ("carol", "other", None),
        ("dave", "app-1", None),
    ],
)
def test_who_belongs_where(user: str, client_id: str, group: str | None) -> None:
    callback = grouped(
        named__users="alice, bob",
        batch__user__prefixes="etl-,spark-",
        batch__user__pattern="job-[0-9]+",
        probes__client__ids="probe",
        both__users="carol",
        both__client__id__pattern="app-.*",
    )

    assert group_of(callback, user, client_id) == group


def test_members_share_one_counter_and_its_limit() -> None:
    engine = QuotaEngine(grouped(batch__user__prefixes="etl-"), {})
    engine.apply([QuotaChange(QuotaEntity(user="group:batch"), PRODUCE, 1000.0)])

    lanes = {engine.lane(PRODUCE, 1, user, user, 0) for user in ("etl-1", "etl-2")}

    assert len(lanes) == 1
    (lane,) = lanes
    assert lane is not None
    assert (lane.tags, lane.limit) == ("group=batch", 1000.0)


def test_a_groups_limit_changes_while_it_is_used() -> None:
    engine = QuotaEngine(grouped(batch__user__prefixes="etl-"), {})
    engine.apply([QuotaChange(QuotaEntity(user="group:batch"), PRODUCE, 1000.0)])
    lane = engine.lane(PRODUCE, 1, "etl-1", "app", 0)
    assert lane is not None

    engine.apply([QuotaChange(QuotaEntity(user="group:batch"), PRODUCE, 50.0)])
    assert lane.limit == 50.0
    engine.apply([QuotaChange(QuotaEntity(user="group:batch"), PRODUCE, None)])
    assert lane.limit is None


def test_others_count_by_kafkas_own_rules() -> None:
    callback = grouped(batch__user__prefixes="etl-")
    callback.update_quota(PRODUCE, QuotaEntity(user=DEFAULT), 7.0)
    callback.update_quota(PRODUCE, QuotaEntity(user="group:batch"), 1000.0)

    tags = callback.quota_metric_tags(PRODUCE, "alice", "app")

    assert tags == {"client-id": "", "user": "alice"}
    assert callback.quota_limit(PRODUCE, tags) == 7.0


def test_a_group_is_no_kind_of_quota_for_the_others() -> None:
    callback = grouped(batch__user__prefixes="etl-")
    callback.update_quota(PRODUCE, QuotaEntity(client_id="app"), 7.0)
    callback.update_quota(PRODUCE, QuotaEntity(user="group:batch"), 1000.0)

    # With client quotas alone everybody counts by client id; the group's user must not change that.
    assert callback.quota_metric_tags(PRODUCE, "alice", "app") == {"client-id": "app", "user": ""}


def test_nothing_is_counted_while_nobody_has_a_quota() -> None:
    callback = grouped(batch__user__prefixes="etl-")

    assert not callback.enabled(PRODUCE)
    callback.update_quota(PRODUCE, QuotaEntity(user="group:batch"), 1000.0)
    assert callback.enabled(PRODUCE)
    assert not callback.enabled(QuotaType.FETCH)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "there is no group"),
        ({f"{G}batch": "a"}, "batch: .*It is"),
        ({f"{G}batch.user.prefix": "a"}, r"batch\.user\.prefix: .*Did you mean \.user\.prefixes\?"),
        ({f"{G}.users": "a"}, r"group\.\.users: "),
        ({f"{G}b c.users": "a"}, "b c"),
        ({f"{G}batch.users": " , "}, "names nobody"),
        ({f"{G}batch.user.pattern": "("}, r'"\(" is no regular expression: missing \): \('),
        ({f"{G}batch.user.pattern": "|".join(["a{1,900}"] * 32)}, "too large.*names or prefixes"),
        ({f"{G}batch.user.pattern": "a" * 4_097}, "it has 4,097 characters, and 4,096 is the most"),
        ({f"{G}batch.user.pattern": r"(?=etl-)\w+"}, r"invalid perl operator: \(\?=.*look-ahead"),
    ],
)
def test_what_is_no_group_is_refused(properties: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        GroupQuotaCallback().configure(properties)


@pytest.mark.parametrize("pattern", ["(a+)+b", ".*a.*a.*a.*b", "(a|aa)+b"])
def test_no_name_is_slow(pattern: str) -> None:
    """Backtracking would take longer than the test may: the plainest of them some 10^12 steps."""
    callback = grouped(batch__client__id__pattern=pattern)

    assert group_of(callback, "alice", 32_767 * "a") is None


@pytest.mark.parametrize(
    "pattern",
    [
        "svc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "|".join(f"team-{number}-[a-z0-9]{{1,30}}" for number in range(40)),
        "|".join(f"team-{number}" for number in range(400)),
    ],
)
def test_what_people_write_is_not_too_large(pattern: str) -> None:
    assert group_of(grouped(batch__user__pattern=pattern), "nobody", "c") is None


def test_all_faults_are_said_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        GroupQuotaCallback().configure(
            {f"{G}batch.users": " , ", f"{G}batch.user.pattern": "(", f"{G}x": "y"}
        )

    assert [fault.place for fault in refused.value.faults] == [
        f"{G}batch.users",
        f"{G}batch.user.pattern",
        f"{G}x",
    ]


def test_a_group_without_a_limit_of_its_own_has_that_of_any_group() -> None:
    callback = grouped(batch__user__prefixes="etl-", probes__client__ids="probe")
    callback.update_quota(PRODUCE, QuotaEntity(user="group:*"), 5.0)
    callback.update_quota(PRODUCE, QuotaEntity(user="group:batch"), 7.0)

    limits = [callback.quota_limit(PRODUCE, {"group": name}) for name in ("batch", "probes")]

    assert limits == [7.0, 5.0]


def test_the_first_limit_of_a_group_counts_for_those_who_are_there_already() -> None:
    engine = QuotaEngine(grouped(batch__user__prefixes="etl-"), {})
    before = engine.lane(PRODUCE, 1, "etl-1", "app", 0)
    assert before is not None
    version = before.version

    engine.apply([QuotaChange(QuotaEntity(user="group:batch"), PRODUCE, 1000.0)])

    assert before.version != version
    now = engine.lane(PRODUCE, 1, "etl-1", "app", 0)
    assert now is not None
    assert now.limit == 1000.0
