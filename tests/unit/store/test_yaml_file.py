"""YAML is plain data here, with the line and the column of every value; all that is more is refused where it stands."""

from pathlib import Path

import pytest

from kvota.model.errors import ConfigurationError
from kvota.store.yaml_file import load_yaml, parse_yaml

LAUGHS = "\n".join(
    [
        "a0: &a0 [lol, lol, lol]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)),
    ]
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 5", 5),
        ("a: 5.5", 5.5),
        ("a: -5e3", -5000.0),
        ("a: 5MiB/s", "5MiB/s"),
        ("a: 20%", "20%"),
        ('a: "5"', "5"),
        ("a: '5'", "5"),
        ("a: true", True),
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: 1:30", "1:30"),
        ("a: 0x10", "0x10"),
        ("a: 1_000", "1_000"),
        ("a: 2026-11-22", "2026-11-22"),
        ("a:", None),
        ("a: ~", None),
        ("a: .inf", float("inf")),
        ("a: |\n  x\n  y\n", "x\ny\n"),
        ("a: [1, [2], {b: 3}]", [1, [2], {"b": 3}]),
        ("a: " + "9" * 5000, 0),
    ],
)
def test_values_are_those_of_the_core_schema(text: str, value: object) -> None:
    data, _ = parse_yaml(text, "q.yaml")

    if len(text) > 5000:  # int() would refuse so many digits
        assert data["a"] in (float("inf"), "9" * 5000)
    else:
        assert data["a"] == value
        assert type(data["a"]) is type(value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "~\n"])
def test_an_empty_file_has_no_data(text: str) -> None:
    assert parse_yaml(text, "q.yaml")[0] == {}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: &x [1]\nb: *x", "1:4", '"&x" names a value'),
        ("a: *x", "1:4", '"*x" refers to another value'),
        (LAUGHS, "1:5", "names a value"),
        ("a: !!python/object/apply:os.system [x]", "1:4", "gives a value a type"),
        ("a: !include x.yaml", "1:4", "gives a value a type"),
        ("a: ! x", "1:4", "gives a value a type"),
        ("a: 1\nb:\n  <<: {c: 2}", "3:3", '"<<" merges mappings'),
        ("a: 1\nb: 2\na: 3", "3:1", "there already, at line 1, column 1"),
        ("x:\n- a: 1\n  a: 2", "3:3", "there already, at line 2, column 3"),
        ("---\na: 1\n---\nb: 2", "3:1", "a second document"),
        ("[1]", "1:1", "not a mapping"),
        ("text", "1:1", "not a mapping"),
        ("? [a]\n: b", "1:3", "a key that is no word"),
        ("a: " + "[" * 50 + "]" * 50, "1:15", "levels"),
        ("a:\n\t- x", "2:1", "not valid YAML"),
        ("a: {b: ]", "1:8", "not valid YAML"),
        ('a: "x', "1:4", "not valid YAML"),
        ("a: b: c", "1:5", "not valid YAML"),
        ("a: @x", "1:4", "not valid YAML"),
        ("a: x\n b: \x1b", "2:5", "is not printable"),
    ],
)
def test_what_is_more_than_data_is_refused_where_it_stands(
    text: str, place: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_yaml(text, "q.yaml")

    told = str(refused.value)
    line, column = place.split(":")
    assert told.startswith(f"q.yaml:{line}:"), told
    if "not valid YAML" not in words:
        assert told.startswith(f"q.yaml:{line}:{column}:"), told
    assert words in told


def test_nesting_costs_nothing_however_deep() -> None:
    with pytest.raises(ConfigurationError, match=r"levels|nesting"):
        parse_yaml("a: " + "[" * 1_000_000, "q.yaml")


def test_values_stand_at_lines_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("quotas:\n  - user: a\n    rate: 5\n  - {user: b, rate: 6}\n")
    _, places = load_yaml(path)

    assert places.of("quotas", 0, "rate") == f"{path}:3:5"
    assert places.of("quotas", 1, "rate") == f"{path}:4:15"
    assert places.of("quotas", 1, "missing") == f"{path}:4:5"
    assert places.named("quotas", 0) == f"{path}:2:5: quotas[0]"
    assert places.of("nowhere") == str(path)


def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        load_yaml(tmp_path / "missing.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(ConfigurationError, match=r"latin\.yaml:1: byte 0xe9 is not UTF-8"):
        load_yaml(tmp_path / "latin.yaml")
