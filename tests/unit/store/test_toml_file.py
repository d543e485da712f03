"""Files that a person wrote, and the ways in which they cannot be read."""

from pathlib import Path

import pytest

from kvota.model.errors import ConfigurationError
from kvota.store.toml_file import in_file_order, load_toml, unknown_keys


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fault_of(content: bytes | None, **options: int) -> str:
    path = Path("some.toml")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load_toml(path, **options)
    assert len(caught.value.faults) == 1
    return str(caught.value)


def test_data_and_places_of_a_file() -> None:
    Path("some.toml").write_text("a = 1\n[t]\nb = 'x'\n")

    data, places = load_toml(Path("some.toml"))

    assert data == {"a": 1, "t": {"b": "x"}}
    assert places.named("t", "b") == "some.toml:3: t.b"


def test_the_mark_that_some_editors_put_before_utf8_is_no_fault() -> None:
    Path("some.toml").write_bytes(b"\xef\xbb\xbfa = 1\n")

    data, places = load_toml(Path("some.toml"))

    assert data == {"a": 1}
    assert places.of("a") == "some.toml:1"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a = 1\nb = orders\n", 2),
        (b"a = 1\n\na = 2\n", 3),
        (b"[a]\n[a]\n", 2),
        (b'a = """\nnever closed\n\n', 2),
        (b"a = 1\nb = [\n\n\n", 2),
        (b"[x]\r\na == 1\r\n", 2),
        (b"\x00", 1),
    ],
)
def test_what_is_not_toml_is_shown_with_its_line(content: bytes, line: int) -> None:
    assert fault_of(content).startswith(f"some.toml:{line}: not valid TOML: ")


def test_a_number_of_5000_digits_is_a_fault_of_the_file() -> None:
    assert "some.toml: not valid TOML: Exceeds the limit" in fault_of(b"a = " + b"1" * 5000)


def test_brackets_without_end_are_a_fault_of_the_file() -> None:
    expected = "some.toml: brackets are nested too deeply. Write at most a few levels."
    assert fault_of(b"a = " + b"[" * 100_000) == expected


def test_bytes_that_are_not_utf8_are_shown_with_their_line() -> None:
    expected = "some.toml:2: byte 0xff is not UTF-8. Save the file as UTF-8."
    assert fault_of(b"a = 1\nb = '\xff'\n") == expected


def test_a_missing_file_is_named() -> None:
    expected = "some.toml: there is no such file. Create it, or correct the path."
    assert fault_of(None) == expected


def test_a_folder_is_not_a_file() -> None:
    Path("some.toml").mkdir()

    assert fault_of(None) == "some.toml: is a folder. Name the file in it."


def test_a_path_that_no_file_can_have_is_a_fault_and_no_crash() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: embedded null byte"):
        load_toml(Path("a\0b"))


def test_a_file_over_the_limit_is_not_read_whole() -> None:
    assert "larger than 10 bytes" in fault_of(b"a = 1\nb = 2\n", bytes_max=10)
    assert "larger than 10 bytes" in read_endless_file()


def read_endless_file() -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_toml(Path("/dev/zero"), bytes_max=10)
    return str(caught.value)


def test_a_file_at_the_limit_is_read() -> None:
    Path("some.toml").write_bytes(b"abc = 1234")

    assert load_toml(Path("some.toml"), bytes_max=10)[0] == {"abc": 1234}


def test_unknown_keys_are_answered_with_the_nearest_known_one() -> None:
    Path("some.toml").write_text("[gateway]\nadvertised_hosts = 'x'\nzzz = 1\nport = 5\n")
    data, places = load_toml(Path("some.toml"))

    faults = unknown_keys(data["gateway"], ["port", "advertised_host"], places, ("gateway",))

    assert [str(fault) for fault in faults] == [
        'some.toml:2: gateway.advertised_hosts: unknown key. Did you mean "advertised_host"?',
        "some.toml:3: gateway.zzz: unknown key. Known here: advertised_host, port.",
    ]


def test_faults_are_sorted_as_the_file_is_read() -> None:
    Path("some.toml").write_text("".join(f"key{number} = 1\n" for number in range(12)))
    data, places = load_toml(Path("some.toml"))
    faults = unknown_keys(dict(reversed(data.items())), ["none"], places)

    ordered = in_file_order(faults)

    assert [fault.place.split(":")[1] for fault in ordered] == [str(n) for n in range(1, 13)]
