"""``kvota report`` on the record that comes with it: its numbers, and the file in a real Chromium without a network.

    .venv/bin/python -m tests.spark.test_report FOLDER

takes the pictures of docs/report.md anew, where there is a Chromium. axe-core is asked where ``KVOTA_AXE`` names its file.
docs/report.md says how to get both.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.chromium import CHROMIUM, Chromium
from tests.unit.app.report.made_up import HOSTILE, content

from kvota.app.cli.main import main
from kvota.app.report.page import page
from kvota.model.plain_text import name_on_screen

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SAMPLE = Path(__file__).parents[2] / "src" / "kvota" / "app" / "report" / "sample"


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", "--sample", "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def browser(report: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: the page is read by a strict parser only")
    with Chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


WritePage = Callable[[int], Path]


@pytest.fixture
def of_hostile_names(tmp_path: Path) -> WritePage:
    """Writes a report of so many lines, the first of which have names that want to be markup."""

    def write(lines: int) -> Path:
        path = tmp_path / f"of-{lines}-lines.html"
        path.write_text(page(content(lines=lines)), encoding="utf-8")
        return path

    return write


def numbers(report: Path) -> dict[str, Any]:
    island = re.search(r'id="numbers">(.*?)</script>', report.read_text(), re.DOTALL)
    assert island is not None
    found: dict[str, Any] = json.loads(island[1])
    return found


def test_its_lines_are_those_of_usage(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = str(SAMPLE / "record")
    main(["usage", "--events", record, "--output", "json", "--top", "100"])
    rows = json.loads(capsys.readouterr().out)["rows"]

    lines = numbers(report)["lines"]

    assert len(lines) == len(rows) > 10
    for line, row in zip(lines, rows, strict=True):
        assert {name: row[name] for name in line} == line


def test_other_quotas_are_those_of_replay(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [
        "--events",
        str(SAMPLE / "record"),
        "--by",
        "user",
        "--output",
        "json",
        "--top",
        "100",
    ]
    main(["replay", *places, "--candidates", "4MB/s"])
    replayed = json.loads(capsys.readouterr().out)["rows"]
    over = {
        row["node_id"]: row["over_ratio"]
        for row in replayed
        if (row["user"], row["quota_type"]) == ("analytics", "PRODUCE")
    }

    found = numbers(report)
    of_counter = {
        line["counter_id"]: line["node_id"]
        for line in found["lines"]
        if (line["user"], line["quota_type"]) == ("analytics", "PRODUCE")
    }
    at_limit = {
        of_counter[drawn["counter_id"]]: tried["as_recorded"]
        for drawn in found["drawn"]
        if drawn["counter_id"] in of_counter
        for tried in drawn["tried"]
        if tried["quota"] == 4e6
    }

    assert at_limit == over
    assert len(over) == 2


def test_more_quota_is_never_more_throttling_as_requests_came(report: Path) -> None:
    for drawn in numbers(report)["drawn"]:
        shares = [tried["as_recorded"] for tried in drawn["tried"]]
        assert len(shares) >= 18
        assert shares == sorted(shares, reverse=True)


def test_a_plan_is_held_against_the_quotas_that_it_was_made_from(report: Path) -> None:
    found = numbers(report)
    tenants = {line["counter_id"]: line for line in found["lines"]}
    analytics = [
        row
        for row in found["plan"]
        if tenants[row["counter_id"]]["user"] == "analytics"
        and tenants[row["counter_id"]]["quota_type"] == "PRODUCE"
    ]

    assert {(row["before_per_s"], row["after_per_s"]) for row in analytics} == {(4e6, 2.69e6)}
    assert all(0 < row["over_before_ratio"] < row["over_after_ratio"] < 1 for row in analytics)
    assert [v["limits"][0]["is_likely"] for v in found["volumes"]] == [True, False, False]


def test_a_record_without_looks_and_without_a_plan(recorded_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"

    assert main(["report", "--events", str(recorded_folder), "-o", str(out), "--plots", "2"]) == 0

    html = out.read_text()
    assert html.count("<svg") == 4
    assert 'id="plan"' not in html
    assert 'id="volumes"' not in html
    assert "A sample." not in html


# Of each plot, whether it is there to be seen.
PLOTS = (
    "[...document.querySelectorAll('figure svg')]"
    ".map(e => e.getBBox().width > 300 && e.getBBox().height > 80)"
)


def test_every_plot_is_drawn_without_a_word_on_the_console(browser: Chromium, report: Path) -> None:
    browser.look()
    browser.open(report)

    assert browser.evaluate(PLOTS) == [True] * (10 * 2 + 1 + 3)
    has_done_nothing_else(browser)


def has_done_nothing_else(browser: Chromium) -> None:
    """No page so far has said anything, opened a dialog, or asked for anything but itself."""
    assert browser.console == []
    assert browser.dialogs == []
    assert {url.partition(":")[0] for url in browser.asked} <= {"file", "data"}


def test_five_thousand_lines_of_hostile_names_by_keyboard(
    browser: Chromium, of_hostile_names: WritePage
) -> None:
    browser.look()
    browser.open(of_hostile_names(5_000))
    rows = "[...document.querySelectorAll('#all-lines-table tbody tr:not([hidden])')]"
    names = f"{rows}.slice(0, 20).map(r => r.cells[0].textContent)"
    requests = f"{rows}.slice(0, 20).map(r => Number(r.cells[3].dataset.v))"
    sorted_by = "document.querySelector('th[aria-sort]').getAttribute('aria-sort')"

    assert browser.evaluate(PLOTS) == [True] * (3 * 2 + 1 + 2)
    assert browser.evaluate(names)[: len(HOSTILE)] == [name_on_screen(name) for name in HOSTILE]
    assert browser.evaluate("document.querySelectorAll('script').length") == 2

    browser.tab_to("#search")
    for character in "tenant-0499":
        browser.press(character)
    assert browser.evaluate(names) == [f"tenant-{number:05}" for number in range(4_990, 5_000)]
    shown = "document.getElementById('shown').textContent"
    assert browser.evaluate(shown) == "10 of 5,000 lines shown"
    browser.press("Backspace", times=len("tenant-0499"))
    assert browser.evaluate(shown) == "5,000 of 5,000 lines shown"

    browser.tab_to("#all-lines-table th:nth-child(4) button")
    browser.press("Enter")
    assert browser.evaluate(sorted_by) == "descending"
    assert browser.evaluate(requests) == [*range(14_999, 14_979, -1)]
    browser.press(" ")
    assert browser.evaluate(sorted_by) == "ascending"
    assert browser.evaluate(requests) == [*range(10_000, 10_020)]
    has_done_nothing_else(browser)


def test_names_are_searched_and_columns_sorted(browser: Chromium, report: Path) -> None:
    browser.open(report)
    rows = "[...document.querySelectorAll('#all-lines-table tbody tr:not([hidden])')]"

    browser.evaluate(
        "(() => {const s = document.getElementById('search'); s.value = 'Orders'; s.dispatchEvent(new Event('input'))})()"
    )
    names = browser.evaluate(f"{rows}.map(r => r.cells[0].textContent)")
    assert set(names) == {"orders"}
    assert (
        browser.evaluate("document.getElementById('shown').textContent")
        == f"{len(names)} of 15 lines shown"
    )

    browser.evaluate(
        "(() => {const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'));"
        "document.querySelectorAll('#all-lines-table thead button')[3].click()})()"
    )
    requests = browser.evaluate(f"{rows}.map(r => Number(r.cells[3].dataset.v))")
    assert len(requests) == 15
    assert requests == sorted(requests, reverse=True)
    assert (
        browser.evaluate("document.querySelector('th[aria-sort]').getAttribute('aria-sort')")
        == "descending"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_go_with_the_reader_s(browser: Chromium, report: Path, scheme: str) -> None:
    browser.look(scheme=scheme)
    browser.open(report)

    page, line = browser.evaluate(
        "[getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('figure svg path[clip-path][style*=\"--main\"]')).stroke]"
    )
    known = {
        "light": ("rgb(255, 255, 255)", "rgb(10, 102, 194)"),
        "dark": ("rgb(16, 21, 27)", "rgb(109, 179, 255)"),
    }
    assert (page, line) == known[scheme]


def test_on_paper_it_is_light_and_has_no_tools(
    browser: Chromium, report: Path, tmp_path: Path
) -> None:
    browser.look(scheme="dark", medium="print")
    browser.open(report)

    shown = browser.evaluate(
        "['nav', '.tools'].map(n => getComputedStyle(document.querySelector(n)).display)"
        ".concat(getComputedStyle(document.body).backgroundColor)"
    )
    assert shown == ["none", "none", "rgb(255, 255, 255)"]
    browser.print(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_axe_finds_nothing_serious(
    browser: Chromium, report: Path, of_hostile_names: WritePage
) -> None:
    axe = os.environ.get("KVOTA_AXE")
    if axe is None:
        pytest.skip(
            "KVOTA_AXE names no axe.min.js: what can be told from the file alone was told by the parser"
        )
    script = Path(axe).read_text(encoding="utf-8")
    hostile = of_hostile_names(40)
    for scheme, path in (("light", report), ("dark", report), ("light", hostile)):
        browser.look(scheme=scheme)
        browser.open(path, past_its_policy=True)
        browser.evaluate(
            "[...document.querySelectorAll('details')].slice(0, 2).forEach(each => {each.open = true})"
        )
        browser.evaluate(f"{script}; 0")
        found = browser.evaluate(
            "axe.run().then(r => r.violations.map(v => [v.id, v.impact, v.nodes[0].html]))"
        )
        assert found == []


def take_pictures(report: Path, folder: Path) -> None:
    """Write the pictures of docs/report.md."""
    with tempfile.TemporaryDirectory() as profile, Chromium(Path(profile)) as browser:
        for scheme in ("light", "dark"):
            browser.look(scheme=scheme, width=1180)
            browser.open(report)
            browser.screenshot(folder / f"report-{scheme}.png", height=1540)


def test_pictures_are_taken(report: Path, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    take_pictures(report, tmp_path)

    for scheme in ("light", "dark"):
        picture = (tmp_path / f"report-{scheme}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert int.from_bytes(picture[20:24], "big") == 1540
        assert len(picture) > 50_000


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "report.html"
        main(["report", "--sample", "-o", str(path)])
        take_pictures(path, Path(sys.argv[1]))
