"""Line numbers in TOML files, found again after tomllib has thrown them away."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvota.store.toml_places import KeyPath, Places, path_text


def leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path, value


# Every integer in this file is the number of its own line.
EVERY_FORM = (Path(__file__).parent / "every_form.toml").read_text()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_value_of_a_file_with_every_form_is_found_on_its_own_line(newline: str) -> None:
    text = EVERY_FORM.replace("\n", newline)
    places = Places("f.toml", text)
    numbers = [(path, value) for path, value in leaves(tomllib.loads(text)) if type(value) is int]

    found = [(path, places.of(*path)) for path, _ in numbers]

    assert len(numbers) == 32
    assert found == [(path, f"f.toml:{value}") for path, value in numbers]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("text",), 6),
        (("lines",), 8),
        (("literal_lines",), 12),
        (("array",), 17),
        (("array", 3), 21),
        (("table",), 27),
        (("table", "deeper"), 29),
        (("quota",), 32),
        (("quota", 0), 32),
        (("quota", 1), 34),
        (("quota", 1, "limits"), 36),
        (("quota", 1, "rows"), 39),
        (("quota", 1, "rows", 1), 41),
        (("quota", 2), 43),
        (("quota", 2, "nested"), 44),
        (("late",), 48),
    ],
)
def test_tables_and_arrays_are_found_on_the_line_that_opens_them(path: KeyPath, line: int) -> None:
    assert Places("f.toml", EVERY_FORM).of(*path) == f"f.toml:{line}"


def test_a_missing_key_is_placed_at_the_table_that_lacks_it() -> None:
    assert Places("f.toml", EVERY_FORM).of("quota", 1, "client_id") == "f.toml:34"


def test_what_nothing_encloses_is_placed_in_the_file_without_a_line() -> None:
    assert Places("f.toml", EVERY_FORM).of("listeners", "port") == "f.toml"


def test_a_file_nested_too_deeply_still_has_places_for_what_came_before() -> None:
    text = "a = 1\nb = " + "[" * 5000 + "]" * 5000

    assert Places("f.toml", text).of("a") == "f.toml:1"


def test_the_name_of_a_place_quotes_only_keys_that_need_it() -> None:
    assert path_text(("kafka", "quota.window.num")) == 'kafka."quota.window.num"'
    assert path_text(("listeners", 0, "advertised-host")) == "listeners[0].advertised-host"


KEYS = st.sampled_from(["a", "b", "c-d", '"q.q"', "'[['", '"\\u0041"', '"="', "9"])
TEXTS = st.sampled_from(
    ['"x"', "'#'", '"\\""', '"""\n[a]\n"""', "'''\n\nb = 1'''", '""', "'''''''", '"""a"""""', "1e3"]
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Random lines; NUMBER stands for the number of the line it is on."""
    lines = []
    for number in range(draw(st.integers(0, 12))):
        own = draw(st.sampled_from([[f"k{number}"], [f"'k{number}'"], []]))
        key = ".".join([*draw(st.lists(KEYS, max_size=2)), *own]) or '""'
        value = draw(VALUES)
        form = draw(
            st.sampled_from(["{k} = {v}", "[{k}]", "[[{k}]]", "# {k}", "", " {k}={v} # {k}"])
        )
        lines.append(form.format(k=key, v=value))
    return "\n".join(lines)


VALUES = st.recursive(
    st.one_of(st.just("NUMBER"), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: "[" + ",\n".join(parts) + "]"),
        st.lists(inner, max_size=3).map(lambda parts: "[\n# ]\n" + ", ".join(parts) + "\n]"),
        st.lists(st.tuples(KEYS, inner), max_size=2, unique_by=lambda pair: pair[0]).map(
            lambda pairs: "{" + ", ".join(f"{k} = {v}" for k, v in pairs) + "}"
        ),
    ),
    max_leaves=4,
)


def parsed(document: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(document)
    except tomllib.TOMLDecodeError:
        return None  # a random document may declare something twice


@given(documents())
def test_no_valid_document_gets_a_wrong_line(document: str) -> None:
    numbered = "\n".join(
        line.replace("NUMBER", str(number)) for number, line in enumerate(document.split("\n"), 1)
    )
    data = parsed(numbered)
    assume(data is not None)
    places = Places("f", numbered)

    wrong = [
        (path, value, places.of(*path))
        for path, value in leaves(data)
        if type(value) is int and places.of(*path) != f"f:{value}"
    ]

    assert not wrong
