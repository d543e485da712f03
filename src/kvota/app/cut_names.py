"""Names that are too wide for a table: cut, but so that one is still told from another."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count

from kvota.app.text_width import columns_of, cut_between, cut_to


def fair_shares(wanted: Sequence[int], room: int) -> list[int]:
    """Share the room out: who wants little has all of it, the others have equal parts of what is left.

    >>> fair_shares([6, 100, 40], 46), fair_shares([6, 4], 46)
    ([6, 20, 20], [6, 4])
    """
    shares = [0] * len(wanted)
    by_width = sorted(range(len(wanted)), key=wanted.__getitem__)
    for done, place in enumerate(by_width):
        shares[place] = min(wanted[place], room // (len(wanted) - done))
        room -= shares[place]
    return shares


def cut_apart(texts: Sequence[str], columns: int) -> Mapping[str, str]:
    """What to show of each text in so many columns; different texts stay different.

    Those that would be cut to the same are cut in their middle, and numbered where their ends are the same, too.

    >>> cut_apart(["orders", "billing-eu-1", "shipping-eu-1", "shipping-eu-2"], 8).values()
    dict_values(['orders', 'billing…', 'ship…u-1', 'ship…u-2'])
    """
    shown = {text: text for text in texts if columns_of(text) <= columns}
    too_wide = list(dict.fromkeys(text for text in texts if text not in shown))
    ends = Counter(cut_to(text, columns) for text in too_wide)
    middles = Counter(cut_between(text, columns) for text in too_wide)
    taken = set(shown)
    for place, text in enumerate(too_wide, 1):
        cuts = ((cut_to(text, columns), ends), (cut_between(text, columns), middles))
        alone = [cut for cut, of_cut in cuts if of_cut[cut] == 1]
        numbered = (_numbered(text, columns, number) for number in count(place))
        shown[text] = next(way for way in chain(alone, numbered) if way not in taken)
        taken.add(shown[text])
    return shown


def _numbered(text: str, columns: int, number: int) -> str:
    mark = f"#{number}"
    return cut_to(text, columns - len(mark)) + mark
