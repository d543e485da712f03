"""Whatever clients do and wherever the clock goes: what the quota on new producer ids promises."""

from copy import deepcopy
from itertools import accumulate

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import KNOWN, NEW, ProducerIds
from kvota.engine.saved_producer_ids import from_bytes, to_bytes

_BEGIN_MS = 1_700_000_000_000
_WINDOW_MS, _LAYERS = 8_000, 4
_LAYER_MS = _WINDOW_MS // _LAYERS
# Few false positives where they would make an example weaker; many where they are looked for.
_PRECISE, _COARSE = 1e-9, 0.5
_CALM = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)

_RATES = st.sampled_from([0.0, 0.3, 1.0, 2.5, 3.0, 7.0, 20.0, 300.0])
_STEPS_MS = st.one_of(
    st.just(0),
    st.integers(0, 300),
    st.sampled_from([1, _LAYER_MS - 1, _LAYER_MS, _LAYER_MS + 1, _WINDOW_MS - _LAYER_MS]),
    st.sampled_from([_WINDOW_MS - 1, _WINDOW_MS, 3 * _WINDOW_MS]),
    st.integers(-20_000, 0),
)
# A crash loop (a new id each time), a handful of good ones, ids of one block, any ids at all.
_IDS = st.one_of(
    st.integers(0, 4),
    st.integers(1_000, 1_400),
    st.integers(0, 50).map(lambda block: block * 1_000),
    st.integers(-(2**63), 2**63 - 1),
)
_DEEDS = st.lists(st.tuples(_IDS, _STEPS_MS, st.booleans()), min_size=1, max_size=80)


def _new(false_positive_rate: float) -> ProducerIds:
    layering = Layering(
        window_ms=_WINDOW_MS, layers=_LAYERS, false_positive_rate=false_positive_rate
    )
    return ProducerIds(layering)


@_CALM
@given(rate=_RATES, deeds=_DEEDS, probability=st.sampled_from([_PRECISE, _COARSE]))
def test_in_no_interval_are_there_more_new_ids_than_its_time_and_a_burst(
    rate: float, deeds: list[tuple[int, int, bool]], probability: float
) -> None:
    ids, now_ms = _new(probability), _BEGIN_MS
    elapsed_ms = list(accumulate(max(0, step_ms) for _, step_ms, _ in deeds))
    news = []
    for producer_id, step_ms, sweeps in deeds:
        now_ms += step_ms
        if sweeps:
            ids.sweep(now_ms, at_most=10)
        news.append(ids.admit("u", rate, producer_id, now_ms) == NEW)

    burst = max(rate, 1.0) if rate else 0.0
    for first in range(len(deeds)):
        for last in range(first, len(deeds)):
            interval_ms = elapsed_ms[last] - elapsed_ms[first]
            most = rate * interval_ms / _WINDOW_MS + burst
            assert sum(news[first : last + 1]) <= most + 0.002


@_CALM
@given(rates=st.lists(_RATES, min_size=1), deeds=_DEEDS, precise=st.booleans(), saves=st.booleans())
def test_an_id_that_was_let_through_is_never_refused_within_the_window(
    rates: list[float], deeds: list[tuple[int, int, bool]], *, precise: bool, saves: bool
) -> None:
    ids, now_ms, age_ms = _new(_PRECISE if precise else _COARSE), _BEGIN_MS, 0
    passed_ms: dict[int, int] = {}
    for number, (producer_id, step_ms, sweeps) in enumerate(deeds):
        now_ms += step_ms
        age_ms += max(0, step_ms)  # a clock that goes back ages nothing
        if sweeps:
            ids.sweep(now_ms, at_most=10)
        if saves:
            ids = from_bytes(to_bytes(ids), name="ids", like=ids)
        answer = ids.admit("u", rates[number % len(rates)], producer_id, now_ms)
        known_until_ms = passed_ms.get(producer_id, -_WINDOW_MS) + _WINDOW_MS - _LAYER_MS
        if producer_id < 0 or age_ms <= known_until_ms:
            assert answer == KNOWN
        if answer <= 0:
            passed_ms[producer_id] = age_ms


@_CALM
@given(rate=_RATES, deeds=_DEEDS)
def test_an_id_that_was_not_seen_for_a_window_is_new_but_for_false_positives(
    rate: float, deeds: list[tuple[int, int, bool]]
) -> None:
    ids, now_ms, age_ms, seen_ms = _new(_PRECISE), _BEGIN_MS, 0, _BEGIN_MS
    passed_ms: dict[int, int] = {}
    for producer_id, step_ms, _ in deeds:
        now_ms += step_ms
        if producer_id < 0:  # nobody looks at the clock
            continue
        age_ms += max(0, now_ms - seen_ms)
        seen_ms = now_ms
        answer = ids.admit("u", rate, producer_id, now_ms)
        if age_ms - passed_ms.get(producer_id, -_WINDOW_MS) >= _WINDOW_MS:
            assert answer != KNOWN
        if answer <= 0:
            passed_ms[producer_id] = age_ms


@_CALM
@given(rate=_RATES.filter(bool), deeds=_DEEDS)
def test_who_waits_as_long_as_told_is_admitted(
    rate: float, deeds: list[tuple[int, int, bool]]
) -> None:
    ids, now_ms = _new(_PRECISE), _BEGIN_MS
    for producer_id, step_ms, _ in deeds:
        now_ms += step_ms
        answer = ids.admit("u", rate, producer_id, now_ms)
        if answer > 0:
            later = deepcopy(ids)
            assert later.admit("u", rate, producer_id, now_ms + answer - 1) >= 1
            assert later.admit("u", rate, producer_id, now_ms + answer) == NEW


@_CALM
@given(rate=_RATES, deeds=_DEEDS, look_ms=_STEPS_MS)
def test_looking_changes_no_later_answer(
    rate: float, deeds: list[tuple[int, int, bool]], look_ms: int
) -> None:
    watched, alone, now_ms = _new(_COARSE), _new(_COARSE), _BEGIN_MS
    for producer_id, step_ms, looks in deeds:
        now_ms += step_ms
        if looks:
            watched.reading("u", now_ms + look_ms)
        answers = [ids.admit("u", rate, producer_id, now_ms) for ids in (watched, alone)]
        assert answers[0] == answers[1]


@_CALM
@given(deeds=_DEEDS, many=st.integers(1, 400))
def test_memory_is_counted_to_the_byte_and_bounded(
    deeds: list[tuple[int, int, bool]], many: int
) -> None:
    ids, now_ms = _new(0.01), _BEGIN_MS
    ids.memory.bytes_max = 3_000
    for producer_id, step_ms, sweeps in deeds:
        now_ms += step_ms
        for number in range(many):
            ids.learn(f"u{producer_id % 3}", None, producer_id + number, now_ms)
        if sweeps:
            ids.sweep(now_ms, at_most=10)
        layers = [layer for of_user in ids.users.values() for layer in of_user.layers]
        assert ids.memory.used_bytes == sum(layer.size_bytes for layer in layers)
        assert ids.memory.used_bytes <= 3_000 + 3 * 3 * _LAYERS * 25
        assert all(len(of_user.layers) <= 3 * _LAYERS for of_user in ids.users.values())
