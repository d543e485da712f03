"""Tables on a screen of 80 columns, whatever names clients have chosen."""

import pytest

from kvota.app.cut_names import cut_apart
from kvota.app.text_table import grouped_table, sparkline, text_table, wrapped
from kvota.app.text_width import columns_of

COLUMNS = 80
HEADER = ["user", "client id", "quota", "broker", "requests", "most in 10 s", "over time"]
NUMBERS = ["CONTROLLER_MUTATION", "all", "1,000,000", "1.90 MB/s", "▁▂▃▄▅▆▇█"]


def usage(*names: tuple[str, str]) -> list[str]:
    """A table of usage, its lines."""
    rows = [[*each, *NUMBERS] for each in names]
    table = text_table(HEADER, rows, left=3, last_left=True, keys=4, names=range(2), width=COLUMNS)
    return table.splitlines()


def test_a_table_keeps_texts_left_and_numbers_right() -> None:
    table = text_table(
        ["user", "rate", "why"],
        [["orders", "1.90 MB/s", "need"], ["a", "1 B/s", "x"]],
        last_left=True,
    )

    assert table.splitlines() == [
        "user         rate  why",
        "orders  1.90 MB/s  need",
        "a           1 B/s  x",
    ]


def test_wide_characters_and_marks_keep_columns_aligned() -> None:
    table = text_table(
        ["user", "rate"], [["日本", "1 日"], ["cafe\N{COMBINING ACUTE ACCENT}", "2"]]
    )

    assert table.splitlines() == [
        "user  rate",
        "日本  1 日",
        "cafe\N{COMBINING ACUTE ACCENT}     2",
    ]
    assert len({columns_of(line) for line in table.splitlines()}) == 1


@pytest.mark.parametrize(
    "names",
    [
        ("n" * 100, "app"),
        ("app", "n" * 100),
        ("u" * 40, "c" * 40),
        ("日本" * 50, "日本" * 50),
        ("", "e\N{COMBINING ACUTE ACCENT}" * 50),
    ],
    ids=["100", "client id of 100", "two of 40", "wide", "marks"],
)
def test_every_part_of_a_table_fits_whatever_the_names(names: tuple[str, str]) -> None:
    lines = usage(names, ("orders", "app-1"))

    assert max(map(columns_of, lines)) <= COLUMNS
    parts = "\n".join(lines).split("\n\n")
    assert len(parts) > 1
    for part in parts:
        header, cut, whole = part.splitlines()
        assert header.startswith("user ")
        assert "…" in cut
        assert whole.startswith("orders ")
        assert "app-1" in whole
    for cell in NUMBERS:  # of numbers nothing is cut
        assert "\n".join(lines).count(cell) >= 2


def test_narrow_names_are_not_cut_for_the_sake_of_a_wide_one() -> None:
    line = usage(("n" * 100, "sixteen-chars-16"))[1]

    assert "sixteen-chars-16" in line
    assert line.startswith("nnnnnnnnnnnn")
    assert "…" in line


def test_a_table_that_fits_in_parts_has_whole_names() -> None:
    lines = usage(("n" * 20, "client-1"))

    assert len(lines) > 2
    assert all(line.startswith("n" * 20 + " ") for line in lines if line and line[0] == "n")


def test_different_names_stay_different_where_they_are_cut() -> None:
    names = ["p" * 90 + "1", "p" * 90 + "2", "p" * 40 + "x" + "p" * 50, "p" * 40 + "y" + "p" * 50]

    lines = usage(*((name, "app") for name in names))

    first_part = "\n".join(lines).split("\n\n")[0].splitlines()[1:]
    assert len(set(first_part)) == len(names)
    assert all("…" in line for line in first_part)


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["short", "12345678"], ["short", "12345678"]),
        (["beginning-1", "other-one-2"], ["beginni…", "other-o…"]),
        (["beginning-1", "beginning-2", "beginning-1"], ["begi…g-1", "begi…g-2", "begi…g-1"]),
        (["aaaaaaaXaaaaaaa", "aaaaaaaYaaaaaaa"], ["aaaaa…#1", "aaaaa…#2"]),
        (["beginning-1", "beginni…"], ["begi…g-1", "beginni…"]),
        (["日本日本日本1", "日本日本日本2"], ["日本…本1", "日本…本2"]),
    ],
)
def test_cut_names_are_told_apart(texts: list[str], shown: list[str]) -> None:
    found = cut_apart(texts, 8)

    assert [found[text] for text in texts] == shown
    assert max(map(columns_of, shown)) <= 8


def test_columns_of_names_beside_the_keys_fit_too() -> None:
    table = text_table(
        ["run", "seq", "tags", "value"],
        [["r" * 12, "17", "user=" + "u" * 95, "1,000"]],
        names=(0, 2),
        keys=2,
        width=COLUMNS,
    )

    assert max(map(columns_of, table.splitlines())) <= COLUMNS
    assert "…" in table
    assert "r" * 12 in table
    assert "1,000" in table


def test_a_heading_with_long_names_is_broken_and_they_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    heading = f"user {'u' * 100}, client id {'日本' * 40}: PRODUCE, all brokers"

    table = grouped_table(["limit", "over"], [(heading, [["2 MB/s", "1%"]])])

    lines = table.splitlines()
    assert max(map(columns_of, lines)) <= COLUMNS
    assert table.count("…") == 2
    assert "日本," not in table
    assert lines[-2].endswith("PRODUCE, all brokers")


def test_prose_is_broken_where_it_does_not_fit() -> None:
    lines = wrapped("one two  three 日本 five", indent=" ", width=11)

    assert lines == [" one two", "   three", "   日本", "   five"]
    assert wrapped("", width=11) == []


def test_a_sparkline_has_a_bar_per_value() -> None:
    assert sparkline([0, 1, 2, 4]) == "▁▃▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""
