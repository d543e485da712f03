"""Whatever is in force and whatever a file wants: applied it is in force, undone it is as before, wherever it was stopped."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.app.quotas_as_code.held_quotas import Agreed, Clock, HeldQuotas, Killed

from kvota.app.quotas_as_code.applying import Wishes, apply, undo
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.errors import KvotaError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.planning.wanted_quotas import WantedQuotas
from kvota.store.quotas_yaml import QuotasDocument, load_document, write_document

# Few names, so that what is there and what is wanted meet.
NAMES = st.sampled_from(["a", "b", "no", "5", "ü", DEFAULT])
ENTITIES = st.one_of(
    NAMES.map(lambda name: QuotaEntity(user=name)),
    NAMES.map(lambda name: QuotaEntity(client_id=name)),
    st.tuples(NAMES, NAMES).map(lambda names: QuotaEntity(*names)),
)
WHOLE = st.integers(1, 1000).map(float)
VALUES = st.one_of(
    st.tuples(ENTITIES, st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]), WHOLE),
    st.tuples(ENTITIES, st.just("request_percentage"), st.floats(0.1, 1000)),
    st.tuples(
        NAMES.map(lambda name: QuotaEntity(ip=name)), st.just("connection_creation_rate"), WHOLE
    ),
)
IN_FORCE = st.lists(VALUES, max_size=8).map(
    lambda values: ClientQuotas().with_changes(KeyChange(*each) for each in values)
)
WANTED = st.dictionaries(VALUES.map(lambda value: value[:2]), st.none(), max_size=1).flatmap(
    lambda removed: st.lists(VALUES, max_size=8).map(
        lambda values: WantedQuotas.of(
            (entity, key, value)
            for (entity, key), value in {
                **{(entity, key): value for entity, key, value in values},
                **removed,
            }.items()
        )
    )
)
STOPS = st.none() | st.tuples(
    st.integers(1, 6), st.sampled_from(["lost", "unsent", "killed before", "killed behind"])
)


class Told:
    """One change in a folder of its own, each command as a process of its own would carry it out."""

    def __init__(self, folder: Path, in_force: ClientQuotas, wanted: WantedQuotas) -> None:
        self.held = HeldQuotas(in_force)
        self._file = folder / "quotas.yaml"
        write_document(self._file, QuotasDocument(wanted=wanted))

    def apply(self, *, prunes: bool = False, ramp: str | None = None) -> bool:
        wishes = Wishes(
            file=self._file,
            command="apply",
            prunes=prunes,
            is_forced=ramp is None,
            lower_percent_max=100,
            ramp=ramp,
            values_per_request=4,
        )
        document = load_document(self._file)
        applied = asyncio.run(apply(self.held, document, wishes, Agreed(), Clock()))
        return applied.undo_file is not None

    def undo(self) -> None:
        for file in self.undo_files():
            wishes = Wishes(file=file, command="undo", values_per_request=4)
            asyncio.run(undo(self.held, wishes, Agreed(), Clock()))

    def undo_files(self) -> Iterator[Path]:
        """The newest first."""
        yield from sorted(
            self._file.parent.glob("*.undo*"), key=lambda each: (len(each.name), each.name)
        )[::-1]


@settings(max_examples=60)
@given(IN_FORCE, WANTED, st.booleans(), STOPS)
def test_applied_it_is_in_force_and_undone_it_is_as_before(
    in_force: ClientQuotas, wanted: WantedQuotas, prunes: bool, stop: tuple[int, str] | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = Told(Path(folder), in_force, wanted)
        if stop is not None:
            told.held.fails = dict([stop])
            with suppress(Killed, KvotaError):
                told.apply(prunes=prunes)
            told.held.fails = {}
        told.apply(prunes=prunes)

        assert wanted.differences(told.held.quotas, prunes=prunes) == ()
        if not prunes:
            untouched = in_force.with_changes(each._replace(value=None) for each in wanted.values())
            assert all(
                told.held.quotas.value(entity, key) == value
                for entity, values in untouched.entries().items()
                for key, value in values.items()
            )
        assert told.apply(prunes=prunes) is False
        told.undo()
        assert told.held.quotas == in_force


@settings(max_examples=60)
@given(IN_FORCE, WANTED, STOPS, st.booleans())
def test_a_ramp_that_was_stopped_reaches_its_goals_or_goes_back(
    in_force: ClientQuotas, wanted: WantedQuotas, stop: tuple[int, str] | None, goes_on: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = Told(Path(folder), in_force, wanted)
        told.held.fails = {} if stop is None else dict([stop])
        with suppress(Killed, KvotaError):
            told.apply(ramp="60%/1s")
        told.held.fails = {}
        if goes_on:
            told.apply(ramp="60%/1s")
            assert wanted.differences(told.held.quotas) == ()
        assert len(list(told.undo_files())) <= 1  # it was gone on with, not begun anew
        told.undo()
        assert told.held.quotas == in_force
