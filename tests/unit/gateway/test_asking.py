"""Questions to the quota callback, asked on other threads, while the loop goes on."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from tests.unit.gateway.world import until

from kvota.gateway import asking as asking_module
from kvota.gateway.asking import CAUSES_MAX, THREADS_MAX, Asking
from kvota.model.errors import UnreachableError


class Callback:
    """Answers with the thread's name; waits at its gate, fails, or leaves, where it is told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def tags_of(self, text: str) -> str:
        self.calls.append(text)
        self.gate.wait(20)
        if text.startswith("fail"):
            msg = f"no such user: {text}"
            raise LookupError(msg)
        if text == "leave":
            sys.exit("enough")
        return threading.current_thread().name


@dataclass(frozen=True)
class Question:
    text: str

    def ask(self, callback: Callback, /) -> tuple[str, str]:
        if self.text == "badly put":
            raise TypeError(self.text)
        return self.text, callback.tags_of(self.text)


@pytest.fixture
def callback() -> Callback:
    return Callback()


@pytest.fixture
async def asking(callback: Callback) -> AsyncIterator[Asking]:
    asking = Asking(callback, asyncio.get_running_loop())
    yield asking
    callback.gate.set()
    asking.stop()
    for thread in asking._threads:
        await asyncio.to_thread(thread.join, 10)


async def test_a_question_is_answered_from_another_thread(asking: Asking) -> None:
    text, thread = await asking.ask(Question("alice"))  # type: ignore[misc]

    assert text == "alice"
    assert thread == "kvota-callback"


async def test_what_many_ask_at_the_same_time_is_asked_once(
    asking: Asking, callback: Callback
) -> None:
    callback.gate.clear()
    answers = [asking.ask(Question("alice")) for _ in range(50)]
    await until(lambda: callback.calls)

    callback.gate.set()

    assert {await answer for answer in answers} == {("alice", "kvota-callback")}
    assert callback.calls == ["alice"]


async def test_what_has_been_answered_is_asked_anew(asking: Asking, callback: Callback) -> None:
    await asking.ask(Question("alice"))
    await asking.ask(Question("alice"))

    assert callback.calls == ["alice", "alice"]


async def test_a_callback_that_hangs_takes_so_many_threads_and_no_more(
    asking: Asking, callback: Callback
) -> None:
    callback.gate.clear()
    answers = [asking.ask(Question(str(number))) for number in range(20)]
    await until(lambda: len(callback.calls) == THREADS_MAX)
    await asyncio.sleep(0.05)
    assert len(callback.calls) == len(asking._threads) == THREADS_MAX

    callback.gate.set()

    answered = await asyncio.gather(*answers)
    assert [text for text, _ in answered] == [str(number) for number in range(20)]  # type: ignore[misc]


async def test_one_who_has_left_is_told_nothing_and_the_others_are(
    asking: Asking, callback: Callback
) -> None:
    callback.gate.clear()
    gone, here = asking.ask(Question("alice")), asking.ask(Question("alice"))
    told: list[object] = []
    gone.add_done_callback(lambda future: told.append(future.cancelled()))

    gone.cancel()
    callback.gate.set()

    assert await here == ("alice", "kvota-callback")
    assert told == [True]
    assert not asking._waiting


async def test_what_the_callback_raises_is_the_answer_and_is_logged_once(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [await asking.ask(Question("fail")) for _ in range(3)]

    assert [type(answer) for answer in answers] == [LookupError] * 3
    assert caplog.messages == [
        "the quota callback Callback failed in tags_of: LookupError('no such user: fail')"
    ]


async def test_each_cause_is_logged(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    await asking.ask(Question("fail 1"))
    await asking.ask(Question("fail 2"))
    await asking.ask(Question("badly put"))

    assert len(caplog.messages) == 3
    assert "failed in ask: TypeError('badly put')" in caplog.messages[2]


async def test_causes_without_end_do_not_fill_the_log(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.gather(*(asking.ask(Question(f"fail {n}")) for n in range(2 * CAUSES_MAX)))

    assert len(caplog.messages) == CAUSES_MAX + 1
    assert caplog.messages[-1].endswith("further ones are not logged")


async def test_a_callback_that_leaves_the_process_does_not_even_leave_its_thread(
    asking: Asking,
) -> None:
    answer = await asking.ask(Question("leave"))

    assert isinstance(answer, RuntimeError)
    assert str(answer) == "SystemExit: enough"
    assert await asking.ask(Question("alice")) == ("alice", "kvota-callback")


async def test_questions_that_wait_are_bounded(
    asking: Asking, callback: Callback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_module, "QUESTIONS_MAX", 3)
    callback.gate.clear()
    answers = [asking.ask(Question(str(number))) for number in range(3)]

    refused = await asking.ask(Question("one too many"))
    shared = asking.ask(Question("0"))
    callback.gate.set()

    assert isinstance(refused, UnreachableError)
    assert "3 questions wait for the quota callback" in str(refused)
    assert [text for text, _ in await asyncio.gather(*answers, shared)] == ["0", "1", "2", "0"]  # type: ignore[misc]


async def test_an_answer_that_comes_after_the_end_is_dropped(
    asking: Asking, callback: Callback, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    callback.gate.clear()
    answer = asking.ask(Question("alice"))
    await until(lambda: callback.calls)

    asking.stop()
    callback.gate.set()
    (thread,) = asking._threads
    await asyncio.to_thread(thread.join, 10)
    await asyncio.sleep(0)

    assert not answer.done()
    assert [record for record in caplog.records if record.name.startswith("kvota")] == []


ENDS_WHILE_A_CALLBACK_HANGS = """
import asyncio, threading
from kvota.gateway.asking import Asking

class Question:
    def ask(self, callback):
        print("asked", flush=True)
        threading.Event().wait()

async def main():
    asking = Asking(None, asyncio.get_running_loop())
    asking.ask(Question())
    await asyncio.sleep(0.2)
    asking.stop()

asyncio.run(main())
"""


def test_a_callback_that_hangs_does_not_keep_the_process_alive() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_WHILE_A_CALLBACK_HANGS],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "asked\n", "")


async def test_an_answer_that_comes_when_the_loop_is_gone_is_dropped() -> None:
    callback = Callback()
    callback.gate.clear()

    def ask_and_end() -> Callable[[], None]:
        loop = asyncio.new_event_loop()
        asking = Asking(callback, loop)
        asking.ask(Question("alice"))
        loop.close()
        callback.gate.set()
        asking.stop()
        return lambda: asking._threads[0].join(10)

    join = await asyncio.to_thread(ask_and_end)
    await asyncio.to_thread(join)

    assert callback.calls == ["alice"]
