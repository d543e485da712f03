"""What is known of producer ids as bytes, so that a restart makes nobody new.

Little-endian: a head, whose quotas there were, the users, and a digest of all before it. Filters are as they are in
memory, so it is as compact; the hash key they were filled with is in it, and so are times as Unix ms.
"""

from collections.abc import Mapping
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple, Never

from kvota.engine.bloom import Shape
from kvota.engine.layered_bloom import Layer, Layering
from kvota.engine.producer_ids import ProducerIds
from kvota.model.errors import CorruptDataError

_MAGIC = b"kvota producer ids 2\n"
_DIGEST_BYTES = 16
# Hash key, until when unknown ids are learned, window, layers, false positives; quotas, users.
_HEAD = Struct("<QqqHdII")
# Length of the name, whether this is the default user's, rate (below 0: none), until when its running producers are learned.
_RATE = Struct("<I?dq")
# Length of the name, rate (below 0: none), time, ids since a layer was opened by age; is there a bucket,
# and what ``DebtBucket.packed`` tells of it; layers.
_USER = Struct("<IdqQ?16sB")
# Of a bucket: last record, debt.
_OWED = Struct("<qd")
_NO_BUCKET = bytes(_OWED.size)
# Bits, hashes; when it was opened, room; ids in it, latest here, counted as new.
_LAYER = Struct("<IIqIQQQ")
_NO_RATE = -1.0


class SavedRate(NamedTuple):
    """The quota of a user.

    Attributes:
        rate: new ids per window; None: none.
        learns_until_ms: until then (Unix ms) who shows that it has been running is not new; 0: there is no such time.
    """

    rate: float | None
    learns_until_ms: int


# Of users by their names, and of the default user (None).
SavedRates = Mapping[str | None, SavedRate]


def to_bytes(ids: ProducerIds, rates: SavedRates | None = None) -> bytes:
    """All that is known, and whose quotas there are, for ``from_bytes`` and ``saved_rates``."""
    layering = ids.memory.layering
    rates = rates or {}
    saved = bytearray(_MAGIC)
    saved += _HEAD.pack(
        ids.hash_key,
        ids.learns_until_ms,
        layering.window_ms,
        layering.layers,
        layering.false_positive_rate,
        len(rates),
        len(ids.users),
    )
    for named, (limit, learns_until_ms) in rates.items():
        name = _encoded(named or "")
        saved += _RATE.pack(len(name), named is None, _told(limit), learns_until_ms) + name
    for user, of_user in ids.users.items():
        name = _encoded(user)
        rate = _told(of_user.rate)
        bucket = of_user.bucket
        owed = _NO_BUCKET if bucket is None else _OWED.pack(*bucket.owed)
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
    return SavedProducerIds(saved, name=name).producer_ids(like)


def saved_rates(saved: bytes, *, name: str) -> SavedRates:
    """Whose quotas there were, as ``to_bytes`` was told.

    Raises:
        CorruptDataError: as ``from_bytes``.
    """
    return SavedProducerIds(saved, name=name).rates


class SavedProducerIds:
    """What ``to_bytes`` has made, read one field after the other; a digest that fits is no proof that the fields do.

    Args:
        saved: of ``to_bytes``.
        name: of the file, for errors.

    Attributes:
        rates: of the users whose ids follow, and of others.

    Raises:
        CorruptDataError: it is something else; names the place.
    """

    def __init__(self, saved: bytes, *, name: str) -> None:
        body = memoryview(saved)[:-_DIGEST_BYTES]
        if not saved.startswith(_MAGIC):
            msg = f"{name}: does not begin as saved producer ids do; what is known was lost"
            raise CorruptDataError(msg)
        if _digest(body) != saved[-_DIGEST_BYTES:]:
            msg = f"{name}: {len(saved)} bytes that are cut or damaged; what is known was lost"
            raise CorruptDataError(msg)
        self._body = body
        self._name = name
        self._at = len(_MAGIC)
        self._head = _HEAD.unpack_from(body, self._part(_HEAD.size))
        rates: int = self._head[-2]
        self.rates: SavedRates = dict(self._rate() for _ in range(rates))
        self._users_at = self._at

    def producer_ids(self, like: ProducerIds) -> ProducerIds:
        """What was known; ``from_bytes`` says more.

        Raises:
            CorruptDataError: fields of it make no sense.
        """
        hash_key, learns_until_ms, window_ms, layers, probability, _, users = self._head
        self._at = self._users_at
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

    def _rate(self) -> tuple[str | None, SavedRate]:
        name_bytes, is_default, rate, learns_until_ms = _RATE.unpack_from(
            self._body, self._part(_RATE.size)
        )
        user = self._name_of(name_bytes)
        return None if is_default else user, SavedRate(self._limit(rate), learns_until_ms)

    def _limit(self, rate: float) -> float | None:
        if rate != _NO_RATE and not rate >= 0.0:
            self._fail(f"a rate of {rate}")
        return None if rate == _NO_RATE else rate

    def _name_of(self, length: int) -> str:
        try:
            return str(self._bytes(length), "utf-8", "surrogatepass")
        except UnicodeDecodeError as fault:
            self._fail(str(fault))

    def _take_user(self, ids: ProducerIds) -> None:
        name_bytes, rate, last_ms, generation, has_bucket, owed, layers = _USER.unpack_from(
            self._body, self._part(_USER.size)
        )
        user = self._name_of(name_bytes)
        of_user = ids.new_user(self._limit(rate), last_ms)
        of_user.restore([self._layer() for _ in range(layers)], generation)
        if has_bucket and not of_user.restore_owed(*_OWED.unpack(owed)):
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


def _encoded(user: str) -> bytes:
    """A user name may hold half a surrogate pair, which is no UTF-8."""
    return user.encode("utf-8", "surrogatepass")


def _told(rate: float | None) -> float:
    return _NO_RATE if rate is None else rate


def _digest(body: bytes | bytearray | memoryview) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES, usedforsecurity=False).digest()
