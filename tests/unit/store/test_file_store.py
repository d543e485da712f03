"""A gateway's own file of quotas: stored first, then in force; what cannot be is said, and traffic goes on."""

import asyncio
import os
import resource
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.session.outside import Refusal, StoreQuotas
from kvota.store import document_file
from kvota.store.file_store import FileStore, load_quota_file
from kvota.store.quota_document import QuotaDocument, read_document

ALICE, BOB = QuotaEntity("alice"), QuotaEntity("bob")
KEY = "producer_byte_rate"
_NOBODY = 65_534


def errand(entity: QuotaEntity, value: float | None) -> StoreQuotas:
    return StoreQuotas([KeyChange(entity, KEY, value)], "admin from 10.0.0.1")


class Told:
    """Whom a store has told what, in which order."""

    def __init__(self, store: FileStore) -> None:
        self.events: list[object] = []
        self.store = store
        store.begin(self._in_force)

    def _in_force(self, changes: Sequence[KeyChange]) -> None:
        self.events.append(list(changes))

    async def alter(self, *errands: StoreQuotas) -> list[Refusal | None]:
        """Ask for all at once; returns when all are answered."""
        answers: list[Refusal | None] = []
        done = asyncio.Event()

        def answered(refusal: Refusal | None) -> None:
            self.events.append("answered")
            answers.append(refusal)
            if len(answers) == len(errands):
                done.set()

        for each in errands:
            self.store.alter(each, answered)
        await done.wait()
        return answers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quotas.json"


def on_disk(path: Path) -> ClientQuotas:
    return read_document(path.read_bytes()).quotas


async def test_a_change_is_stored_then_in_force_then_answered(path: Path) -> None:
    store = FileStore(path)
    told = Told(store)
    seen_on_disk = []
    told.events = Watched(seen_on_disk, path)

    assert await told.alter(errand(ALICE, 5.0)) == [None]
    await store.end()

    assert list(told.events) == [[KeyChange(ALICE, KEY, 5.0)], "answered"]
    assert seen_on_disk == [{ALICE: {KEY: 5.0}}] * 2
    assert store.quotas == on_disk(path)


class Watched(list[object]):
    """Notes what is on the disk at each event."""

    def __init__(self, seen: list[object], path: Path) -> None:
        super().__init__()
        self._seen, self._path = seen, path

    def append(self, event: object) -> None:
        self._seen.append(on_disk(self._path).entries())
        super().append(event)


async def test_what_comes_while_it_writes_is_the_next_batch(path: Path) -> None:
    store = FileStore(path)
    told = Told(store)

    answers = await told.alter(*(errand(QuotaEntity(f"u{n}"), 1.0) for n in range(50)))
    await store.end()

    assert answers == [None] * 50
    batches = [event for event in told.events if event != "answered"]
    assert [len(batch) for batch in batches if isinstance(batch, list)] == [1, 49]
    assert len(on_disk(path)) == 50


async def test_a_later_change_wins(path: Path) -> None:
    store = FileStore(path)
    told = Told(store)

    await told.alter(*(errand(ALICE, value) for value in (1.0, 2.0, None, 3.0)))
    await store.end()

    assert on_disk(path).value(ALICE, KEY) == 3.0


async def test_the_next_gateway_has_what_the_last_one_stored(path: Path) -> None:
    first = FileStore(path)
    await Told(first).alter(errand(ALICE, 5.0), errand(BOB, 6.0))
    await first.end()

    second = FileStore(path)

    assert second.quotas.entries() == {ALICE: {KEY: 5.0}, BOB: {KEY: 6.0}}
    assert (second.problem, second.refusal) == (None, None)
    await second.end()


async def test_what_was_begun_is_finished_at_the_end(path: Path) -> None:
    store = FileStore(path)
    store.begin(lambda _changes: None)
    for number in range(5):
        store.alter(errand(QuotaEntity(f"u{number}"), 1.0), lambda _refusal: None)

    await store.end()

    assert len(on_disk(path)) == 5


async def test_two_gateways_do_not_write_one_file(path: Path) -> None:
    first = FileStore(path)
    first.begin(lambda _changes: None)

    with pytest.raises(UsageError, match=f"another gateway keeps its quotas in {path}"):
        FileStore(path)

    await first.end()
    second = FileStore(path)
    second.begin(lambda _changes: None)
    await second.end()


# ------------------------------------------------------------------ bad files


async def stored(path: Path, *values: float) -> None:
    store = FileStore(path)
    told = Told(store)
    for value in values:
        await told.alter(errand(ALICE, value))
    await store.end()


def damage(path: Path, how: str) -> bytes | None:
    """Damage the file; returns what is in it now, None: it is a folder, or gone."""
    whole = path.read_bytes()
    damaged = {
        "half": whole[: len(whole) // 2],
        "newer": whole.replace(b'"version": 1', b'"version": 3'),
        "garbage": b"\0" * 100,
    }
    if how in damaged:
        path.write_bytes(damaged[how])
        return damaged[how]
    path.unlink()
    if how == "folder":
        path.mkdir()
    return None


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


@pytest.mark.parametrize("how", ["half", "newer", "garbage", "folder"])
async def test_a_damaged_file_gives_way_to_the_one_before(path: Path, how: str) -> None:
    await stored(path, 1.0, 2.0)
    damaged = damage(path, how)

    store = FileStore(path)
    told = Told(store)

    assert store.quotas.value(ALICE, KEY) == 1.0
    assert store.problem is not None
    assert f"In force are the 1 entities of {path}.previous" in store.problem
    (refusal,) = await told.alter(errand(BOB, 1.0))
    assert refusal is not None
    assert refusal.error_code == -1
    assert str(path) in str(refusal.message)
    await store.end()
    assert content(path) == damaged  # nothing is overwritten


async def test_a_damaged_file_and_none_before(path: Path) -> None:
    await stored(path, 1.0)
    damage(path, "half")

    store = FileStore(path)

    assert len(store.quotas) == 0
    assert store.problem is not None
    assert "Nobody has a quota" in store.problem
    assert store.refusal is not None
    await store.end()


def test_a_file_that_is_not_there_yet_is_no_problem(path: Path) -> None:
    document, problem = load_quota_file(path)

    assert (len(document.quotas), problem) == (0, None)


@pytest.mark.parametrize("what", ["quotas", "settings"])
async def test_a_fault_of_who_puts_it_in_force_ends_neither_answers_nor_the_store(
    path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    store = FileStore(path)
    told = Told(store)

    def fail(*_: object) -> None:
        msg = "a fault of ours"
        raise RuntimeError(msg)

    if what == "quotas":
        store.begin(fail)
    store.on_settings = fail
    settings = {"quota.window.num": "5"} if what == "settings" else {}
    first = StoreQuotas([KeyChange(ALICE, KEY, 5.0)], "admin", settings)
    async with asyncio.timeout(10):
        (refusal,) = await told.alter(first)

        assert f"The quotas are stored in {path}, and not all of them are in force" in str(refusal)
        assert "a fault of ours" in caplog.text
        assert on_disk(path) == store.quotas
        store.begin(told._in_force)
        assert await told.alter(errand(BOB, 6.0)) == [None]
        assert told.events[-2:] == [[KeyChange(BOB, KEY, 6.0)], "answered"]
        await store.end()


def take_away(path: Path) -> None:
    path.unlink()


async def test_a_file_that_is_missing_beside_the_one_before_lifts_no_limit(path: Path) -> None:
    await stored(path, 1.0, 2.0)
    take_away(path)

    store = FileStore(path)
    told = Told(store)

    assert store.quotas.value(ALICE, KEY) == 1.0
    assert store.problem is not None
    assert f"{path} cannot be used: it is not there" in store.problem
    assert f"In force are the 1 entities of {path}.previous" in store.problem
    assert f"To begin without quotas take {path}.previous away, too" in store.problem
    (refusal,) = await told.alter(errand(BOB, 1.0))
    assert refusal is not None
    await store.end()
    assert content(path) is None
    take_away(path.with_name("quotas.json.previous"))
    assert load_quota_file(path)[1] is None


async def test_a_missing_file_beside_a_damaged_one_is_said(path: Path) -> None:
    await stored(path, 1.0, 2.0)
    take_away(path)
    previous = path.with_name("quotas.json.previous")
    damage(previous, "half")

    document, problem = load_quota_file(path)

    assert len(document.quotas) == 0
    assert f"{path} cannot be used: it is not there, and {previous} cannot be read" in str(problem)
    assert "Nobody has a quota, and alterations are refused" in str(problem)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


async def test_a_full_disk_is_said_and_the_next_change_tries_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stored(path, 1.0)
    store = FileStore(path)
    told = Told(store)
    with full_disk():
        refused = await told.alter(errand(ALICE, 2.0), errand(BOB, 2.0))
        again = await told.alter(errand(BOB, 3.0))

    assert {answer.error_code for answer in (*refused, *again) if answer} == {-1}
    assert "could not be stored, and stay as they were" in str(refused[0] and refused[0].message)
    assert [record.levelname for record in caplog.records] == ["ERROR"]  # said once
    assert store.quotas == on_disk(path) == ClientQuotas({ALICE: {KEY: 1.0}})
    assert told.events == ["answered"] * 3  # nothing came into force

    assert await told.alter(errand(BOB, 4.0)) == [None]
    await store.end()
    assert on_disk(path).value(BOB, KEY) == 4.0


async def test_a_folder_that_has_gone_is_said(path: Path) -> None:
    path = path.parent / "gone" / "quotas.json"
    store = FileStore(path)  # it says that it cannot lock
    told = Told(store)

    (refusal,) = await told.alter(errand(ALICE, 1.0))

    assert refusal is not None
    assert "No such file or directory" in str(refusal.message)
    path.parent.mkdir()
    assert await told.alter(errand(ALICE, 1.0)) == [None]
    await store.end()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nobody may write there; root becomes nobody, for nothing is read-only to it."""
    is_root = os.geteuid() == 0
    folder.chmod(0o755 if is_root else 0o500)
    if is_root:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)


async def test_a_read_only_folder_is_said_and_the_next_change_tries_again() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's are in one that nobody else may enter
        path = Path(folder) / "quotas.json"
        await stored(path, 1.0)
        with read_only(path.parent):
            store = FileStore(path)
            told = Told(store)
            (refusal,) = await told.alter(errand(ALICE, 2.0))
            assert store.quotas == on_disk(path) == ClientQuotas({ALICE: {KEY: 1.0}})
        assert await told.alter(errand(ALICE, 3.0)) == [None]
        await store.end()
        assert on_disk(path).value(ALICE, KEY) == 3.0

    assert refusal is not None
    assert "Permission denied" in str(refusal.message)


# ------------------------------------------------------------------ the gateway's settings

NUM = "quota.window.num"


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def settings_on_disk(path: Path) -> dict[str, str]:
    return dict(read_document(content_of(path)).settings)


def setting(**settings: str | None) -> StoreQuotas:
    names = {"num": NUM, "users": "client.quota.callback.group.ä.users"}
    changes = {names[name]: value for name, value in settings.items()}
    return StoreQuotas((), "admin from 10.0.0.1", changes)


async def test_settings_are_kept_with_the_quotas_and_told(path: Path) -> None:
    store = FileStore(path)
    told = Told(store)
    seen: list[object] = []
    store.on_settings = lambda: seen.append(dict(store.settings))

    await told.alter(errand(ALICE, 5.0), setting(num="7", users="a"))
    await told.alter(setting(num="8"))
    await told.alter(setting(num="8"))
    await told.alter(errand(BOB, 6.0))
    await told.alter(setting(users=None))
    await store.end()

    assert len(seen) == 3
    again = FileStore(path)
    assert again.settings == {NUM: "8"} == seen[-1]
    assert len(again.quotas) == 2
    told = Told(again)
    await told.alter(setting(num=None))
    await again.end()
    assert content_of(path) == QuotaDocument(again.quotas).content()  # as without any


async def test_settings_that_cannot_be_written_stay_as_they_were(path: Path) -> None:
    store = FileStore(path)
    told = Told(store)
    await told.alter(setting(num="7"))

    with full_disk():
        (refusal,) = await told.alter(setting(num="8"))
    await store.end()

    assert refusal is not None
    assert "could not be stored, and stay as they were" in (refusal.message or "")
    assert store.settings == {NUM: "7"} == settings_on_disk(path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (b'{"log.dirs": "/"}', "log.dirs is no setting of the gateway"),
        (b'{"quota.window.num": 5}', "quota.window.num: int is no text"),
        (b"[]", '"settings" is no object'),
    ],
)
def test_what_are_no_settings(path: Path, settings: bytes, words: str) -> None:
    path.write_bytes(
        b'{"format": "kvota client quotas", "version": 2, "settings": %s, "quotas": []}' % settings
    )

    _, problem = load_quota_file(path)

    assert words in (problem or "")


@pytest.mark.parametrize("where", ["name", "value"])
def test_half_of_a_surrogate_pair_is_no_setting(path: Path, where: str) -> None:
    name, value = "client.quota.callback.x", "1"
    half = "\\ud800"
    text = f'"{name + half}": "{value}"' if where == "name" else f'"{name}": "{value + half}"'
    path.write_text(
        f'{{"format": "kvota client quotas", "version": 2, "settings": {{{text}}}, "quotas": []}}'
    )

    _, problem = load_quota_file(path)

    assert "is no text" in (problem or "")


# ------------------------------------------------------------------ names, and what stands beside


def linked(path: Path) -> Path:
    """A link to the file, in a folder of its own."""
    folder = path.parent / "linked"
    folder.mkdir()
    link = folder / path.name
    link.symlink_to(path)
    return link


@pytest.mark.parametrize("is_linked_first", [True, False])
async def test_two_gateways_do_not_write_one_file_by_two_names(
    path: Path, *, is_linked_first: bool
) -> None:
    names = [linked(path), path]
    first, second = names if is_linked_first else names[::-1]
    store = FileStore(first)

    with pytest.raises(UsageError, match=f"another gateway keeps its quotas in {second}"):
        FileStore(second)

    store.begin(lambda _changes: None)
    await store.end()


async def test_behind_a_link_there_is_a_document_before(path: Path) -> None:
    link = linked(path)
    await stored(link, 1.0, 2.0)
    assert link.is_symlink()

    damage(path, "garbage")
    document, problem = load_quota_file(link)

    assert document.quotas.value(ALICE, KEY) == 1.0
    assert f"of {path}.previous" in (problem or "")


async def test_a_link_that_leads_elsewhere_is_not_followed(path: Path) -> None:
    link, other = linked(path), path.with_name("other.json")
    await stored(other, 7.0)
    store = FileStore(link)
    told = Told(store)
    assert await told.alter(errand(ALICE, 1.0)) == [None]
    link.unlink()
    link.symlink_to(other)

    (refusal,) = await told.alter(errand(ALICE, 2.0))
    await store.end()

    assert f"its name leads to {other} now" in str(refusal and refusal.message)
    assert (on_disk(path).value(ALICE, KEY), on_disk(other).value(ALICE, KEY)) == (1.0, 7.0)


async def test_a_refused_write_leaves_the_document_before(path: Path) -> None:
    await stored(path, 1.0, 2.0)
    before = sorted(each.name for each in path.parent.iterdir())
    store = FileStore(path)
    told = Told(store)

    with full_disk():
        (refusal,) = await told.alter(errand(ALICE, 3.0))

    assert refusal is not None
    assert sorted(each.name for each in path.parent.iterdir()) == before
    previous = path.with_name("quotas.json.previous")
    assert [on_disk(each).value(ALICE, KEY) for each in (path, previous)] == [2.0, 1.0]

    assert await told.alter(errand(ALICE, 4.0)) == [None]
    await store.end()
    assert [on_disk(each).value(ALICE, KEY) for each in (path, previous)] == [4.0, 2.0]
    assert sorted(each.name for each in path.parent.iterdir()) == before


async def test_what_would_not_be_read_again_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(path, 1.0)
    store = FileStore(path)
    told = Told(store)
    fits = QuotaEntity("b" * 100)
    size_bytes = len(store._document.with_changes([KeyChange(fits, KEY, 1.0)]).content())
    monkeypatch.setattr(document_file, "BYTES_MAX", size_bytes)

    (refusal,) = await told.alter(errand(QuotaEntity("b" * 101), 1.0))
    assert f"have {size_bytes + 1} bytes, and more than {size_bytes} are not read" in str(
        refusal and refusal.message
    )
    assert on_disk(path).entries() == {ALICE: {KEY: 1.0}}
    assert await told.alter(errand(fits, 1.0)) == [None]
    await store.end()

    document, problem = load_quota_file(path)
    assert (len(document.quotas), problem) == (2, None)


# ------------------------------------------------------------------ edited by hand


def edit(path: Path) -> None:
    document = QuotaDocument(ClientQuotas({BOB: {KEY: 7.0}}), {NUM: "9"})
    path.write_bytes(document.content())


async def test_an_edit_by_hand_is_said_and_kept(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(path)
    told = Told(store)
    await told.alter(errand(ALICE, 1.0))
    await told.alter(errand(ALICE, 2.0))
    edit(path)

    assert await told.alter(errand(ALICE, 3.0)) == [None]
    assert await told.alter(errand(ALICE, 4.0)) == [None]
    await store.end()

    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert f"{path} has been written by somebody else while the gateway ran" in warning
    assert f"import-quotas --from {path}.edited" in warning
    assert on_disk(path.with_name("quotas.json.edited")).entries() == {BOB: {KEY: 7.0}}
    assert on_disk(path).entries() == {ALICE: {KEY: 4.0}}
    assert on_disk(path.with_name("quotas.json.previous")).entries() == {ALICE: {KEY: 3.0}}


async def test_a_file_that_was_taken_away_is_written_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(path)
    told = Told(store)
    await told.alter(errand(ALICE, 1.0))
    damage(path, "gone")

    assert await told.alter(errand(BOB, 3.0)) == [None]
    await store.end()

    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert len(on_disk(path)) == 2


async def test_what_cannot_be_kept_is_not_overwritten(path: Path) -> None:
    store = FileStore(path)
    told = Told(store)
    await told.alter(errand(ALICE, 1.0))
    edit(path)
    path.with_name("quotas.json.edited").mkdir()

    (refusal,) = await told.alter(errand(ALICE, 2.0))
    await store.end()

    assert "Is a directory" in str(refusal and refusal.message)
    assert on_disk(path).entries() == {BOB: {KEY: 7.0}}


async def test_an_edit_by_hand_can_be_read_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(path)
    told = Told(store)
    await told.alter(errand(ALICE, 1.0))
    assert await store.read_again() is None
    edit(path)

    assert "2 values of quotas and 1 settings are others" in str(await store.read_again())
    assert store.quotas.entries() == {BOB: {KEY: 7.0}}
    assert store.settings == {NUM: "9"}
    assert told.events[-1] == [KeyChange(BOB, KEY, 7.0), KeyChange(ALICE, KEY, None)]
    assert await store.read_again() is None
    assert await told.alter(errand(ALICE, 2.0)) == [None]
    await store.end()

    assert not caplog.records
    assert len(on_disk(path)) == 2
    assert not path.with_name("quotas.json.edited").exists()


@pytest.mark.parametrize("how", ["half", "newer", "garbage", "folder", "gone"])
async def test_an_edit_that_is_no_document_changes_nothing(path: Path, how: str) -> None:
    store = FileStore(path)
    told = Told(store)
    await told.alter(errand(ALICE, 1.0))
    damage(path, how)

    with pytest.raises(UsageError, match=f"{path} has been written by somebody else, and cannot"):
        await store.read_again()

    assert store.quotas.entries() == {ALICE: {KEY: 1.0}}
    await store.end()


async def test_an_edit_that_could_not_be_put_in_force_is_kept(path: Path) -> None:
    store = FileStore(path)
    told = Told(store)
    await told.alter(errand(ALICE, 1.0))
    edit(path)
    with full_disk(), pytest.raises(UsageError, match="could not be stored"):
        await store.read_again()

    assert await told.alter(errand(ALICE, 2.0)) == [None]
    await store.end()

    assert on_disk(path.with_name("quotas.json.edited")).entries() == {BOB: {KEY: 7.0}}
