"""Names and tags of whole columns are encoded and read as single ones are."""

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.tags import sanitise, tags_text
from kvota.record.tag_texts import kafka_names, places_in, sanitised

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
KAFKAS = re.compile("client-id=([^,]*),user=([^,]*)")
TAGS = st.one_of(
    NAMES,
    st.builds(lambda client, user: f"client-id={client},user={user}", NAMES, NAMES),
    st.builds(lambda client, user: tags_text({"client-id": client, "user": user}), NAMES, NAMES),
)


def texts(values: list[str]) -> pa.StringArray:
    return pa.array(values, pa.string())


@given(st.lists(NAMES))
def test_names_are_encoded_as_one_is(names: list[str]) -> None:
    assert sanitised(texts(names)).to_pylist() == [sanitise(name) for name in names]


@given(st.lists(TAGS))
def test_names_in_kafkas_tags(tags: list[str]) -> None:
    client_ids, users = kafka_names(texts(tags))

    found = [KAFKAS.fullmatch(text) for text in tags]
    assert client_ids.to_pylist() == [None if one is None else one[1] for one in found]
    assert users.to_pylist() == [None if one is None else one[2] for one in found]


@pytest.mark.parametrize(
    "text", ["client-id=a,user=b\n", "\nclient-id=a,user=b", "client-id=a,user=b,c=d", ""]
)
def test_what_only_looks_like_kafkas_tags(text: str) -> None:
    client_ids, users = kafka_names(texts([text, "client-id=\n\0,user=ü"]))

    kafkas = KAFKAS.fullmatch(text)
    assert client_ids.to_pylist() == [None if kafkas is None else kafkas[1], "\n\0"]
    assert users.to_pylist() == [None if kafkas is None else kafkas[2], "ü"]


def test_many_long_names() -> None:
    names = [
        f"{chr(1 + number % 0x2FF)}{'x' * (number % 70_000)}" for number in range(0, 140_000, 997)
    ]

    assert sanitised(texts(names)).to_pylist() == [sanitise(name) for name in names]


@given(
    st.lists(st.one_of(st.none(), st.sampled_from("abcdé"), st.just(""))),
    st.sets(st.sampled_from("abé")),
)
def test_places_of_texts_among_others(wanted: list[str | None], others: set[str]) -> None:
    among = ["", *sorted(others)]

    places = places_in(pa.array(wanted, pa.string()), texts(among))

    assert places.tolist() == [
        among.index(text) if text and text in among else -1 for text in wanted
    ]
