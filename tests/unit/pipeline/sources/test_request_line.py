"""What a line of the request log charges, on which quota, to whom."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.sources.log_text import line, produced

from kvota.model.decision_sink import ADMITTED, REJECTED, THROTTLED
from kvota.pipeline.sources.quick_json import needed_json
from kvota.pipeline.sources.request_line import MARK, Charge, Request, Skipped, Who, request_of


def read(**fields: Any) -> Request:
    text = line(**fields).encode()
    begin = text.index(MARK) + len(MARK)
    found = request_of(json.loads(text[begin : text.rindex(b"}") + 1]))
    assert request_of(json.loads(needed_json(text, begin))) == found
    return found


def charged(request: Request) -> list[tuple[str, float, int, int]]:
    return [(one.quota_type, one.value, one.throttle_ms, one.outcome) for one in request.charges]


def fetched(*sizes: int, throttle_ms: int = 0) -> dict[str, Any]:
    partitions = [
        {"partitionIndex": place, "abortedTransactions": [], "recordsSizeInBytes": size}
        for place, size in enumerate(sizes)
    ]
    topics = [{"topicId": "7Xg_UzSDTVyndBdb0Zc6Ww", "partitions": partitions}] if sizes else []
    return {"throttleTimeMs": throttle_ms, "errorCode": 0, "sessionId": 0, "responses": topics}


def test_a_produce_is_charged_its_bytes_and_its_time() -> None:
    found = read()

    assert charged(found) == [("PRODUCE", 1039, 0, ADMITTED), ("REQUEST", 2.0, 0, ADMITTED)]
    assert found.answered_ms == 0.75


def test_it_is_charged_to_whom_it_is_of() -> None:
    assert read(principal="User:alice", client_id="<script>alert(1)</script>").who == Who(
        api_key=0,
        api_version=10,
        user="alice",
        client_id="<script>alert(1)</script>",
        connection="127.0.0.1:9092-127.0.0.1:37536-1-3",
    )


def test_a_client_without_a_client_id_has_an_empty_one() -> None:
    who = read(client_id=None).who

    assert who is not None
    assert who.client_id == ""


def test_a_produce_without_an_answer_takes_no_time_and_has_its_throttle_outside() -> None:
    found = read(request=produced(1000, acks=0), response="", throttleTimeMs=64)

    assert charged(found) == [("PRODUCE", 1039, 64, THROTTLED)]


def test_of_two_throttles_the_longer_one_holds() -> None:
    found = read(response={"responses": [], "throttleTimeMs": 80}, throttleTimeMs=64)

    assert found.charges[0].throttle_ms == 80


def test_a_fetch_is_charged_its_answer() -> None:
    found = read(key=1, version=16, request={"replicaId": -1}, response=fetched(29383))

    assert charged(found)[0] == ("FETCH", 29456, 0, ADMITTED)


def test_a_throttled_fetch_was_given_back() -> None:
    found = read(key=1, version=16, request={}, response=fetched(throttle_ms=900))

    assert charged(found)[0] == ("FETCH", 0, 900, REJECTED)


@pytest.mark.parametrize(
    "request_",
    [{"replicaId": 2}, {"replicaId": 0}, {"replicaState": {"replicaId": 2, "replicaEpoch": 4}}],
)
def test_a_followers_fetch_charges_nothing(request_: dict[str, Any]) -> None:
    found = read(key=1, version=16, request=request_, response=fetched(100))

    assert (found.charges, found.skipped) == ((), Skipped.CLUSTER)


@pytest.mark.parametrize(
    ("key", "fields"),
    [(63, {}), (58, {}), (19, {"listener": "CONTROLLER"}), (18, {"listener": "CONTROLLER"})],
)
def test_what_brokers_ask_each_other_charges_nothing(key: int, fields: dict[str, Any]) -> None:
    found = read(key=key, version=1, request={}, response={}, **fields)

    assert (found.charges, found.skipped) == ((), Skipped.CLUSTER)


def creation(*topics: tuple[str, int, int, int]) -> dict[str, Any]:
    """Return the fields of a CreateTopics: name, partitions wanted and got, error."""
    return {
        "key": 19,
        "version": 7,
        "request": {
            "topics": [{"name": n, "numPartitions": p, "assignments": []} for n, p, _, _ in topics],
            "validateOnly": False,
        },
        "response": {
            "throttleTimeMs": 0,
            "topics": [{"name": n, "errorCode": e, "numPartitions": g} for n, _, g, e in topics],
        },
    }


def test_new_topics_are_charged_their_partitions() -> None:
    found = read(**creation(("a", 2, 2, 0), ("b", -1, 5, 0), ("there", 9, -1, 36)))

    assert charged(found)[1] == ("CONTROLLER_MUTATION", 7, 0, ADMITTED)


def test_what_a_quota_refused_is_a_row_of_its_own() -> None:
    fields = creation(("a", 2, 2, 0), ("b", 3, -1, 89))
    fields["response"]["throttleTimeMs"] = 48979

    found = read(**fields)

    assert charged(found)[1:] == [
        ("CONTROLLER_MUTATION", 2, 0, ADMITTED),
        ("CONTROLLER_MUTATION", 3, 48979, REJECTED),
    ]


def test_both_lines_of_a_forwarded_change_have_one_name() -> None:
    first, second = (
        read(**creation(("a", 2, 2, 0)), forwarded=forwarded) for forwarded in (False, True)
    )

    assert first.name == second.name != ""
    assert (first.forwarded, second.forwarded) == (False, True)
    assert first.name != read(**creation(("a", 2, 2, 0)), correlation_id=8).name
    assert [one.quota_type for one in second.charges] == ["CONTROLLER_MUTATION"]


def test_another_forwarded_request_is_left_to_its_first_line() -> None:
    found = read(key=50, version=0, request={}, response={}, forwarded=True)

    assert (found.charges, found.skipped) == ((), Skipped.FORWARDED)


@pytest.mark.parametrize(
    ("key", "request_"),
    [(20, {}), (37, {"topics": [{"name": "a", "count": 9, "assignments": None}]})],
)
def test_partitions_that_the_log_does_not_tell_are_not_guessed(
    key: int, request_: dict[str, Any]
) -> None:
    answer = {"results": [{"name": "a", "errorCode": 0}], "throttleTimeMs": 0}

    found = read(key=key, version=2, request=request_, response=answer)

    assert found.skipped is Skipped.UNKNOWN_PARTITIONS
    assert [one.quota_type for one in found.charges] == ["REQUEST"]


@pytest.mark.parametrize(("epoch", "ids"), [(0, [4711]), (3, [])])
def test_only_a_new_producer_id_counts(epoch: int, ids: list[int]) -> None:
    answer = {"errorCode": 0, "producerId": 4711, "producerEpoch": epoch, "throttleTimeMs": 0}

    found = read(key=22, version=4, request={}, response=answer)

    new: list[Charge] = [one for one in found.charges if one.quota_type == "PRODUCER_ID"]
    assert [one.producer_id for one in new] == ids


HOSTILE = (
    '","response":{"throttleTimeMs":9},"x":"',
    '},"response":{',
    ',"topics":[',
    "\\",
    '\\"',
    '"requestHeader":{"requestApiKey":1,',
)


@given(name=st.lists(st.sampled_from([*HOSTILE, "a"])).map("".join), topic=st.sampled_from(HOSTILE))
def test_names_that_look_like_keys_change_nothing(name: str, topic: str) -> None:
    wanted = produced(1000)
    wanted["topicData"][0]["name"] = topic
    plain = read(request=wanted, client_id=name, principal=f"User:{name}")
    answer = fetched(100)
    read_ = read(
        key=1, version=16, request={"topics": [{"topic": topic}]}, response=answer, client_id=name
    )

    assert plain.who is not None
    assert (plain.who.user, plain.who.client_id) == (name, name)
    assert charged(read_)[0] == ("FETCH", 16 + 18 + 36 + 1 + 100, 0, ADMITTED)
