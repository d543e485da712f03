"""Which batches were refused whose like must not go on before they do.

A client that has several batches of a partition in flight takes the acknowledgement of a later one for that of
all before it, and a broker that knows nothing of a producer id takes any first sequence number. So where a batch
was refused, what its producer has sent behind it for the same partition is refused, too, until that first one
has come again and the broker has it, or the producer begins anew with a higher epoch.
"""

from collections import OrderedDict
from typing import NamedTuple

# How long a refusal is remembered after that batch came last: clients give up their requests after minutes.
FORGET_AFTER_MS = 3_600_000
# Behind so long a newer connection shows that the batch will not come: its client, which sends what is not answered in
# order, has had it taken elsewhere, or has given it up. Twice as long as such a client is kept back at a time.
ELSEWHERE_AFTER_MS = 60_000
# Some 300 bytes each, and twice that with the longest name of a topic (249 bytes); longer ones never come here.
OF_USER_MAX = 10_000
ALL_MAX = 200_000

# Sequence numbers go from 0 to 2**31 - 1 and begin anew; of two numbers the nearer way says which is the later.
_SEQUENCES, _HALF = 1 << 31, 1 << 30
_NOBODY = 0

Key = tuple[int, bytes, int]
"""Producer id, topic, partition."""


class Refusal:
    """The first batch of a producer that was refused in a partition.

    Attributes:
        epoch: of the producer.
        base_sequence: of that batch.
        connection: of which it has gone on meanwhile, and is not answered; 0: it has not.
        last_ms: when that batch came last, and was refused or went on.
        newest: of the connections on which it has come.
    """

    __slots__ = ("base_sequence", "connection", "epoch", "last_ms", "newest")

    def __init__(self, epoch: int, base_sequence: int, last_ms: int, newest: int) -> None:
        self.epoch = epoch
        self.base_sequence = base_sequence
        self.connection = _NOBODY
        self.last_ms = last_ms
        self.newest = newest

    def is_elsewhere(self, connection: int, now_ms: int) -> bool:
        """True where its client has begun anew on a newer connection, and not with it."""
        return (
            connection > self.newest
            and self.connection == _NOBODY
            and now_ms - self.last_ms >= ELSEWHERE_AFTER_MS
        )

    def keeps_back(self, epoch: int, base_sequence: int) -> bool:
        """True for a batch that comes behind it, or is of an epoch before it."""
        if epoch != self.epoch:
            return epoch < self.epoch
        behind = (base_sequence - self.base_sequence) % _SEQUENCES
        return 0 < behind < _HALF


class Batch(NamedTuple):
    """What is asked about one."""

    key: Key
    epoch: int
    base_sequence: int


class RefusedBatches:
    """The refusals of all users that still keep something back.

    Attributes:
        users: those of each user, in the order in which their batches came last; those that ``sweep`` has not looked
            at for longest first.
        count: how many there are.
    """

    __slots__ = ("_all_max", "_of_ids", "_of_user_max", "count", "users")

    def __init__(self, *, of_user_max: int = OF_USER_MAX, all_max: int = ALL_MAX) -> None:
        self._of_user_max = of_user_max
        self._all_max = all_max
        self.users: OrderedDict[str, dict[Key, Refusal]] = OrderedDict()
        self.count = 0
        self._of_ids: dict[tuple[str, int], int] = {}

    def concern(self, user: str, producer_id: int) -> bool:
        """True where a batch of this producer has to be asked about, in whatever partition."""
        return (user, producer_id) in self._of_ids

    def keeps_back(self, user: str, batch: Batch, connection: int, now_ms: int) -> bool:
        """True where a batch must be refused, whatever its quota says: until the broker has the one before it.

        Args:
            user: whose it is.
            batch: that has come.
            connection: it has come on, 1 or more; a later one has a higher number.
            now_ms: Unix ms.
        """
        refusal = self._of(user, batch.key)
        # What is kept back does not make the hour longer: a batch that its client has given up would block for ever.
        if refusal is None or not refusal.keeps_back(batch.epoch, batch.base_sequence):
            return False
        if batch.epoch != refusal.epoch or not refusal.is_elsewhere(connection, now_ms):
            return True
        self._forget(user, batch.key)
        return False

    def refuse(self, user: str, batch: Batch, connection: int, now_ms: int) -> bool:
        """Remember a batch that ``keeps_back`` has let pass, and its quota has not.

        Returns:
            False: there is no place for it, so it must not be answered.
        """
        refusals = self.users.get(user, {})
        before = refusals.pop(batch.key, None)
        if before is None:
            if len(refusals) >= self._of_user_max or self.count >= self._all_max:
                return False
            self.count += 1
            of_id = user, batch.key[0]
            self._of_ids[of_id] = self._of_ids.get(of_id, 0) + 1
        refusals[batch.key] = Refusal(
            batch.epoch,
            batch.base_sequence,
            now_ms,
            connection if before is None else max(connection, before.newest),
        )
        self.users[user] = refusals
        return True

    def goes_on(self, user: str, batch: Batch, connection: int, now_ms: int) -> bool:
        """One that may go on does; true where it was awaited: ``answered`` or ``abandoned`` is due for its key.

        What comes behind it does not follow before it is answered: a broker that refuses it may take the next one.

        Args:
            user: whose it is.
            batch: that goes on.
            connection: on which, 1 or more.
            now_ms: Unix ms.
        """
        refusal = self._of(user, batch.key)
        if refusal is None:
            return False
        if batch.epoch == refusal.epoch and batch.base_sequence != refusal.base_sequence:
            return False  # one before it, or one that follows it
        refusal.epoch, refusal.base_sequence = batch.epoch, batch.base_sequence
        refusal.connection = connection
        refusal.newest = max(connection, refusal.newest)
        refusal.last_ms = now_ms
        refusals = self.users[user]
        refusals[batch.key] = refusals.pop(batch.key)
        return True

    def answered(self, user: str, key: Key, connection: int) -> None:
        """The broker has one that went on: from now on it looks after what follows."""
        refusal = self._of(user, key)
        if refusal is not None and refusal.connection == connection:
            self._forget(user, key)

    def abandoned(self, user: str, key: Key, connection: int) -> None:
        """The broker may not have it: it has to come again before what follows."""
        refusal = self._of(user, key)
        if refusal is not None and refusal.connection == connection:
            refusal.connection = _NOBODY

    def sweep(self, now_ms: int, *, at_most: int) -> None:
        """Forget, of so many at most, what has not come again for an hour; the next time at the next users."""
        users = self.users
        for _ in range(min(at_most, len(users))):
            user, refusals = users.popitem(last=False)
            users[user] = refusals
            while at_most > 0 and refusals:
                at_most -= 1
                key, refusal = next(iter(refusals.items()))
                if now_ms - refusal.last_ms < FORGET_AFTER_MS:
                    break
                self._forget(user, key)
            if at_most <= 0:
                return

    def _of(self, user: str, key: Key) -> Refusal | None:
        return self.users.get(user, {}).get(key)

    def _forget(self, user: str, key: Key) -> None:
        refusals = self.users[user]
        del refusals[key]
        self.count -= 1
        of_id = user, key[0]
        self._of_ids[of_id] -= 1
        if not self._of_ids[of_id]:
            del self._of_ids[of_id]
        if not refusals:
            del self.users[user]
