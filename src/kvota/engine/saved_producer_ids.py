"""What is known of producer ids as bytes, so that a restart makes nobody new.

Little-endian: a head, the users, and a digest of all before it. Filters are as they are in memory, so it
is as compact; the hash key they were filled with is in it, and so are times as Unix ms.
"""

from hashlib import blake2b
from struct import Struct
from typing import Never

from kvota.engine.bloom import Shape
from kvota.engine.layered_bloom import Layer, Layering
from kvota.engine.producer_ids import ProducerIds
from kvota.model.errors import CorruptDataError

_MAGIC = b"kvota producer ids 1\n"
_DIGEST_BYTES = 16
# Hash key, until when unknown ids are learned, window, layers, false positives; users.
_HEAD = Struct("<QqqHdI")
# Length of the name, rate (below 0: none), time, ids since a layer was opened by age; is there a bucket,
# and what ``DebtBucket.packed`` tells of it; layers.
_USER = Struct("<IdqQ?16sB")
_NO_BUCKET = bytes(16)
# Bits, hashes; when it was opened, room; ids in it, latest here, counted as new.
_LAYER = Struct("<IIqIQQQ")
_NO_RATE = -1.0


def to_bytes(ids: ProducerIds) -> bytes:
    """All that is known, for ``from_bytes``."""
    layering = ids.memory.layering
    saved = bytearray(_MAGIC)
    saved += _HEAD.pack(
        ids.hash_key,
        ids.learns_until_ms,
        layering.window_ms,
        layering.layers,
        layering.false_positive_rate,
        len(ids.users),
    )
    for user, of_user in ids.users.items():
        # A user name may hold half a surrogate pair, which is no UTF-8.
        name = user.encode("utf-8", "surrogatepass")
        rate = _NO_RATE if of_user.rate is None else of_user.rate
        bucket = of_user.bucket
        owed = _NO_BUCKET if bucket is None else bucket.packed()
        numbers = (rate, of_user.last_ms, of_user.generation, bucket is not None, owed)
        saved += _USER.pack(len(name), *numbers, len(of_user.layers)) + name
        for layer in of_user.layers:
            saved += _LAYER.pack(
                *layer.shape,
                layer.created_ms,
                layer.room,
                layer.inserted,
                layer.latest,
                layer.counted,
            )
            saved += layer.set_bytes()
    return bytes(saved) + _digest(saved)


def from_bytes(saved: bytes, *, name: str, like: ProducerIds) -> ProducerIds:
    """What was known, as it stood when ``to_bytes`` was called.

    What has expired meanwhile goes with the first look or sweep. Known ids stay known under another
    window and other layers, for the new window's time; the hash key is the saved one.

    Args:
        saved: of ``to_bytes``; all of it is checked before anything is believed.
        name: of the file, for errors.
        like: has the settings; it is not changed.

    Raises:
        CorruptDataError: they are not what ``to_bytes`` has made; names the place.
    """
    body = memoryview(saved)[:-_DIGEST_BYTES]
    if not saved.startswith(_MAGIC):
        msg = f"{name}: does not begin as saved producer ids do; what is known was lost"
        raise CorruptDataError(msg)
    if _digest(body) != saved[-_DIGEST_BYTES:]:
        msg = f"{name}: {len(saved)} bytes that are cut or damaged; what is known was lost"
        raise CorruptDataError(msg)
    return _Saved(body, name).producer_ids(like)


class _Saved:
    """Reads one field after the other; a digest that fits is no proof that the fields do."""

    def __init__(self, body: memoryview, name: str) -> None:
        self._body = body
        self._name = name
        self._at = len(_MAGIC)

    def producer_ids(self, like: ProducerIds) -> ProducerIds:
        hash_key, learns_until_ms, window_ms, layers, probability, users = _HEAD.unpack_from(
            self._body, self._part(_HEAD.size)
        )
        try:
            Layering(window_ms=window_ms, layers=layers, false_positive_rate=probability)
        except ValueError as fault:
            self._fail(str(fault))
        ids = ProducerIds(
            like.memory.layering,
            hash_key=hash_key,
            rate_samples=like.rate_window.samples,
            users_max=like.users_max,
            filter_bytes_max=like.memory.bytes_max,
        )
        ids.learns_until_ms = learns_until_ms
        for _ in range(users):
            self._take_user(ids)
        if self._at != len(self._body):
            self._fail(f"{len(self._body) - self._at} bytes behind the last user")
        return ids

    def _take_user(self, ids: ProducerIds) -> None:
        name_bytes, rate, last_ms, generation, has_bucket, owed, layers = _USER.unpack_from(
            self._body, self._part(_USER.size)
        )
        try:
            user = str(self._bytes(name_bytes), "utf-8", "surrogatepass")
        except UnicodeDecodeError as fault:
            self._fail(str(fault))
        if rate != _NO_RATE and not rate >= 0.0:
            self._fail(f"a rate of {rate}")
        of_user = ids.new_user(None if rate == _NO_RATE else rate, last_ms)
        of_user.restore([self._layer() for _ in range(layers)], generation)
        if has_bucket and not of_user.restore_owed(owed):
            self._fail("a debt that is not a number")
        ids.users[user] = of_user

    def _layer(self) -> Layer:
        bits, hashes, created_ms, room, inserted, latest, counted = _LAYER.unpack_from(
            self._body, self._part(_LAYER.size)
        )
        set_bytes = self._bytes((bits + 7) // 8)
        try:
            layer = Layer(Shape(bits, hashes), room, created_ms)
            layer.restore(set_bytes)
        except ValueError as fault:
            self._fail(str(fault))
        layer.inserted, layer.latest, layer.counted = inserted, latest, counted
        return layer

    def _bytes(self, length: int) -> bytes:
        at = self._part(length)
        return bytes(self._body[at : self._at])

    def _part(self, length: int) -> int:
        """Steps over a part; returns where it begins."""
        left = len(self._body) - self._at
        if length > left:
            self._fail(f"a part of {length} bytes, {left} are left")
        at, self._at = self._at, self._at + length
        return at

    def _fail(self, problem: str) -> Never:
        msg = f"{self._name}: at byte {self._at}: {problem}; what is known was lost"
        raise CorruptDataError(msg)


def _digest(body: bytes | bytearray | memoryview) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES, usedforsecurity=False).digest()
