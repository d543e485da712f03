"""Tags are a mapping: no order of keys shows in the text, and no two mappings share one."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.tags import tags_text

pytestmark = pytest.mark.timeout(90)

# Few characters, those with a meaning in the text among them, so that near misses are drawn.
_NAMES = st.one_of(
    st.text(alphabet="a=,%2C +é", max_size=4),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
_TAGS = st.dictionaries(_NAMES, _NAMES, max_size=4)


@given(tags=_TAGS, random=st.randoms(use_true_random=False))
def test_the_order_of_insertion_has_no_meaning(tags: dict[str, str], random: object) -> None:
    items = list(tags.items())
    random.shuffle(items)  # type: ignore[attr-defined]

    assert tags_text(dict(items)) == tags_text(tags)


@given(first=_TAGS, second=_TAGS)
def test_different_tags_never_share_a_text(first: dict[str, str], second: dict[str, str]) -> None:
    assert (tags_text(first) == tags_text(second)) == (first == second)


@given(tags=_TAGS)
def test_the_text_can_be_read_back(tags: dict[str, str]) -> None:
    text = tags_text(tags)

    pairs = [part.split("=") for part in text.split(",")] if text else []
    assert {unquote(key): unquote(value) for key, value in pairs} == tags
