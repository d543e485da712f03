"""Does something to many files in threads; Ctrl-C ends it at any moment.

Neither ``ThreadPoolExecutor`` nor ``threading.Thread`` does: where Ctrl-C comes while they start a thread or hand it work, a lock
of theirs may stay taken, and then their end waits for ever. ``SimpleQueue`` and ``_thread`` are C, which no signal divides.
"""

import _thread
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Done(Generic[_Result]):
    place: int
    results: tuple[_Result, ...] = ()
    error: BaseException | None = None


def in_threads(
    work: Callable[[_Item], _Result], items: Sequence[_Item], threads: int
) -> Iterator[_Result]:
    """Yield what ``work`` returns for each of the items, in their order; threads are ahead of who takes it.

    Raises:
        BaseException: what ``work`` has raised, in the place of its result; the items behind it are left.
    """
    told: SimpleQueue[_Done[_Result] | None] = SimpleQueue()  # None: a thread has ended
    left = iter(range(len(items)))  # each number is given to one thread
    is_over: list[bool] = []

    def run() -> None:
        for place in left:
            if is_over:
                break
            told.put(_done(work, items[place], place))
        told.put(None)

    running = 0
    early: dict[int, _Done[_Result]] = {}
    try:
        for _ in range(min(threads, len(items))):
            _thread.start_new_thread(run, ())
            running += 1
        for place in range(len(items)):
            while place not in early:
                done = told.get()
                if done is None:
                    running -= 1
                else:
                    early[done.place] = done
            one = early.pop(place)
            if one.error is not None:
                raise one.error
            yield from one.results
    finally:
        is_over.append(True)
        while running:
            running -= told.get() is None


def _done(work: Callable[[_Item], _Result], item: _Item, place: int) -> _Done[_Result]:
    try:
        return _Done(place, (work(item),))
    except BaseException as error:  # noqa: BLE001  (who takes the results gets it)
        return _Done(place, error=error)
