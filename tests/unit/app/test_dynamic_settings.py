"""Dynamic settings laid over gateway.toml: what is in force, what is refused, how it is described."""

from pathlib import Path

import pytest

from kvota.app.check_callback import check_files
from kvota.app.config import GatewayConfig, read_config
from kvota.app.dynamic_settings import RunningConfig, overlaid, refusal_of
from kvota.model.broker_settings import SettingChanges, Source
from kvota.model.errors import ConfigurationError, UsageError
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.session.outside import Refusal
from kvota.store.quota_document import QuotaDocument

CLASS = "client.quota.callback.class"
NUM, SIZE = "quota.window.num", "quota.window.size.seconds"
GROUP = "client.quota.callback.group.a.users"
OWN = "kvota.callbacks.GroupQuotaCallback"
SHARE = "kvota.callbacks.PartitionShareQuotaCallback"
STATIC = "kvota.callbacks.StaticQuotaCallback"
STATIC_PRODUCE = "client.quota.callback.static.produce"
CONFIG, REQUEST = 40, 42
PLAIN = '[upstream]\nbootstrap_servers = ["127.0.0.1:9"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def config(folder: Path, more: str = "") -> GatewayConfig:
    path = folder / "gateway.toml"
    path.write_text(PLAIN + more)
    found, faults = read_config(path)
    assert faults == []
    return found


def test_without_any_the_file_is_in_force(folder: Path) -> None:
    of_file = config(folder, f'[kafka]\n"{NUM}" = 5\n')

    assert overlaid(of_file, {}) is of_file


def test_windows_are_those_that_are_set(folder: Path) -> None:
    of_file = config(folder, f'[kafka]\n"{NUM}" = 5\n"{SIZE}" = 3\n')

    found = overlaid(of_file, {NUM: " +7 ", f"controller.{SIZE}": "2"})

    bandwidth = QuotaWindow(7, 3000)
    assert found.windows[QuotaType.PRODUCE] == found.windows[QuotaType.FETCH] == bandwidth
    assert found.gateway.connection_rates.window == bandwidth
    assert found.windows[QuotaType.CONTROLLER_MUTATION] == QuotaWindow(11, 2000)


def test_the_callback_has_the_files_properties_and_behind_them_others(folder: Path) -> None:
    of_file = config(
        folder, f'[kafka]\n"{CLASS}" = "{OWN}"\n"client.quota.callback.group.z.users" = "z"\n'
    )

    found = overlaid(of_file, {CLASS: SHARE, GROUP: "a"}).kafka.callback

    assert found.class_name == SHARE
    assert list(found.properties) == ["client.quota.callback.group.z.users", GROUP]
    assert overlaid(of_file, {NUM: "5"}).kafka.callback == of_file.kafka.callback


def test_no_other_class_is_ever_chosen(folder: Path) -> None:
    # From a topic or a file that somebody else has written, it is the same.
    with pytest.raises(UsageError, match=r"my_quotas\.ByTeam for configuration"):
        overlaid(config(folder), {CLASS: "my_quotas.ByTeam"})

    allowed = '[quotas]\ncallback_classes = ["my_quotas.ByTeam"]\n'
    found = overlaid(config(folder, allowed), {CLASS: "my_quotas.ByTeam"})
    assert found.kafka.callback.class_name == "my_quotas.ByTeam"
    named = f'[kafka]\n"{CLASS}" = "my_quotas.ByTeam"\n'
    assert overlaid(config(folder, named), {CLASS: "my_quotas.ByTeam"}).kafka.callback.class_name


@pytest.mark.parametrize("settings", [{NUM: "0"}, {SIZE: "abc"}, {NUM: "99999999999"}])
def test_stored_numbers_that_are_none(folder: Path, settings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="Invalid value"):
        overlaid(config(folder), settings)


def refused(folder: Path, changes: SettingChanges, more: str = "") -> Refusal | None:
    return refusal_of(config(folder, more), {}, changes)


@pytest.mark.parametrize(
    "name",
    [
        "client.quota.callback.static.storage.soft",
        "client.quota.callback.static.throttle.factor.scope",
        "client.quota.callback.static.kafka.admin.sasl.jaas.config",
    ],
)
def test_what_needs_a_restart(folder: Path, name: str) -> None:
    words = f"Cannot update these configs dynamically: [{name}]"
    assert refused(folder, {name: "1", CLASS: STATIC}) == (REQUEST, words)
    assert refused(folder, {name: None}) is None


def test_properties_that_nobody_takes_notice_of(folder: Path) -> None:
    for changes in ({GROUP: "a"}, {STATIC_PRODUCE: "1", CLASS: OWN}, {GROUP: "a", CLASS: STATIC}):
        refusal = refused(folder, changes)
        assert refusal is not None, changes
        assert refusal.error_code == CONFIG
    assert refused(folder, {GROUP: "a", CLASS: OWN}) is None
    assert refused(folder, {STATIC_PRODUCE: "1", CLASS: STATIC}) is None
    assert refused(folder, {"client.quota.callback.share.separator": "_", CLASS: SHARE}) is None
    allowed = '[quotas]\ncallback_classes = ["my_quotas.ByTeam"]\n'
    mine = {CLASS: "my_quotas.ByTeam", "client.quota.callback.any": "1"}
    assert refused(folder, mine, allowed) is None


def test_a_class_that_is_not_allowed_says_which_are(folder: Path) -> None:
    refusal = refused(folder, {CLASS: "os.system"})

    assert refusal is not None
    assert refusal.error_code == CONFIG
    assert "os.system" in (refusal.message or "")
    assert OWN in (refusal.message or "")
    assert "quotas.callback_classes" in (refusal.message or "")


def test_how_they_are_described(folder: Path) -> None:
    of_file = config(
        folder,
        '[quotas]\ncallback_classes = ["my_quotas.ByTeam"]\n'
        f'[kafka]\n"{NUM}" = 11\n"{CLASS}" = "{OWN}"\n"{GROUP}" = "a"\n',
    )
    settings = {NUM: "7", CLASS: "my_quotas.ByTeam", "client.quota.callback.my.secret": "hush"}

    found = {each.name: each for each in RunningConfig(of_file, settings).described}

    dynamic, static, default = Source
    assert found[NUM].values == ((dynamic, "7"), (static, "11"), (default, "11"))
    assert found[SIZE].values == ((default, "1"),)
    assert found[CLASS].values == ((dynamic, "my_quotas.ByTeam"), (static, OWN))
    assert found[GROUP].values == ((static, "a"),)
    secret = found["client.quota.callback.my.secret"]
    assert secret.values == ((dynamic, "hush"),)
    assert [each.name for each in found.values() if each.is_sensitive] == [secret.name]
    assert all(each.is_read_only for each in found.values())  # quotas.source is "toml"
    changeable = config(folder, '[quotas]\nsource = "file"\n[kafka]\n"log.dirs" = "/"\n')
    fixed = {"client.quota.callback.static.storage.soft": "1"}
    again = RunningConfig(changeable, {NUM: "7", **fixed}).described
    assert [each.name for each in again if each.is_read_only] == [*fixed]
    assert found.keys() >= {f"controller.{NUM}", f"controller.{SIZE}"}


@pytest.mark.parametrize(
    "classes", ["my_quotas.ByTeam", [1], ["ByTeam"], ["my quotas.ByTeam"], [""]]
)
def test_a_list_of_classes_that_is_none(folder: Path, classes: object) -> None:
    path = folder / "gateway.toml"
    path.write_text(f"{PLAIN}[quotas]\ncallback_classes = {classes!r}\n")

    _, faults = read_config(path)

    assert len(faults) == 1
    assert "is not a list of dotted names of classes" in str(faults[0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({CLASS: "my_quotas.ByTeam"}, "quotas.json: Invalid value my_quotas.ByTeam"),
        ({CLASS: OWN}, "client.quota.callback.group.*: there is no group"),
        (
            {CLASS: OWN, f"{GROUP}x": "a"},
            f"{GROUP}x, set dynamically: ",
        ),
    ],
)
def test_a_check_looks_at_what_is_set_dynamically(
    folder: Path, settings: dict[str, str], words: str
) -> None:
    of_file = config(folder, '[quotas]\nsource = "file"\n')
    of_file.quotas.file.write_bytes(QuotaDocument(settings={NUM: "5"}).content())
    assert check_files(of_file.path)[0].windows[QuotaType.PRODUCE].samples == 5

    of_file.quotas.file.write_bytes(QuotaDocument(settings=settings).content())
    with pytest.raises(ConfigurationError) as caught:
        check_files(of_file.path)

    assert words in str(caught.value)
