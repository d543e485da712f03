"""Applying: what is shown is done, or nothing is; what undoes it is on the disk before; what stops half way is known."""

import asyncio
from math import inf
from pathlib import Path

import pytest
from tests.unit.app.quotas_as_code.held_quotas import Agreed, Clock, HeldQuotas, Killed

from kvota.app.quotas_as_code.alterable_quotas import InForce, NotAllowedError
from kvota.app.quotas_as_code.applying import Applied, Wishes, apply, undo
from kvota.app.quotas_as_code.plan import LOWER_PERCENT_MAX, make_plan, plan_document
from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import KvotaError, NegativeError, UnreachableError, UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.store.quotas_yaml import load_document, write_document

RATE = "producer_byte_rate"
MB = 1_000_000.0


def of(**users: float) -> ClientQuotas:
    return ClientQuotas({QuotaEntity(user=name): {RATE: value} for name, value in users.items()})


def text(**users: object) -> str:
    lines = [f"  - user: {name}\n    {RATE}: {value}" for name, value in users.items()]
    return "quotas:\n" + "\n".join(lines) if lines else "quotas: []"


class Bench:
    """One file, quotas, and somebody who agrees."""

    def __init__(self, folder: Path, quotas: ClientQuotas) -> None:
        self.file = folder / "quotas.yaml"
        self.held = HeldQuotas(quotas)
        self.dialogue = Agreed()
        self.clock = Clock()

    def apply(self, content: str, *, within_s: float | None = None, **wishes: object) -> Applied:
        self.file.write_text(content)
        document = load_document(self.file)
        wanted = Wishes(file=self.file, command="kvota quotas apply", **wishes)  # type: ignore[arg-type]
        applying = apply(self.held, document, wanted, self.dialogue, self.clock)
        return asyncio.run(asyncio.wait_for(applying, within_s))

    def undo(self, name: str = "quotas.undo.yaml", **wishes: object) -> Applied:
        wanted = Wishes(file=self.file.with_name(name), command="kvota quotas undo", **wishes)  # type: ignore[arg-type]
        return asyncio.run(undo(self.held, wanted, self.dialogue, self.clock))

    def files(self) -> list[str]:
        return sorted(each.name for each in self.file.parent.iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, of(a=MB, b=2 * MB))


def test_it_is_one_request_and_then_there_is_nothing_to_do(bench: Bench) -> None:
    done = bench.apply(text(a="2MB/s", c="5MB/s"))

    assert bench.held.quotas == of(a=2 * MB, b=2 * MB, c=5 * MB)
    assert len(bench.held.requests) == 1
    assert done.undo_file == bench.file.with_name("quotas.undo.yaml")
    assert bench.dialogue.heard == ["undo quotas.undo.yaml"]
    again = bench.apply(text(a="2MB/s", c="5MB/s"))
    assert again.undo_file is None
    assert len(bench.held.requests) == 1
    assert bench.files() == ["quotas.undo.yaml", "quotas.yaml"]


def test_undone_it_is_as_before_and_that_can_be_undone(bench: Bench) -> None:
    bench.apply(text(a="2MB/s", b="none", c="5MB/s"))
    assert bench.held.quotas == of(a=2 * MB, c=5 * MB)
    bench.undo()
    assert bench.held.quotas == of(a=MB, b=2 * MB)
    assert bench.undo().undo_file is None  # nothing is left to undo
    bench.undo("quotas.undo-2.yaml")
    assert bench.held.quotas == of(a=2 * MB, c=5 * MB)


def test_pruning_removes_what_is_not_mentioned(bench: Bench) -> None:
    bench.apply(text(a="1MB/s"), prunes=True)

    assert bench.held.quotas == of(a=MB)
    bench.undo()
    assert bench.held.quotas == of(a=MB, b=2 * MB)


def test_a_file_without_quotas_prunes_nothing_unless_forced(bench: Bench) -> None:
    with pytest.raises(NegativeError, match="all 2 values in force would go"):
        bench.apply(text(), prunes=True)
    assert bench.held.quotas == of(a=MB, b=2 * MB)

    bench.apply(text(), prunes=True, is_forced=True)
    assert bench.held.quotas == ClientQuotas()


def test_nothing_is_lowered_too_far_unless_forced(bench: Bench) -> None:
    with pytest.raises(NegativeError, match=r"user b: .* from 2MB/s to 0.9MB/s, 55 % lower"):
        bench.apply(text(a="3MB/s", b="900KB/s"))
    assert not bench.held.requests
    assert bench.files() == ["quotas.yaml"]
    bench.apply(text(b="1MB/s"))  # exactly half

    bench.apply(text(b="100KB/s"), is_forced=True)
    assert bench.held.quotas == of(a=MB, b=1e5)


def test_nothing_is_done_where_one_value_is_refused(bench: Bench) -> None:
    content = text(a="2MB/s") + "\n  - ip: no-such-host\n    connection_creation_rate: 5"
    with pytest.raises(
        UsageError, match=r"nothing was changed(.|\n)*no-such-host is not a valid IP"
    ):
        bench.apply(content)

    assert bench.held.quotas == of(a=MB, b=2 * MB)
    assert bench.files() == ["quotas.yaml"]


def test_nothing_is_done_where_nobody_agrees(bench: Bench) -> None:
    bench.dialogue.answer = False

    assert not bench.apply(text(a="2MB/s")).is_agreed
    assert not bench.held.requests
    assert bench.files() == ["quotas.yaml"]


def test_what_changes_while_it_is_shown_stops_it(bench: Bench) -> None:
    bench.held.meanwhile = [of(a=MB), of(a=MB, z=MB)]
    with pytest.raises(NegativeError, match=r"user z .* none → 1MB/s(.|\n)*nothing was changed"):
        bench.apply(text(a="2MB/s"))

    assert not bench.held.requests


# ------------------------------------------------------------------ plans


# When the clock of these tests begins.
MADE_AT = "2023-11-14T22:13:20Z"


def planned(bench: Bench, content: str, *, prunes: bool = False, made_at: str = MADE_AT) -> Path:
    bench.file.write_text(content)
    document = load_document(bench.file)
    plan = make_plan(
        document, InForce(bench.held.quotas, ()), prunes=prunes, lower_percent_max=LOWER_PERCENT_MAX
    )
    path = bench.file.with_name("plan.yaml")
    written = plan_document(document, plan, made_at=made_at, cluster_id="held", prunes=prunes)
    write_document(path, written)
    return path


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (of(a=5 * MB, b=2 * MB), "1MB/s → 5MB/s"),
        (of(a=MB), "2MB/s → none"),
        (of(a=MB, b=2 * MB, x=MB), "none → 1MB/s"),
    ],
)
def test_a_stale_plan_is_refused_with_the_difference(
    bench: Bench, now: ClientQuotas, words: str
) -> None:
    plan = planned(bench, text(a="2MB/s"))
    bench.held.quotas = now
    with pytest.raises(
        NegativeError, match=f"the plan of 2023-11-14T22:13:20Z is stale(.|\n)*{words}"
    ):
        bench.apply(plan.read_text())

    assert not bench.held.requests


def test_a_fresh_plan_is_applied_and_a_second_time_finds_nothing_to_do(bench: Bench) -> None:
    plan = planned(bench, text(a="2MB/s")).read_text()
    bench.apply(plan)
    assert bench.held.quotas == of(a=2 * MB, b=2 * MB)

    assert bench.apply(plan).undo_file is None


@pytest.mark.parametrize(
    ("made_at", "words"),
    [
        (
            "2023-11-13T22:13:20Z",
            r"is 26 h 46 min old, and apply takes none older than 24 h.*nothing was changed.*--max-age 27h",
        ),
        ("", r'does not say when it was made \(made_at: ""\).*nothing was changed.*--max-age none'),
        ("last week", "does not say when it was made"),
    ],
)
def test_a_plan_that_is_too_old_is_refused_unless_that_is_meant(
    bench: Bench, made_at: str, words: str
) -> None:
    plan = planned(bench, text(a="2MB/s"), made_at=made_at).read_text()
    with pytest.raises(NegativeError, match=words):
        bench.apply(plan)
    assert not bench.held.requests

    bench.apply(plan, age_max_ms=inf)
    assert bench.held.quotas == of(a=2 * MB, b=2 * MB)


def test_the_age_of_a_plan_is_counted_from_when_it_was_made(bench: Bench) -> None:
    plan = planned(bench, text(a="2MB/s"), made_at="2023-11-14T06:00:00+06:00").read_text()
    with pytest.raises(NegativeError, match="is 25 h 00 min old"):
        bench.apply(plan)

    bench.clock = Clock()
    bench.apply(plan, age_max_ms=26 * 3_600_000)
    assert bench.held.quotas == of(a=2 * MB, b=2 * MB)


def test_a_plan_of_another_cluster_is_refused(bench: Bench) -> None:
    plan = planned(bench, text(a="2MB/s")).read_text().replace('"held"', '"other"')
    with pytest.raises(UsageError, match="the plan is of cluster other, and this is held"):
        bench.apply(plan)


# ------------------------------------------------------------------ several requests

MANY = {f"u{number}": "3MB/s" for number in range(6)}


@pytest.mark.parametrize(("fails", "done", "in_doubt"), [("lost", 4, 0), ("unsent", 2, 2)])
def test_what_was_done_of_several_requests_is_written_and_undone(
    bench: Bench, fails: str, done: int, in_doubt: int
) -> None:
    bench.held.fails = {2: fails}
    with pytest.raises(KvotaError, match=rf"request 2 of 3: {done} of 6 values were changed"):
        bench.apply(text(**MANY), values_per_request=2)

    head = load_document(bench.file.with_name("quotas.undo.yaml")).undo
    assert head is not None
    counts = [len(list(part.values())) for part in (head.done, head.in_doubt, head.not_done)]
    assert counts == [done, in_doubt, 2]
    bench.held.fails = {}
    bench.undo()
    assert bench.held.quotas == of(a=MB, b=2 * MB)


@pytest.mark.parametrize("fails", ["login", "not offered"])
@pytest.mark.parametrize(("number", "done"), [(1, 0), (2, 2)])
def test_what_was_done_is_told_where_a_request_cannot_be_sent(
    bench: Bench, fails: str, number: int, done: int
) -> None:
    bench.held.fails = {number: fails}
    said = (
        rf"request {number} of 3: {done} of 6 values were changed; .*quotas\.undo\.yaml says which"
    )
    with pytest.raises(UnreachableError, match=said):
        bench.apply(text(**MANY), values_per_request=2)

    head = load_document(bench.file.with_name("quotas.undo.yaml")).undo
    assert head is not None
    counts = [len(list(part.values())) for part in (head.done, head.in_doubt, head.not_done)]
    assert counts == [done, 0, 6 - done]
    bench.undo()
    assert bench.held.quotas == of(a=MB, b=2 * MB)


def test_what_was_done_is_told_where_nobody_shows_it_any_more(bench: Bench) -> None:
    bench.held.looks_failing = {3: NotAllowedError("this user may not see quotas")}
    said = r"may not see quotas\n  all 6 values were changed; .*quotas\.undo\.yaml undoes them"
    with pytest.raises(UnreachableError, match=said):
        bench.apply(text(**MANY), values_per_request=2)


@pytest.mark.parametrize("fails", ["killed before", "killed behind"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_killed_at_any_request_it_can_be_undone_and_be_applied(
    bench: Bench, fails: str, number: int
) -> None:
    bench.held.fails = {number: fails}
    with pytest.raises(Killed):
        bench.apply(text(**MANY), values_per_request=2)
    bench.held.fails = {}
    half = bench.held.quotas

    bench.undo()
    assert bench.held.quotas == of(a=MB, b=2 * MB)
    bench.held.quotas = half
    bench.apply(text(**MANY), values_per_request=2)
    assert bench.held.quotas == of(a=MB, b=2 * MB, **dict.fromkeys(MANY, 3 * MB))


def test_what_somebody_else_has_changed_since_is_not_undone_unless_forced(bench: Bench) -> None:
    bench.apply(text(a="2MB/s", c="1MB/s"))
    bench.held.quotas = of(a=7 * MB, b=MB, c=MB)
    with pytest.raises(NegativeError, match=r"user a .* 2MB/s → 7MB/s(.|\n)*--force"):
        bench.undo()
    assert bench.held.quotas == of(a=7 * MB, b=MB, c=MB)

    bench.undo(is_forced=True)
    assert bench.held.quotas == of(a=MB, b=MB)  # b was never its


def test_an_undo_file_that_cannot_be_written_stops_it(bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"cannot be written.*Nothing was changed"):
        bench.apply(text(a="2MB/s"), undo_file=bench.file.parent / "no" / "undo.yaml")
    there = bench.file.with_name("mine.yaml")
    there.write_text("quotas: []")
    with pytest.raises(UsageError, match="it is there already"):
        bench.apply(text(a="2MB/s"), undo_file=there)

    assert not bench.held.requests


def test_a_file_that_undoes_nothing_is_refused(bench: Bench) -> None:
    bench.file.write_text(text(a="2MB/s"))
    with pytest.raises(UsageError, match='it has no "undo"'):
        bench.undo("quotas.yaml")


# ------------------------------------------------------------------ ramps

RAMP = "50%/1h"
GOAL = text(a="5MB/s", b="none", c="3MB/s")


def test_a_ramp_goes_in_steps(bench: Bench) -> None:
    bench.apply(GOAL, ramp=RAMP)

    values = [{each.entity.user: each.new for each in request} for request in bench.held.requests]
    assert values == [
        {"a": 1.5 * MB, "c": 3 * MB},
        {"a": 2.25 * MB},
        {"a": 3.375 * MB},
        {"a": 5 * MB, "b": None},
    ]
    assert bench.held.quotas == of(a=5 * MB, c=3 * MB)
    bench.undo()
    assert bench.held.quotas == of(a=MB, b=2 * MB)


@pytest.mark.parametrize("fails", ["killed before", "killed behind", "unsent", "lost"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_stopped_at_any_step_the_same_command_goes_on(
    bench: Bench, fails: str, number: int
) -> None:
    bench.held.fails = {number: fails}
    with pytest.raises((Killed, KvotaError)):
        bench.apply(GOAL, ramp=RAMP)
    bench.held.fails = {}
    before = bench.held.quotas

    bench.apply(GOAL, ramp=RAMP)
    assert bench.held.quotas == of(a=5 * MB, c=3 * MB)
    files = bench.files()
    assert files == ["quotas.undo.yaml", "quotas.yaml"], before
    ways = [each.new for part in bench.held.requests for each in part if each.entity.user == "a"]
    steps = [1.5 * MB, 2.25 * MB, 3.375 * MB, 5 * MB]
    assert list(dict.fromkeys(ways)) == steps
    bench.undo()
    assert bench.held.quotas == of(a=MB, b=2 * MB)


@pytest.mark.parametrize("fails", ["login", "not offered"])
def test_a_step_that_cannot_be_sent_says_how_it_goes_on(bench: Bench, fails: str) -> None:
    bench.held.fails = {2: fails}
    said = r"goes on with step 2 of 4, kvota quotas undo .*quotas\.undo\.yaml goes back"
    with pytest.raises(UnreachableError, match=said):
        bench.apply(GOAL, ramp=RAMP)
    bench.held.fails = {}

    bench.apply(GOAL, ramp=RAMP)
    assert bench.held.quotas == of(a=5 * MB, c=3 * MB)


def test_a_ramp_that_may_not_look_any_more_says_how_it_goes_on(bench: Bench) -> None:
    bench.held.looks_failing = {2: NotAllowedError("this user may not see quotas")}
    with pytest.raises(UnreachableError, match=r"the same command goes on with step 2 of 4"):
        bench.apply(GOAL, ramp=RAMP)


def test_a_ramp_that_was_undone_begins_anew(bench: Bench) -> None:
    bench.held.fails = {3: "killed before"}
    with pytest.raises(Killed):
        bench.apply(GOAL, ramp=RAMP)
    bench.undo()
    assert bench.held.quotas == of(a=MB, b=2 * MB)

    bench.apply(GOAL, ramp=RAMP)
    assert bench.held.quotas == of(a=5 * MB, c=3 * MB)
    assert "quotas.undo-3.yaml" in bench.files()  # the second one undoes the undoing


def test_a_ramp_stays_where_somebody_else_has_changed_its_quotas(bench: Bench) -> None:
    bench.held.fails = {3: "killed before"}
    with pytest.raises(Killed):
        bench.apply(GOAL, ramp=RAMP)
    bench.held.quotas = of(a=4 * MB, b=2 * MB, c=3 * MB)
    with pytest.raises(NegativeError, match=r"stays at step 3 of 4(.|\n)*→ 4MB/s(.|\n)*--force"):
        bench.apply(GOAL, ramp=RAMP)
    assert bench.held.quotas == of(a=4 * MB, b=2 * MB, c=3 * MB)

    bench.apply(GOAL, ramp=RAMP, is_forced=True)
    assert bench.held.quotas == of(a=5 * MB, c=3 * MB)


def test_a_ramp_without_end_is_refused_before_anything(bench: Bench) -> None:
    with pytest.raises(UsageError, match="more than 5000 steps"):
        bench.apply(text(a="999MB/s"), ramp="0.01%/1h")

    assert not bench.held.requests


@pytest.mark.parametrize(
    ("ramp", "said"), [("fast", "is not a part and a time"), ("0.001%/1h", "more than 5000 steps")]
)
def test_a_ramp_that_somebody_has_edited_is_wrong_use(bench: Bench, ramp: str, said: str) -> None:
    bench.held.fails = {3: "killed before"}
    with pytest.raises(Killed):
        bench.apply(GOAL, ramp=RAMP)
    file = bench.file.with_name("quotas.undo.yaml")
    file.write_text(file.read_text().replace(RAMP, ramp))
    requests = len(bench.held.requests)

    with pytest.raises(
        UsageError, match=rf"quotas\.undo\.yaml: undo\.ramp: .*{said}(.|\n)*nothing was changed"
    ):
        bench.undo()
    assert len(bench.held.requests) == requests


def test_a_ramp_from_a_limit_that_nobody_reaches(bench: Bench) -> None:
    old = float("nan")
    bench.held.quotas = of(a=old, b=2 * MB)

    bench.apply(text(a="1MB/s", b="3MB/s"), ramp=RAMP, is_forced=True)

    assert bench.held.quotas == of(a=MB, b=3 * MB)

    bench.undo()
    assert bench.held.quotas == of(a=old, b=2 * MB)


def test_the_next_step_waits_for_its_time_also_when_gone_on_with(bench: Bench) -> None:
    bench.clock = Clock(step_us=1)
    bench.held.fails = {1: "unsent"}
    with pytest.raises(KvotaError, match="the same command goes on with step 1 of 4"):
        bench.apply(GOAL, ramp=RAMP)

    for within_s in (2.0, 0.5):
        with pytest.raises(TimeoutError):
            bench.apply(GOAL, within_s=within_s, ramp=RAMP)
        # The first one has not got through, so it is at once; the second one is in an hour.
        assert len(bench.held.requests) == 2
    assert bench.held.quotas == of(a=1.5 * MB, b=2 * MB, c=3 * MB)
