"""A callback by its class's name, and each way in which that cannot be had."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.callbacks import DefaultQuotaCallback, StaticQuotaCallback, load_callback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

QUOTAS = ConfiguredQuotas({QuotaEntity(user="alice"): {QuotaType.PRODUCE: 1000.0}})

MODULE = """
from kvota.callbacks import ClientQuotaCallback

class Everybody(ClientQuotaCallback):
    def __init__(self):
        self.told, self.properties = [], {}
    def configure(self, properties):
        self.properties = dict(properties)
    def quota_metric_tags(self, quota_type, user, client_id):
        return {"all": "all"}
    def quota_limit(self, quota_type, tags):
        return 5.0
    def update_quota(self, quota_type, entity, limit):
        self.told.append((quota_type, entity, limit))
    def remove_quota(self, quota_type, entity):
        pass
    def quota_reset_required(self, quota_type):
        return False

class Half(ClientQuotaCallback):
    def quota_limit(self, quota_type, tags):
        return 5.0

class Picky(Everybody):
    def configure(self, properties):
        raise KeyError("my.property")

class NeedsMore(Everybody):
    def __init__(self, more):
        pass

class Nothing:
    pass

not_a_class = 5
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_quotas.py").write_text(MODULE)
    (tmp_path / "broken_quotas.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("my_quotas", "broken_quotas"):
        sys.modules.pop(name, None)


def load(name: str, **properties: str) -> ClientQuotaCallback:
    return load_callback(name, properties, QUOTAS)


def test_a_callback_of_ones_own_is_configured_and_told_the_quotas() -> None:
    callback = load("my_quotas.Everybody", x="1")

    assert callback.properties == {"x": "1"}  # type: ignore[attr-defined]
    assert callback.told == [(QuotaType.PRODUCE, QuotaEntity(user="alice"), 1000.0)]  # type: ignore[attr-defined]
    assert callback.initial_quotas == QUOTAS


def test_the_default_has_the_quotas_once() -> None:
    callback = load("kvota.callbacks.DefaultQuotaCallback")

    assert isinstance(callback, DefaultQuotaCallback)
    tags = callback.quota_metric_tags(QuotaType.PRODUCE, "alice", "c")
    assert callback.quota_limit(QuotaType.PRODUCE, tags) == 1000.0
    assert not callback.quota_reset_required(QuotaType.PRODUCE)


def test_strimzis_own_name_is_known() -> None:
    assert isinstance(load("io.strimzi.kafka.quotas.StaticQuotaCallback"), StaticQuotaCallback)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Everybody", "is no dotted name"),
        ("no_such_module.Quotas", "no_such_module cannot be imported"),
        ("my_quotas.Somebody", "my_quotas has no Somebody"),
        ("my_quotas.Nothing", "is no subclass of"),
        ("my_quotas.not_a_class", "is no subclass of"),
        ("my_quotas.Half", "lacks quota_metric_tags, quota_reset_required, remove_quota, update_quota"),
        ("my_quotas.Picky", "cannot be configured: KeyError: 'my.property'"),
        ("my_quotas.NeedsMore", "NeedsMore\\(\\) fails: TypeError"),
        ("broken_quotas.Quotas", "importing broken_quotas fails: ZeroDivisionError"),
        ("kvota.callbacks.StaticQuotaCallbak", 'has no StaticQuotaCallbak. Did you mean "kvota.callbacks.StaticQuotaCallback"'),
        ("GroupQuotaCallback", 'Did you mean "kvota.callbacks.GroupQuotaCallback"'),
        ("io.strimzi.kafka.quotas.StaticQuotaCallbak", 'Did you mean "kvota.callbacks.StaticQuotaCallback"'),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_said(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        load(name)

    assert str(refused.value).startswith("client.quota.callback.class: ")
