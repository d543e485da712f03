"""The text of tags: what Kafka's sanitizer would write, and the same whatever the order."""

import pytest

from kvota.model.tags import sanitise, tags_text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.Name-1_", "plain.Name-1_"),
        ("a b", "a%20b"),
        ("*~=", "%2A%7E%3D"),
        ("CN=é,O=x", "CN%3D%C3%A9%2CO%3Dx"),
        ("<default>", "%3Cdefault%3E"),
        ("a%2Ab", "a%252Ab"),
        ("\ud800", "%3F"),
        ("", ""),
    ],
)
def test_names_are_encoded_as_kafkas_sanitizer_does(name: str, text: str) -> None:
    assert sanitise(name) == text


def test_the_tags_of_kafkas_own_quotas_have_the_text_they_always_had() -> None:
    assert tags_text({"user": "alice", "client-id": "my app"}) == "client-id=my%20app,user=alice"
    assert tags_text({"client-id": "c", "user": ""}) == "client-id=c,user="


def test_tags_of_an_event_are_never_ambiguous() -> None:
    text = tags_text({"user": "a,user=b", "client-id": "client@#$%"})

    assert text == "client-id=client%40%23%24%25,user=a%2Cuser%3Db"


def test_any_keys_are_encoded_as_values_are() -> None:
    assert tags_text({"team/name": "ä", "a=b": "c,d"}) == "a%3Db=c%2Cd,team%2Fname=%C3%A4"
    assert tags_text({}) == ""
