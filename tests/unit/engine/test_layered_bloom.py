"""Layers by age and by fill: what is seen, for how long, and what it takes."""

import pytest

from kvota.engine.bloom import BloomFilter, mixed
from kvota.engine.layered_bloom import LayeredBloomFilter, Layering, LayerMemory

NOW_MS = 1_700_000_000_000
WINDOW_MS, LAYER_MS = 4_000, 1_000
LAYERING = Layering(window_ms=WINDOW_MS, layers=4, false_positive_rate=0.01)


class Seen:
    """What callers do: settle where it is due, look, remember."""

    def __init__(self, room: int = 100, bytes_max: int = 1 << 20) -> None:
        self.memory = LayerMemory(LAYERING, bytes_max=bytes_max)
        self.layers = LayeredBloomFilter(self.memory, NOW_MS, room=room)

    def at(self, now_ms: int) -> LayeredBloomFilter:
        if not self.layers.last_ms <= now_ms < self.layers.due_ms:
            self.layers.settle(now_ms)
        return self.layers

    def meets(self, number: int, now_ms: int) -> bool:
        """True when it was seen; it is from now on."""
        layers, word = self.at(now_ms), mixed(number, 0)
        if layers.seen(word, now_ms):
            return True
        layers.remember(word, now_ms)
        return False

    def created_ms(self) -> list[int]:
        return [layer.created_ms - NOW_MS for layer in self.layers.layers]


def test_what_is_seen_stays_so_for_a_window_and_not_a_millisecond_longer() -> None:
    seen = Seen()
    seen.meets(7, NOW_MS)

    last_ms = NOW_MS + WINDOW_MS - 1
    assert seen.at(last_ms).seen(mixed(7, 0), last_ms)
    other = Seen()
    other.meets(7, NOW_MS)
    assert not other.at(NOW_MS + WINDOW_MS).seen(mixed(7, 0), NOW_MS + WINDOW_MS)


def test_who_comes_every_window_less_a_layer_is_never_new_again() -> None:
    seen = Seen()
    times = range(NOW_MS + 999, NOW_MS + 999 + 40 * WINDOW_MS, WINDOW_MS - LAYER_MS)
    seen.meets(1, NOW_MS)  # so that the first layer is not opened by it
    seen.meets(7, NOW_MS + 999)

    assert all(seen.meets(7, now_ms) for now_ms in times)


def test_layers_are_opened_by_need_and_by_age_not_by_the_clock() -> None:
    seen = Seen()
    for number, after_ms in enumerate([0, 999, 1_000, 2_500]):
        seen.meets(number, NOW_MS + after_ms)

    assert seen.created_ms() == [0, 1_000, 2_500]
    assert seen.meets(0, NOW_MS + 3_499)  # put into the newest, which is young
    assert seen.created_ms() == [0, 1_000, 2_500]
    assert seen.meets(0, NOW_MS + 6_499)
    assert seen.created_ms() == [2_500, 6_499]


def test_what_is_in_a_young_layer_is_not_put_in_twice() -> None:
    seen = Seen(room=16)
    for number in range(17):
        seen.meets(number, NOW_MS)  # the 17th opens a second layer
    for number in range(17):
        assert seen.meets(number, NOW_MS + 1)

    assert [layer.inserted for layer in seen.layers.layers] == [16, 1]


def test_a_full_layer_forces_another_that_has_room_for_a_whole_window() -> None:
    seen = Seen(room=100)
    for number in range(401):
        seen.meets(number, NOW_MS)

    rooms = [layer.room for layer in seen.layers.layers]
    assert rooms[:2] == [100, 300]
    assert sum(layer.inserted for layer in seen.layers.layers) >= 390  # but for false positives


def test_the_next_layer_has_room_for_those_who_came_in_the_last() -> None:
    seen = Seen(room=16)
    for number in range(1_000):
        seen.meets(number, NOW_MS)
    came = sum(layer.inserted for layer in seen.layers.layers)

    seen.meets(1, NOW_MS + LAYER_MS)

    assert seen.layers.layers[-1].room == pytest.approx(1.25 * came, abs=1)


def test_full_layers_come_to_twice_the_number_of_layers_and_then_one_is_overfilled() -> None:
    seen = Seen(room=1)
    for number in range(20_000):
        seen.meets(number, NOW_MS)

    assert len(seen.layers.layers) == 8
    assert seen.memory.overfilled > 0
    assert all(seen.meets(number, NOW_MS) for number in range(20_000))


def test_at_the_limit_of_layers_a_refreshed_id_still_lives_for_its_whole_time() -> None:
    seen = Seen(room=1)
    for number in range(20_000):
        seen.meets(number, NOW_MS)
    refreshed_ms = NOW_MS + WINDOW_MS - LAYER_MS
    seen.meets(5, refreshed_ms)

    assert seen.meets(5, refreshed_ms + WINDOW_MS - LAYER_MS)


def test_layers_never_come_to_more_than_three_times_their_number() -> None:
    seen = Seen(room=1)
    most = 0
    for step in range(200):
        for number in range(300):
            seen.meets(step * 300 + number, NOW_MS + step * 300)
        most = max(most, len(seen.layers.layers))

    assert 8 <= most <= 12


def test_over_its_bytes_a_layer_is_as_small_as_can_be_and_nothing_is_forgotten() -> None:
    seen = Seen(room=1_000, bytes_max=2_000)
    for step in range(20):
        for number in range(100):
            seen.meets(step * 100 + number, NOW_MS + step * 200)

    assert seen.memory.used_bytes <= 2_000 + 12 * 25
    assert seen.memory.overfilled > 0
    assert all(seen.meets(1_900 + number, NOW_MS + 3_800) for number in range(100))


def test_all_memory_comes_back() -> None:
    seen = Seen()
    for number in range(1_000):
        seen.meets(number, NOW_MS)
    assert seen.memory.used_bytes == sum(layer.size_bytes for layer in seen.layers.layers) > 1_000

    seen.at(NOW_MS + WINDOW_MS)

    assert (seen.memory.used_bytes, seen.layers.layers) == (0, [])
    seen.meets(1, NOW_MS + WINDOW_MS)
    seen.layers.clear()
    assert seen.memory.used_bytes == 0


def test_a_clock_that_goes_back_takes_nothing_and_gives_nothing() -> None:
    seen = Seen()
    seen.meets(7, NOW_MS)
    later_ms, earlier_ms = NOW_MS + 3_000, NOW_MS - 86_400_000
    seen.meets(8, later_ms)

    assert seen.meets(7, earlier_ms) is True
    seen.meets(9, earlier_ms)
    # What had a second to live has it from the new time on.
    other = seen.at(earlier_ms + 999)
    assert other.seen(mixed(8, 0), earlier_ms + 999)
    assert not seen.at(earlier_ms + 6_000).seen(mixed(8, 0), earlier_ms + 6_000)
    assert seen.layers.is_empty(earlier_ms + 6_000)


def test_distinct_numbers_are_told_and_looking_moves_nothing() -> None:
    seen = Seen(room=1_000)
    for step in range(5):  # the same 300 again and again, and 100 others each time
        for number in [*range(300), *range(10_000 + 100 * step, 10_100 + 100 * step)]:
            seen.meets(number, NOW_MS + step * LAYER_MS)
    now_ms = NOW_MS + 4 * LAYER_MS
    before = [(layer.inserted, layer.latest) for layer in seen.layers.layers]

    # The first step's layer has expired with its 100 others.
    assert seen.layers.peek_distinct(now_ms) == pytest.approx(700, rel=0.02)
    assert seen.layers.peek_distinct(now_ms + 3_000) == pytest.approx(400, rel=0.02)
    assert seen.layers.peek_distinct(now_ms + WINDOW_MS) == 0
    assert before == [(layer.inserted, layer.latest) for layer in seen.layers.layers]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"window_ms": 0}, "window_ms: 0"),
        ({"layers": 0}, "layers: 0"),
        ({"layers": 65}, "layers: 65"),
        ({"false_positive_rate": 0.0}, "false_positive_rate: 0.0"),
        ({"false_positive_rate": 0.6}, "false_positive_rate: 0.6"),
    ],
)
def test_settings_of_which_no_filter_can_be_made_are_refused(
    settings: dict[str, float], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        Layering(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("total", "layer"), [(0.01, 0.00251), (0.1, 0.0260)])
def test_layers_share_the_false_positives_of_all(total: float, layer: float) -> None:
    layering = Layering(false_positive_rate=total)

    assert layering.layer_probability == pytest.approx(layer, rel=0.01)
    assert (Layering(window_ms=2, layers=4).layer_ms, LAYERING.layer_ms) == (1, LAYER_MS)


def test_four_full_layers_together_have_the_rate_that_was_asked_for() -> None:
    seen = Seen(room=2_500)
    for number in range(10_000):
        seen.meets(number * 1_000, NOW_MS + number * WINDOW_MS // 10_000)
    now_ms = NOW_MS + WINDOW_MS - 1

    confused = sum(seen.at(now_ms).seen(mixed(i * 1_000, 0), now_ms) for i in range(10_000, 60_000))

    assert 0.0005 < confused / 50_000 < 0.0115


def test_few_numbers_are_taken_for_others_no_more_often_than_many() -> None:
    memory = LayerMemory(Layering(), bytes_max=1 << 20)
    shape, room = memory.shape(1)
    confused = 0
    for key in range(100):
        seen = BloomFilter(shape)
        for number in range(room):
            seen.add_word(mixed(number, key << 32))
        confused += sum(seen.holds_word(mixed(i, key << 32)) for i in range(room, 5_000))

    # By the formula of false positives alone it would be 64.
    assert confused <= 1.5 * 100 * 5_000 * memory.probability
