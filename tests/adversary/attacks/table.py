"""All attacks, for the tests of this folder and for ``./run bench adversary``."""

from tests.adversary.attacks import (
    doors,
    fetches,
    floods,
    logins,
    mutations,
    places,
    produces,
    room,
    sharers,
    unread,
)
from tests.adversary.target import Attack

_ALL = (
    *logins.ATTACKS,
    *fetches.ATTACKS,
    *produces.ATTACKS,
    *doors.ATTACKS,
    *mutations.ATTACKS,
    *places.ATTACKS,
    *room.ATTACKS,
    *floods.ATTACKS,
    *sharers.ATTACKS,
    *unread.ATTACKS,
)

ATTACKS: dict[str, Attack] = {attack.name: attack for attack in _ALL}
assert len(ATTACKS) == len(_ALL), "two attacks have one name"
