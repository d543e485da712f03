"""The page on topic mutations names a test for each point, and each of them is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/topic-mutations.md"
_NAMED = re.compile(r"`(?P<file>tests/\S+\.py)?::(?P<test>test_\w+)`")


def test_each_test_that_the_page_names_is_there() -> None:
    file = None
    found = 0
    for named in _NAMED.finditer(PAGE.read_text()):
        file = named["file"] or file
        assert file is not None
        text = (ROOT / file).read_text()
        assert re.search(rf"^(async )?def {named['test']}\(", text, re.MULTILINE), named.group()
        found += 1
    assert found > 30


def test_each_point_has_what_holds_it() -> None:
    table = PAGE.read_text().partition("## KIP-599, point by point")[2]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        assert len(row) == 3, row
        assert "::test_" in row[2] or ".md" in row[2], row[0]
