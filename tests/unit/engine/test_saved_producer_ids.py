"""What is known of producer ids survives a restart; a damaged file is told, never believed."""

from random import Random

import pytest

from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import KNOWN, ProducerIds
from kvota.engine.saved_producer_ids import SavedRate, _digest, from_bytes, saved_rates, to_bytes
from kvota.model.errors import CorruptDataError

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def known(hash_key: int = 7) -> ProducerIds:
    """Users of all kinds, one of them over the quota."""
    ids = ProducerIds(hash_key=hash_key)
    for number in range(300):
        ids.admit("alice", 100.0, number, NOW_MS + number * 20_000)
        ids.admit("müller \ud800", 2.5, number * 1_000, NOW_MS + number * 20_000)
        ids.learn("no quota", None, number, NOW_MS)
        ids.admit("blocked", 0.0, number, NOW_MS)
    return ids


RATES = {
    None: SavedRate(3.0, 0),
    "alice": SavedRate(100.0, NOW_MS),
    "müller \ud800": SavedRate(2.5, 0),
    "no quota": SavedRate(None, 0),
    "": SavedRate(0.0, 0),
}
SAVED = to_bytes(known(), RATES)


def test_who_was_known_is_known_and_who_was_refused_is_refused_as_long() -> None:
    before, after = known(), from_bytes(SAVED, name="ids", like=ProducerIds())
    now_ms = NOW_MS + 300 * 20_000

    assert list(after.users) == list(before.users)
    assert after.memory.used_bytes == before.memory.used_bytes
    for step in range(400):
        user, rate = [("alice", 100.0), ("müller \ud800", 2.5), ("blocked", 0.0)][step % 3]
        for producer_id in (step, step * 1_000, 10**6 + step):
            answers = [
                ids.admit(user, rate, producer_id, now_ms + step * 9_000) for ids in (before, after)
            ]
            assert answers[0] == answers[1]


def test_saved_again_it_is_the_same_bytes() -> None:
    assert to_bytes(from_bytes(SAVED, name="ids", like=ProducerIds()), RATES) == SAVED


def test_whose_quotas_there_were_is_told_again() -> None:
    assert saved_rates(SAVED, name="ids") == RATES
    assert saved_rates(to_bytes(known()), name="ids") == {}


def test_settings_are_those_of_now_and_the_hash_key_is_the_saved_one() -> None:
    like = ProducerIds(Layering(window_ms=2 * HOUR_MS, layers=2), hash_key=99, users_max=5)

    ids = from_bytes(SAVED, name="ids", like=like)

    assert (ids.hash_key, ids.users_max, ids.memory.layering) == (7, 5, like.memory.layering)
    # 299 came 100 minutes after 0; an hour later half of it would be forgotten under the old window.
    late_ms = NOW_MS + 299 * 20_000 + HOUR_MS + 1
    assert ids.admit("alice", 100.0, 299, late_ms) == KNOWN


def test_nobody_is_saved_and_loaded() -> None:
    assert len(from_bytes(to_bytes(ProducerIds()), name="ids", like=ProducerIds())) == 0


def test_what_expired_while_nobody_ran_goes_with_the_first_sweep() -> None:
    ids = from_bytes(SAVED, name="ids", like=ProducerIds())

    assert ids.sweep(NOW_MS + 100 * HOUR_MS, at_most=100) == 4
    assert ids.memory.used_bytes == 0


@pytest.mark.parametrize("cut", [0, 1, 20, 21, 36, len(SAVED) // 2, len(SAVED) - 1])
def test_a_cut_file_is_told_by_its_name(cut: int) -> None:
    with pytest.raises(CorruptDataError, match=r"^/var/ids: .*what is known was lost"):
        from_bytes(SAVED[:cut], name="/var/ids", like=ProducerIds())


def test_every_flipped_bit_is_found() -> None:
    rng = Random(1)
    for _ in range(300):
        damaged = bytearray(SAVED)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        with pytest.raises(CorruptDataError):
            from_bytes(bytes(damaged), name="ids", like=ProducerIds())


def test_fields_that_make_no_sense_are_found_behind_a_digest_that_fits() -> None:
    rng = Random(2)
    for _ in range(2_000):
        body = bytearray(SAVED[:-16])
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(21, min(len(body), rng.choice((80, len(body)))))
            body[at : at + rng.randrange(1, 9)] = rng.choice(
                (b"", rng.randbytes(8), b"\xff" * 8, bytes(8))
            )
        try:
            damaged = bytes(body) + _digest(body)
            ids = from_bytes(damaged, name="ids", like=ProducerIds())
            rates = saved_rates(damaged, name="ids")
        except CorruptDataError as fault:
            assert "what is known was lost" in str(fault)  # noqa: PT017
        else:
            # What was believed can be worked with.
            assert all(one.rate is None or one.rate >= 0.0 for one in rates.values())
            for user in list(ids.users):
                ids.admit(user, 5.0, 1, NOW_MS)
            ids.sweep(NOW_MS + HOUR_MS, at_most=10)
