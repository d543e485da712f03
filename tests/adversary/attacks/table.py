"""All attacks, for the tests of this folder and for ``./run bench adversary``."""

from tests.adversary.attacks import produces
from tests.adversary.target import Attack

_ALL = (*produces.ATTACKS,)

ATTACKS: dict[str, Attack] = {attack.name: attack for attack in _ALL}
assert len(ATTACKS) == len(_ALL), "two attacks have one name"
