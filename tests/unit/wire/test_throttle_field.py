"""The throttle time in the answers of every API and version, against kio's encoding."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from kvota.model.errors import ProtocolError
from kvota.testing.kafka_messages import RandomMessages, throttle, to_frame, versions
from kvota.wire import throttle_field
from kvota.wire.apis import APIS

ALL = [(key, version) for key in APIS for version in versions(key)]
WITH = [(key, version) for key, version in ALL if version >= APIS[key].throttle_from]
WITHOUT = sorted(set(ALL) - set(WITH))
THROTTLES = (0, 1, 255, 256, 2**31 - 1)


@pytest.mark.parametrize(("key", "version"), WITH)
@given(seed=st.integers(0, 2**32), old=st.sampled_from(THROTTLES), new=st.sampled_from(THROTTLES))
@settings(deadline=None, max_examples=8)
def test_the_throttle_time_is_read_and_only_ever_raised(
    key: int, version: int, seed: int, old: int, new: int
) -> None:
    payload = RandomMessages(Random(seed)).payload(
        key, version, "response", throttle_time=throttle(old), **no_error_35(key)
    )
    answer = bytearray(to_frame(payload))

    found = throttle_field.read(answer, key, version)
    patched = throttle_field.patch(answer, key, version, new)

    assert (found, patched) == (old, True)
    assert answer == to_frame(replace(payload, throttle_time=throttle(max(old, new))))


def no_error_35(key: int) -> dict[str, object]:
    return {"error_code": KioErrorCode.none} if key == 18 else {}


@pytest.mark.parametrize(("key", "version"), WITHOUT)
def test_an_answer_without_the_field_stays_as_it_is(key: int, version: int) -> None:
    frame = RandomMessages(Random(1)).frame(key, version, "response")
    answer = bytearray(frame)

    assert throttle_field.read(answer, key, version) is None
    assert not throttle_field.patch(answer, key, version, 1000)
    assert answer == frame


def test_a_refusal_of_the_version_has_no_throttle_time() -> None:
    frame = b"\0\0\0\x0a" + b"\0\0\0\x01" + b"\0\x23" + b"\0\0\0\0"

    assert throttle_field.read(frame, 18, 4) is None


def test_a_key_that_is_not_in_the_table_has_no_throttle_time() -> None:
    assert throttle_field.read(b"", 83, 1) is None


@pytest.mark.parametrize(("key", "version"), WITH)
def test_an_answer_that_ends_before_the_field_is_refused(key: int, version: int) -> None:
    with pytest.raises(ProtocolError):
        throttle_field.read(b"\0\0\0\x06\0\0\0\x01\0\0", key, version)
