"""A callback by its class's name, and each way in which that cannot be had."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.callbacks import (
    ChosenCallback,
    DefaultQuotaCallback,
    StaticQuotaCallback,
    load_callback,
    own_module,
)
from kvota.callbacks.loading import choose
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import ConfigurationError
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

class Deaf(Everybody):
    def update_quota(self, quota_type, entity, limit):
        raise OSError("no directory")

class Careful(Everybody):
    def configure(self, properties):
        raise ValueError('my.limit: "much" is no number')

class Other(Everybody):
    def quota_limit(self, quota_type):
        return 5.0
    async def quota_metric_tags(self, quota_type, user, client_id):
        return {}

class Nothing:
    pass

not_a_class = 5
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_quotas.py").write_text(MODULE)
    (tmp_path / "broken_quotas.py").write_text("1 / 0\n")
    (tmp_path / "torn_quotas.py").write_text("x = 1\ndef f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("my_quotas", "broken_quotas"):
        sys.modules.pop(name, None)
        own_module._imported.pop(name, None)


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
        ("kvota.callbacks.StaticQuotaCallbak", 'has no StaticQuotaCallbak. Did you mean "kvota.callbacks.StaticQuotaCallback"'),
        ("GroupQuotaCallback", 'Did you mean "kvota.callbacks.GroupQuotaCallback"'),
        ("io.strimzi.kafka.quotas.StaticQuotaCallbak", 'Did you mean "kvota.callbacks.StaticQuotaCallback"'),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_said(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        load(name)

    assert str(refused.value).startswith("client.quota.callback.class: ")


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("my_quotas.Half", "class Half", "lacks quota_metric_tags, quota_reset_required, remove_quota, update_quota"),
        ("my_quotas.Picky", "raise KeyError", r"Picky\.configure raises KeyError: 'my\.property'"),
        ("my_quotas.NeedsMore", "class NeedsMore", r"NeedsMore\(\) fails: TypeError"),
        ("my_quotas.Deaf", "raise OSError", r"Deaf\.update_quota\(PRODUCE, user-principal 'alice', 1000\) raises OSError"),
        ("my_quotas.Other", "def quota_limit(self, quota_type):", "quota_limit cannot be called with 2 arguments: .*Write def quota_limit"),
        ("my_quotas.Other", "async def quota_metric_tags", "quota_metric_tags is a coroutine"),
        ("broken_quotas.Quotas", "1 / 0", "importing broken_quotas fails: ZeroDivisionError"),
        ("torn_quotas.Quotas", "def f(:", "torn_quotas cannot be imported: invalid syntax"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_class_is_said_with_its_line(name: str, line: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        load(name)

    (places,) = [[fault.place for fault in refused.value.faults if re.search(said, str(fault))]]
    (place,) = places
    file, _, number = place.rpartition(":")
    if "NeedsMore" in name:  # it fails before any line of it is reached
        assert place == "client.quota.callback.class"
    else:
        assert line in Path(file).read_text().splitlines()[int(number) - 1]


def test_all_faults_of_a_class_are_said_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load("my_quotas.Other")

    assert len(refused.value.faults) == 2


def test_a_value_error_that_names_a_property_is_that_propertys() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load("my_quotas.Careful", **{"my.limit": "much"})

    (fault,) = refused.value.faults
    assert (fault.place, fault.problem) == ("my.limit", '"much" is no number')


def test_a_module_whose_file_has_changed_is_imported_anew(tmp_path: Path) -> None:
    before = load("my_quotas.Everybody")
    chosen = ChosenCallback("my_quotas.Everybody")
    assert not chosen.has_changed
    file = tmp_path / "my_quotas.py"
    stat = file.stat()

    # Within the same second, and as long as before: compiled files are not told apart by more.
    file.write_text(MODULE.replace("return 5.0", "return 7.0", 1))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    assert chosen.has_changed
    now = load("my_quotas.Everybody")
    assert not chosen.has_changed
    limits = [each.quota_limit(QuotaType.PRODUCE, {}) for each in (before, now)]
    assert limits == [5.0, 7.0]


def test_a_module_that_has_changed_for_the_worse_leaves_the_one_that_was_there(
    tmp_path: Path,
) -> None:
    load("my_quotas.Everybody")
    good = sys.modules["my_quotas"]
    (tmp_path / "my_quotas.py").write_text("1 / 0\n")

    with pytest.raises(ConfigurationError, match="ZeroDivisionError"):
        load("my_quotas.Everybody")

    assert sys.modules["my_quotas"] is good
    (tmp_path / "my_quotas.py").write_text(MODULE)
    load("my_quotas.Everybody")


def test_the_order_of_properties_makes_a_difference() -> None:
    first, second = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}

    assert ChosenCallback("x.Y", first) == ChosenCallback("x.Y", dict(first))
    assert ChosenCallback("x.Y", first) != ChosenCallback("x.Y", second)


def test_only_what_a_callback_takes_notice_of_is_chosen() -> None:
    properties = {"client.quota.callback.group.a.users": "x", "client.quota.callback.static.produce": "5"}  # fmt: skip

    chosen = [
        list(choose(f"kvota.callbacks.{name}", properties).properties)
        for name in ("DefaultQuotaCallback", "GroupQuotaCallback", "StaticQuotaCallback")
    ]

    assert chosen == [[], ["client.quota.callback.group.a.users"], list(properties)]
