"""``kvota gateway --check`` and a callback of somebody's own: all that is wrong, each with its place."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvota.app.check_callback import check_files
from kvota.callbacks import own_module
from kvota.gateway import callback_loading
from kvota.model.errors import ConfigurationError

MODULE = """\
import time
from kvota.callbacks import ClientQuotaCallback

class Good(ClientQuotaCallback):
    closed = 0
    def quota_metric_tags(self, quota_type, user, client_id):
        return {"user": user}
    def quota_limit(self, quota_type, tags):
        return 5.0
    def update_quota(self, quota_type, entity, limit):
        pass
    def remove_quota(self, quota_type, entity):
        pass
    def quota_reset_required(self, quota_type):
        return False
    def close(self):
        Good.closed += 1

class Bad(Good):
    def quota_metric_tags(self, quota_type, user, client_id):
        return {"team": self.teams[user]}  # of tags
    def remove_quota(self, quota_type, entity):
        raise OSError("no directory")  # of remove
    def quota_reset_required(self, quota_type):  # of reset
        return "no"
    def update_cluster_metadata(self, cluster):  # of cluster
        return None
    def close(self):
        1 / 0  # of close

class Nan(Good):
    def quota_limit(self, quota_type, tags):  # of nan
        return float("nan")

class OfAlice(Good):
    def quota_metric_tags(self, quota_type, user, client_id):
        if user == "alice":
            raise KeyError(user)  # of alice
        return {"user": user}

class Sleeps(Good):
    def quota_limit(self, quota_type, tags):
        time.sleep(30)

class AtStart(Good):
    def configure(self, properties):
        time.sleep(30)  # of start

class Leaves(Good):
    def update_quota(self, quota_type, entity, limit):
        raise SystemExit(0)  # of leaving
    def enabled(self, quota_type):
        time.sleep(30)  # of enabled

class Half(ClientQuotaCallback):  # of half
    def quota_limit(self, quota_type, tags):
        return 5.0
    async def quota_metric_tags(self, quota_type, user, client_id):  # of async
        return {}
"""
QUOTAS = '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\n'

Check = Callable[..., list[str]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """The faults of a callback, each as its text."""
    (tmp_path / "checked_quotas.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)

    def check(name: str, more: str = "", quotas: str = QUOTAS) -> list[str]:
        (tmp_path / "quotas.toml").write_text(quotas)
        path = tmp_path / "gateway.toml"
        path.write_text(
            '[upstream]\nbootstrap_servers = ["kafka:9092"]\n'
            f'[kafka]\n"client.quota.callback.class" = "{name}"\n{more}'
        )
        try:
            check_files(path)
        except ConfigurationError as error:
            return [str(fault).replace(f"{tmp_path}/", "") for fault in error.faults]
        return []

    yield check
    sys.modules.pop("checked_quotas", None)
    own_module._imported.pop("checked_quotas", None)


def line(comment: str) -> str:
    """Where in the module a comment stands."""
    numbers = [n for n, text in enumerate(MODULE.splitlines(), 1) if text.endswith(f"# {comment}")]
    return f"checked_quotas.py:{numbers[0]}: "


def test_one_that_does_as_it_should_has_no_fault_and_is_closed(check: Check) -> None:
    assert check("checked_quotas.Good") == []

    assert sys.modules["checked_quotas"].Good.closed == 1


def test_every_method_that_fails_is_said_with_its_line(check: Check) -> None:
    faults = check("checked_quotas.Bad")

    assert [fault.partition(": ")[0] + ": " for fault in faults] == [
        line("of cluster"),
        line("of tags"),
        line("of reset"),
        line("of remove"),
        line("of close"),
    ]
    assert "Bad.update_cluster_metadata answered None, not True or False" in faults[0]
    assert "Bad.quota_metric_tags raises AttributeError: 'Bad' object has no attribute 'teams'" in faults[1]  # fmt: skip
    assert "Bad.quota_reset_required answered 'no', not True or False" in faults[2]
    assert "Bad.remove_quota raises OSError: no directory" in faults[3]
    assert "Bad.close raises ZeroDivisionError" in faults[4]


def test_a_limit_that_is_none_is_said_with_the_line_of_its_method(check: Check) -> None:
    (fault,) = check("checked_quotas.Nan")

    assert fault.startswith(line("of nan") + "checked_quotas.Nan.quota_limit answered nan")


def test_it_is_asked_about_those_who_have_quotas(check: Check) -> None:
    (fault,) = check("checked_quotas.OfAlice")

    assert fault.startswith(line("of alice"))
    assert check("checked_quotas.OfAlice", quotas=QUOTAS.replace("alice", "bob")) == []


def test_one_that_does_not_come_back_is_said(check: Check) -> None:
    (fault,) = check("checked_quotas.Sleeps")

    assert "Sleeps.quota_limit has not come back for" in fault


def test_one_that_hangs_before_it_is_one_is_said_with_its_line(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_loading, "LOAD_S", 2.0)

    (fault,) = check("checked_quotas.AtStart")

    assert fault.startswith(line("of start") + "checked_quotas.AtStart has not been made and configured within 2 s")  # fmt: skip


@pytest.mark.parametrize("quotas", ["", QUOTAS], ids=["asked", "told"])
def test_one_that_leaves_the_process_does_not_end_the_check(check: Check, quotas: str) -> None:
    faults = check("checked_quotas.Leaves", quotas=quotas)

    assert faults[-1].startswith(line("of leaving"))
    assert "SystemExit: 0" in faults[-1]
    if not quotas:
        assert "Leaves.enabled has not come back for" in faults[0]


def test_a_class_that_lacks_methods_is_said_with_all_that_is_wrong_with_it(check: Check) -> None:
    lacks, coroutine = check("checked_quotas.Half")

    assert lacks.startswith(line("of half") + "checked_quotas.Half lacks quota_reset_required, remove_quota, update_quota")  # fmt: skip
    assert coroutine.startswith(line("of async"))


def test_faults_of_all_files_are_said_together(check: Check) -> None:
    faults = check(
        "checked_quotas.Nobody", more='"quota.window.num" = "x"\n', quotas='[[quota]]\nuser = ""\n'
    )

    assert 'gateway.toml:5: kafka."quota.window.num": ' in faults[0]
    assert any(fault.startswith("quotas.toml:") for fault in faults)
    assert faults[-1].startswith('gateway.toml:4: kafka."client.quota.callback.class": checked_quotas has no Nobody')  # fmt: skip


def test_properties_of_kvotas_own_callbacks_are_said_with_their_lines(check: Check) -> None:
    faults = check(
        "kvota.callbacks.GroupQuotaCallback",
        more='"client.quota.callback.group.a.users" = ","\n"client.quota.callback.group.b.pattern" = "x"\n',
    )

    assert [fault.partition(": kafka.")[0] for fault in faults] == ["gateway.toml:5", "gateway.toml:6"]  # fmt: skip
    assert "unknown key" in check("kvota.callbacks.GroupQuotaCallback", more='"client.quota.callback.grp.a.users" = "x"\n')[0]  # fmt: skip


def test_what_the_reader_and_the_callback_both_find_is_said_once(check: Check) -> None:
    faults = check(
        "kvota.callbacks.StaticQuotaCallback",
        more='"client.quota.callback.static.produce" = "lots"\n',
    )

    assert len(faults) == 1
    assert faults[0].startswith('gateway.toml:5: kafka."client.quota.callback.static.produce": ')
