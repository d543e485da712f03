"""The report as a file: valid, whole without a network, readable without eyes, and safe whatever tenants are called."""

import base64
import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import inf, nan
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import pytest
from tests.unit.app.report.made_up import HOSTILE, content, drawn, line, volume

from kvota.app.report.canvas import Canvas
from kvota.app.report.page import PLAN_ROWS_MAX, island, page
from kvota.app.report.plots import quota_plot, usage_plot, volume_plot
from kvota.model.plain_text import name_on_screen

HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"


@cache
def made() -> str:
    return page(content())


@cache
def tree() -> Element:
    """The page as a browser reads it; a strict parser refuses what is no HTML."""
    parser = html5lib.HTMLParser(strict=True)
    parsed: Element = parser.parse(made())
    return parsed


def every(name: str, inside: Element | None = None) -> list[Element]:
    where = tree() if inside is None else inside
    return [*where.iter(f"{HTML}{name}"), *where.iter(f"{SVG}{name}")]


def words(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def numbers() -> dict[str, Any]:
    (island,) = (each for each in every("script") if each.get("type") == "application/json")
    found: dict[str, Any] = json.loads(island.text or "")
    return found


def test_it_is_valid_html() -> None:
    assert tree().tag == f"{HTML}html"
    assert tree().get("lang") == "en"


def test_names_are_texts_and_nothing_else() -> None:
    shown = [words(row[0]) for row in _rows_of_the_large_table()]

    assert shown == [" ".join(name_on_screen(str(line.user)).split()) for line in content().lines]
    assert len(every("script")) == 2
    assert not every("img")
    attributes = {key for each in tree().iter() for key in each.attrib}
    assert not [key for key in attributes if key.startswith("on")]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_the_numbers_have_names_as_they_were_sent(name: str) -> None:
    assert name in [line["user"] for line in numbers()["lines"]]


def test_the_numbers_cannot_end_their_element() -> None:
    island = made().partition('id="numbers">')[2].partition("</script>")[0]

    assert not set("<>&") & set(island)


def test_what_is_no_number_is_null_there() -> None:
    found = json.loads(island(replace(content(), lines=[replace(line(0), mean=nan, most=inf)])))

    (only,) = found["lines"]
    assert (only["rate_mean_per_s"], only["rate_10s_max_per_s"]) == (None, None)
    assert only["limit_per_s"] == 2e6


def test_only_the_script_of_the_page_may_run() -> None:
    (policy,) = (each.get("content") or "" for each in every("meta") if each.get("http-equiv"))
    (script,) = (each.text or "" for each in every("script") if each.get("type") is None)

    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_it_asks_for_nothing_elsewhere() -> None:
    links = [
        value
        for each in tree().iter()
        for key, value in each.items()
        if key in {"src", "href", "{http://www.w3.org/1999/xlink}href"}
    ]

    assert links
    assert all(link.startswith(("#", "data:,")) for link in links)
    assert "@import" not in made()
    assert not re.search(r"url\((?!#)", made())


def test_no_two_ids_are_the_same_and_all_that_are_named_are_there() -> None:
    ids = Counter(each.get("id") for each in tree().iter() if each.get("id"))
    named = [
        name
        for each in tree().iter()
        for name in [*(each.get("aria-labelledby") or "").split(), *_referred(each)]
    ]

    assert set(ids.values()) == {1}
    assert named
    assert set(named) <= set(ids)


def _referred(element: Element) -> list[str]:
    href = element.get("{http://www.w3.org/1999/xlink}href") or element.get("href") or ""
    clip = element.get("clip-path") or ""
    return [*re.findall(r"^#(.+)", href), *re.findall(r"url\(#([^)]+)\)", clip), *_label(element)]


def _label(element: Element) -> list[str]:
    return [element.get("for") or ""] if element.get("for") else []


def test_each_plot_is_an_image_with_a_title_and_a_description() -> None:
    plots = every("svg")

    assert len(plots) == 3 * 2 + 1 + 2
    for plot in plots:
        assert plot.get("role") == "img"
        title, description = plot[0], plot[1]
        assert (title.tag, description.tag) == (f"{SVG}title", f"{SVG}desc")
        assert words(title)
        assert words(description)


def test_each_plot_says_its_unit_window_and_source() -> None:
    captions = [words(each) for each in every("figcaption")]

    assert len(captions) == len(every("svg"))
    for caption in captions:
        assert re.search(r"Unit: .+\. Window: .+\. Source: .+\.", caption), caption


def test_a_plot_is_the_same_whatever_was_drawn_before_it() -> None:
    """Those of a kind are drawn on one figure, one after the other."""
    busy = replace(drawn(line(3)), planned=None)
    quiet = drawn(replace(line(10), mean=20.0, limit=None), windows=2)
    disk = volume()
    small = replace(volume(), total_bytes=3e10, seen_bytes=[1e10] * 200, low=[1e10] * 72, limits=[])

    for pair, plot in (
        ((busy, quiet), lambda canvas, each: usage_plot(canvas, "name", each, 3_600)),
        ((busy, quiet), lambda canvas, each: quota_plot(canvas, "name", each)),
        ((disk, small), lambda canvas, each: volume_plot(canvas, "name", each)),
    ):
        alone = [plot(Canvas(), each) for each in pair]
        assert alone[0] != alone[1]
        canvas = Canvas()
        assert [plot(canvas, each) for each in (*pair, pair[0])] == [*alone, alone[0]]


def test_plots_have_the_page_s_colours() -> None:
    """So that they are right in dark, too: a colour of their own would not be."""
    drawings = "".join(re.findall(r"<svg.*?</svg>", made(), re.DOTALL))

    assert "var(--main)" in drawings
    assert not re.findall(r"#[0-9a-fA-F]{6}", drawings)


def test_texts_of_plots_are_texts() -> None:
    texts = {words(each) for each in every("text")}

    assert {"median", "limit", "80 % interval", "before"} <= texts


def test_headings_go_down_by_one() -> None:
    levels = [
        int(each.tag[-1])
        for each in tree().iter()
        if each.tag in {f"{HTML}h{level}" for level in range(1, 7)}
    ]

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - level <= 1 for level, later in pairwise(levels))


def test_tables_have_headers_for_columns_and_rows() -> None:
    for table in every("table"):
        head = next(iter(every("thead", table)))
        assert all(each.get("scope") == "col" for each in every("th", head))
        rows = every("tr", next(iter(every("tbody", table))))
        assert all(len([c for c in row if c.get("scope") == "row"]) == 1 for row in rows)


def test_what_scrolls_can_be_reached_by_keyboard() -> None:
    scrolling = [each for each in every("div") if each.get("class") == "scroll"]

    assert scrolling
    assert all(each.get("tabindex") == "0" and each.get("aria-label") for each in scrolling)


def test_every_line_is_in_the_table() -> None:
    assert len(_rows_of_the_large_table()) == len(content().lines)
    assert "not in this file" not in made()


def _rows_of_the_large_table() -> list[Element]:
    (table,) = (each for each in every("table") if each.get("id") == "all-lines-table")
    return every("tr", next(iter(every("tbody", table))))


def test_what_is_hidden_is_said() -> None:
    shown = page(content(lines=70, plots=1, hidden_lines=1_234))

    assert "1 of 1,304 lines" in shown
    assert "1,234 lines further from their limit are not in this file" in shown
    assert (
        f"The {PLAN_ROWS_MAX} that it throttles most are shown, {30 - PLAN_ROWS_MAX} are not"
        in shown
    )
    assert "the first 60 of 70 lines" in shown
    assert shown.count('<tr class="deep">') == 10


def test_before_and_after_of_a_plan() -> None:
    (rows,) = (
        every("tr", table)
        for table in every("table")
        if words(table).startswith("Share of requests over the limit")
    )

    assert [words(cell) for cell in rows[1]][4:] == ["2.00 MB/s", "1.00 MB/s", "20.0 %", "40.0 %"]


def test_five_thousand_lines_are_below_15_mb() -> None:
    many = page(content(lines=5_000, plots=12))

    assert len(many.encode()) < 15_000_000
    assert many.count("<tr") > 5_000


def test_the_same_content_gives_the_same_file() -> None:
    assert page(content()) == made()


def test_a_limit_of_0_is_drawn_as_none() -> None:
    """So it is while a disk is full."""
    of_line = replace(line(0), limit=0.0, of_limit=None)
    blocked = replace(drawn(of_line, windows=3), planned=0.0)

    shown = page(replace(content(), drawn=[blocked]))

    assert "limit 0.00 B/s" in shown or "limit 0 B/s" in shown
