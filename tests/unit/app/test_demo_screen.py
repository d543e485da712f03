"""What the demo says: it fits, it explains its marks, and it says what to do where one is bad."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from kvota.app.cli.recommend import understood
from kvota.app.demo import circle, ending, tables
from kvota.app.demo.held_ids import HeldIds
from kvota.app.demo.screen import WIDTH, Screen, coloured, shows_colour, wrapped
from kvota.app.demo.tenants import TENANTS, TenantReport
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.planning.guardrails import Guardrails
from kvota.planning.held import Held
from kvota.planning.need import Need
from kvota.planning.observed import Observed
from kvota.planning.plan import make_plan
from kvota.planning.promised import promised

# As large as they get on a large machine.
USED = {
    ("orders", "FETCH"): tables.Use(1_990_000.0, 1.0, 0, 999e6),
    ("orders", "PRODUCE"): tables.Use(1_990_000.0, 1.0, 0, None),
    ("analytics", "PRODUCE"): tables.Use(999e6, 1.0, 0, 999e6),
    ("ci-bot", "CONTROLLER_MUTATION"): tables.Use(1_234.0, 1.0, 12_345, 1_234.0),
}
HELD = Held(holds=True, admitted_s=1.0, allowed_s=3.0, elapsed_s=0.0)
BROKEN = Held(holds=False, admitted_s=12_345.678, allowed_s=12_340.123, elapsed_s=12_337.123)


def _seen() -> dict[str, TenantReport]:
    return {
        name: TenantReport(
            sent_records=1_000_000,
            delivered_records=1_000_000,
            stored_records=1_000_000,
            latencies_ms=[99_999.9],
            producers=12_345,
            refused_topics=100_000,
            created_topics=100_000,
        )
        for name in TENANTS
    }


@pytest.fixture
def end() -> ending.Ending:
    return ending.Ending(
        verdicts=dict.fromkeys(USED, HELD),
        law="1,128,283 rows, 1,107,634 throttled, all equal",
        law_holds=True,
        before=_seen(),
        after=_seen(),
        held_ids={"shadow": HeldIds(0, 12_345, 60.0), "enforced": HeldIds(12_345, 12_355, 60.0)},
        new_ids=(circle.NEW_IDS, circle.NEW_IDS_WINDOW_S),
        refused_orders=0,
        folder=Path("kvota-demo"),
    )


def _too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > WIDTH]


def test_the_replay_fits_and_names_the_quota_in_force() -> None:
    use = tables.Use(272e6, 1.0, 0, 4e6)
    tried = [tables.Tried(quota, 1_234_567, 1.0, 1.0) for quota in tables.candidates(use)]

    text = tables.replay_table(tried, use)

    assert not _too_wide(text)
    assert "100%  the first guess" in next(
        line for line in text.splitlines() if "4.00 MB/s" in line
    )
    assert "which used 272 MB/s" in text


def test_no_quota_is_tried_beside_one_like_it() -> None:
    assert tables.candidates(tables.Use(8.29e6, 1.0, 0, 4e6)) == [2.1e6, 4e6, 8.3e6, 12e6, 17e6]


def test_the_plan_fits_and_every_limit_has_a_reason() -> None:
    observed = [
        Observed(
            quota_type=QuotaType(quota_type),
            entity=QuotaEntity(user=tenant),
            needs={0: Need(use.rate * 1.5, None, None, 1)},
            rate_usual=use.rate,
            events=100_000,
            hours=1.0,
            current=None,
        )
        for (tenant, quota_type), use in USED.items()
    ]
    capacities, wishes = understood(["--events", ".", *circle.PLAN_OPTIONS])
    plan = make_plan(observed, capacities, wishes.guardrails)

    text = tables.plan_table(plan.lines, USED, plan.capacities)

    assert not _too_wide(text)
    assert "a fair share: it needs more" in text
    assert "what it needs, and the headroom" in text


def test_the_plan_is_made_for_the_algorithm_that_it_is_put_in_force_under() -> None:
    _, wishes = understood(["--events", ".", *circle.PLAN_OPTIONS])

    counted = wishes.counted
    assert {
        QuotaType.PRODUCE: counted.algorithm,
        QuotaType.FETCH: counted.algorithm,
    } == dict.fromkeys(circle.BUCKETS, Algorithm.TOKEN_BUCKET)
    assert {(one.burst_ms, one.debt_max_ms) for one in circle.BUCKETS.values()} == {
        (counted.burst_ms, counted.debt_max_ms)
    }


def test_what_the_plan_refuses_is_said_with_the_option_that_relaxes_it() -> None:
    slow = Observed(
        quota_type=QuotaType.PRODUCE,
        entity=QuotaEntity(user="orders"),
        needs={0: Need(1e6, None, None, 1)},
        rate_usual=1e5,
        events=100_000,
        hours=0.01,
        current=9e6,
    )
    young = replace(slow, entity=QuotaEntity(user="ci-bot"), current=None, events=1)
    capacities = {QuotaType.PRODUCE: 20e6}
    plan = make_plan([slow, young], capacities, Guardrails(hours_min=0))

    text = tables.plan_table(plan.lines, {}, capacities)

    assert not _too_wide(text)
    words = " ".join(text.split())
    assert (
        "orders PRODUCE: needs 1.00 MB/s; one step from 9.00 MB/s goes to 4.50 MB/s (--step-down"
        in words
    )
    assert "ci-bot PRODUCE: 1 requests in 0.01 h" in words
    assert tables.promised(promised(plan.lines, 1)) == (
        "If all used their limits at once, that would be PRODUCE 4.50 MB/s"
    )
    assert "(--min-events) and 0 h (--min-hours 0 for a trial)." in words


def test_the_closing_table_fits_and_each_column_stands_under_its_run() -> None:
    marks = dict.fromkeys(USED, ending.NOT_HELD)

    text = tables.before_and_after(USED, USED, marks)

    lines = text.splitlines()
    assert not _too_wide(text)
    assert lines[0].index("after") > lines[0].index("before")
    assert lines[0].index("after") <= lines[2].index("limit")
    assert [line.split()[0] for line in lines[3:]] == ["orders", "orders", "analytics", "ci-bot"]


def test_a_tenant_that_was_seen_in_one_run_only_has_a_line_too() -> None:
    text = tables.before_and_after({}, USED, {})

    assert text.count("orders") == 2
    assert text.splitlines()[-1].endswith(" -")


def test_every_mark_has_its_legend() -> None:
    text = ending.legend(circle.BUCKET, circle.MUTATION_WINDOW, circle.NEW_IDS_WINDOW_S)

    assert not _too_wide(text)
    assert all(mark in text for mark in (ending.HELD, ending.NOT_HELD, ending.NOT_JUDGED))
    assert "limit x (elapsed + 1 s burst + 2 s debt) + one request" in text


def test_a_good_end_fits_and_says_so(end: ending.Ending) -> None:
    text = f"{ending.closing_lines(end)}\n{ending.outcome(end)}"

    assert not _too_wide(text)
    assert not end.broken
    assert "✗" not in text
    assert "6,000,000 reported as delivered in both runs, 0 of them missing" in text


def test_a_bad_end_fits_and_says_what_to_do(end: ending.Ending) -> None:
    bad = replace(end, verdicts=dict.fromkeys(USED, BROKEN), law_holds=False)
    bad.after["orders"].stored_records -= 1
    bad.after["orders"].failed_records = 1_000_000

    text = ending.outcome(bad)

    assert not _too_wide(text)
    assert set(bad.marks.values()) == {ending.NOT_HELD}
    assert len(bad.broken) == len(USED) + 3
    assert "analytics PRODUCE: within 12337.123 s it was admitted 12345.678 s of its limit" in text
    assert "of 1,000,000 records that were reported as delivered 999,999 are there" in text
    assert "kvota replay --events kvota-demo/enforced/record --law" in text


def test_ids_beyond_the_quota_at_the_broker_are_a_broken_promise(end: ending.Ending) -> None:
    more = HeldIds(12_345, 12_358, 60.0)
    too_many = replace(end, held_ids={**end.held_ids, "enforced": more})

    assert too_many.broken == [
        "crashloop: the broker has learnt 13 producer ids; 12 were promised at most"
    ]
    assert not _too_wide(ending.outcome(too_many))


def test_a_refused_id_of_orders_is_a_broken_promise(end: ending.Ending) -> None:
    noticed = replace(end, refused_orders=2)

    assert len(noticed.broken) == 1
    assert "refused 2 times" in noticed.broken[0]
    assert not _too_wide(ending.outcome(noticed))


def test_what_analytics_gave_up_or_was_told_is_lost_breaks_no_promise(end: ending.Ending) -> None:
    end.after["analytics"].failed_records = 7
    end.after["analytics"].sent_records += 100

    assert not end.broken


def test_what_the_tenants_saw_fits() -> None:
    assert all(len(line) <= WIDTH - 6 for line in tables.what_was_seen(_seen()))


def test_colour_is_never_the_only_sign() -> None:
    text = "orders  ✓\nanalytics  ✗ NO\n"

    painted = coloured(text)

    assert painted != text
    for code in ("\033[31m", "\033[32m", "\033[0m"):
        painted = painted.replace(code, "")
    assert painted == text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_shown_on_a_terminal_only_and_no_color_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shows_colour(_Terminal())
    assert not shows_colour(io.StringIO())

    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_colour(_Terminal())


def test_a_step_says_below_it_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(2)

    with screen.step("Kafka") as said:
        said.append("word " * 40)
    screen.show("✓ done")

    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert shown.out == "✓ done\n"
    assert lines[0] == "[1/2] Kafka ..."
    assert lines[1].startswith("[1/2] Kafka (0.")
    assert all(line.startswith("      word") and len(line) <= WIDTH for line in lines[2:])


def test_a_step_that_fails_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(1)

    with pytest.raises(ValueError, match="no"), screen.step("Kafka"):
        raise ValueError("no")

    assert capsys.readouterr().err.endswith("[1/1] Kafka: failed\n")


def test_no_amount_is_parted_from_its_unit() -> None:
    text = wrapped("x" * (WIDTH - 5) + " 1.00 MB/s and 2.00 s")

    assert text.splitlines()[1] == "1.00 MB/s and 2.00 s"
