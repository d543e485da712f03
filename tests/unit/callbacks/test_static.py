"""One limit for all: Strimzi's static callback."""

import pytest

from kvota.callbacks import StaticQuotaCallback
from kvota.engine import QuotaEngine
from kvota.model.errors import ConfigurationError
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

P = "client.quota.callback.static"


def configured(**limits: str) -> StaticQuotaCallback:
    callback = StaticQuotaCallback()
    callback.configure({f"{P}.{name.replace('_', '.')}": value for name, value in limits.items()})
    return callback


def limit(callback: StaticQuotaCallback, quota_type: QuotaType, user: str = "a") -> float | None:
    return callback.quota_limit(quota_type, callback.quota_metric_tags(quota_type, user, "c"))


def test_all_clients_share_one_counter_a_type() -> None:
    engine = QuotaEngine(configured(produce="1000"), {})

    lanes = {engine.lane(QuotaType.PRODUCE, 1, user, user, 0) for user in "abc"}

    assert len(lanes) == 1
    (lane,) = lanes
    assert lane is not None
    assert (lane.tags, lane.limit) == ("quota.type=PRODUCE", 1000.0)
    assert engine.lane(QuotaType.PRODUCE, 2, "a", "a", 0) is not lane


def test_who_is_excluded_has_another_counter_without_a_limit() -> None:
    callback = configured(produce="1", excluded_principal_name_list="User:mirror")

    assert limit(callback, QuotaType.PRODUCE, "mirror") is None
    assert limit(callback, QuotaType.PRODUCE, "a") == 1.0
    assert callback.quota_metric_tags(QuotaType.PRODUCE, "mirror", "c") == {
        "quota.type": "PRODUCE",
        "excluded-principal-quota-key": "true",
    }


@pytest.mark.parametrize(
    ("quota_type", "name", "said", "limited"),
    [
        (QuotaType.PRODUCE, "produce", "5e6", 5e6),
        (QuotaType.PRODUCE, "produce", "0", 1.0),
        (QuotaType.PRODUCE, "produce", "-7", 1.0),
        (QuotaType.FETCH, "fetch", "10", 10.0),
        (QuotaType.FETCH, "fetch", "0", 0.0),
        (QuotaType.REQUEST, "request", "0.5", 0.5),
        (QuotaType.CONTROLLER_MUTATION, "produce", "5", None),
        (QuotaType.FETCH, "produce", "5", None),
    ],
)
def test_the_limit_of_a_type(
    quota_type: QuotaType, name: str, said: str, limited: float | None
) -> None:
    assert limit(configured(**{name: said}), quota_type) == limited


def test_configured_quotas_of_users_change_nothing() -> None:
    callback = configured(produce="1000")

    callback.update_quota(QuotaType.PRODUCE, QuotaEntity(user="a"), 5.0)
    callback.remove_quota(QuotaType.PRODUCE, QuotaEntity(user="a"))

    assert limit(callback, QuotaType.PRODUCE) == 1000.0


def test_limits_are_to_be_looked_at_once_after_the_start() -> None:
    callback = configured()

    assert [callback.quota_reset_required(QuotaType.FETCH) for _ in range(3)] == [
        True,
        False,
        False,
    ]
    assert callback.quota_reset_required(QuotaType.PRODUCE)


def test_a_wrong_property_is_named() -> None:
    with pytest.raises(ConfigurationError, match=rf'{P}\.produce: "lots" is not a number'):
        configured(produce="lots")


def test_the_time_of_requests_is_taken_only_where_it_has_a_limit() -> None:
    assert not configured(produce="1000").enabled(QuotaType.REQUEST)
    assert configured(request="50").enabled(QuotaType.REQUEST)
    assert configured(request="50").enabled(QuotaType.PRODUCE)
