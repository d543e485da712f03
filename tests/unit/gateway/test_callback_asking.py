"""Questions to the quota callback, asked on other threads, while the loop goes on."""

import asyncio
import logging
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from tests.unit.gateway.world import until

from kvota.gateway import callback_asking as module
from kvota.gateway.callback_asking import THREADS_AT_ONCE, THREADS_MAX, CallbackAsking
from kvota.gateway.callback_faults import CAUSES_MAX, CallbackFaults, FaultCounts
from kvota.model.errors import CallbackError


class Callback:
    """Answers with the thread's name; waits at its gate, fails, or leaves, where it is told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def tags_of(self, text: str) -> str:
        self.calls.append(text)
        if text != "quick":
            self.gate.wait(20)
        if text.startswith("fail") or text == "type":
            msg = f"no such user: {text}"
            raise (OSError if text == "type" else LookupError)(msg)
        if text == "line":
            raise LookupError(text)
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


class Asked(CallbackAsking):
    """Keeps the answers, in their order."""

    def __init__(self, callback: Callback, loop: asyncio.AbstractEventLoop) -> None:
        self.counted = FaultCounts()
        self.faults = CallbackFaults(callback, self.counted)
        self.answers: list[tuple[object, object]] = []
        super().__init__(
            callback,  # type: ignore[arg-type]
            loop,
            faults=self.faults,
            answered=lambda question, answer: self.answers.append((question, answer)),
        )

    async def asked(self, *texts: str) -> list[object]:
        """Ask for these, and wait for as many answers."""
        count = len(self.answers) + len(texts)
        for text in texts:
            assert self.ask(Question(text)) == ""  # type: ignore[arg-type]
        await until(lambda: len(self.answers) >= count)
        return [answer for _, answer in self.answers[-len(texts) :]]


@pytest.fixture
def callback() -> Callback:
    return Callback()


@pytest.fixture
async def asking(callback: Callback) -> AsyncIterator[Asked]:
    asking = Asked(callback, asyncio.get_running_loop())
    yield asking
    callback.gate.set()
    threads = list(asking._threads)
    asking.stop()
    for thread in threads:
        await asyncio.to_thread(thread.join, 10)


async def test_a_question_is_answered_from_another_thread(asking: Asked) -> None:
    (answer,) = await asking.asked("alice")

    assert answer == ("alice", "kvota-callback")


async def test_what_is_being_asked_is_not_asked_once_more(
    asking: Asked, callback: Callback
) -> None:
    callback.gate.clear()
    for _ in range(50):
        asking.ask(Question("alice"))  # type: ignore[arg-type]
    await until(lambda: callback.calls)

    callback.gate.set()

    await until(lambda: asking.answers)
    assert callback.calls == ["alice"]
    await asking.asked("alice")
    assert callback.calls == ["alice", "alice"]


async def test_who_waits_comes_before_what_is_asked_again(
    asking: Asked, callback: Callback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "THREADS_AT_ONCE", 1
    )  # else one may overtake the other behind the line
    asking.hold()
    asking.ask_again([Question("old"), Question("older")])  # type: ignore[list-item]
    asking.ask(Question("new"))  # type: ignore[arg-type]
    asking.ask(Question("older"))  # type: ignore[arg-type]

    asking.release()

    await until(lambda: len(asking.answers) == 3)
    assert callback.calls == ["new", "older", "old"]


async def test_nothing_is_asked_while_it_is_being_told(asking: Asked, callback: Callback) -> None:
    asking.hold()
    asking.ask(Question("alice"))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    assert callback.calls == []

    asking.release()

    await until(lambda: asking.answers)


async def test_a_callback_that_is_slow_gets_more_threads_and_one_that_hangs_no_more_than_so_many(
    asking: Asked,
    callback: Callback,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HANGS_S", 60.0)  # nothing is said of what is only slow
    callback.gate.clear()
    for number in range(2 * THREADS_MAX):
        asking.ask(Question(str(number)))  # type: ignore[arg-type]
    await until(lambda: len(callback.calls) == THREADS_AT_ONCE)
    await asyncio.sleep(module._SLOW_S)
    assert len(callback.calls) == THREADS_AT_ONCE

    for _ in range(20):
        asking.look()
        await asyncio.sleep(0.01)

    await until(lambda: len(callback.calls) > THREADS_AT_ONCE)
    assert len(asking._threads) <= THREADS_MAX
    callback.gate.set()
    await until(lambda: len(asking.answers) == 2 * THREADS_MAX)
    assert caplog.messages == []


async def test_others_are_answered_while_one_hangs_in_every_thread(
    asking: Asked, callback: Callback
) -> None:
    callback.gate.clear()
    for number in range(THREADS_AT_ONCE):
        asking.ask(Question(str(number)))  # type: ignore[arg-type]
    asking.ask(Question("quick"))  # type: ignore[arg-type]
    await until(lambda: len(callback.calls) == THREADS_AT_ONCE)

    await asyncio.sleep(module._SLOW_S)

    await until(lambda: (asking.look(), asking.answers)[1])
    assert asking.answers[0][0] == Question("quick")


async def test_who_hangs_is_said_once_with_method_and_line(
    asking: Asked,
    callback: Callback,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HANGS_S", 0.0)
    callback.gate.clear()
    for number in range(3):
        asking.ask(Question(str(number)))  # type: ignore[arg-type]
    await until(lambda: len(callback.calls) == 3)

    asking.look()
    asking.look()

    (message,) = caplog.messages
    assert re.search(
        r"the quota callback Callback has not come back from tags_of for \d+\.\d s", message
    )
    assert f"({__file__}:" in message
    assert asking.counted.by_method() == {"tags_of": 3}


async def test_when_every_thread_hangs_nobody_waits_for_another(
    asking: Asked, callback: Callback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "THREADS_MAX", 2)
    monkeypatch.setattr(module, "HANGS_S", 0.0)
    callback.gate.clear()
    asking.ask(Question("1"))  # type: ignore[arg-type]
    asking.ask(Question("2"))  # type: ignore[arg-type]
    await until(lambda: len(callback.calls) == 2)
    asking.look()

    assert asking.ask(Question("3")) == "the quota callback hangs in 2 threads"  # type: ignore[arg-type]

    callback.gate.set()
    await until(lambda: len(asking.answers) == 2)
    await asking.asked("3")


async def test_what_the_callback_raises_is_the_answer_and_is_logged_once(
    asking: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [*await asking.asked("fail"), *await asking.asked("fail")]

    assert [type(answer) for answer in answers] == [LookupError] * 2
    (message,) = caplog.messages
    assert message.startswith(f"the quota callback Callback failed in tags_of ({__file__}:")
    assert message.endswith("LookupError('no such user: fail')")
    assert asking.counted.by_method() == {"tags_of": 2}


async def test_each_cause_is_logged_once_whomever_its_text_names(
    asking: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    users = 2 * CAUSES_MAX
    for number in range(users):
        await asking.asked(f"fail user-{number}")
    # Another type at the same line, another line, and none of the callback's: each is another cause.
    for text in ("type", "line", "badly put", "type", "line", "badly put"):
        await asking.asked(text)

    words = [message.partition(": ")[2] for message in caplog.messages]
    assert words == [
        "LookupError('no such user: fail user-0')",
        "OSError('no such user: type')",
        "LookupError('line')",
        "TypeError('badly put')",
    ]
    assert "failed in ask: TypeError('badly put')" in caplog.messages[-1]
    assert asking.counted.by_method() == {"tags_of": users + 4, "ask": 2}


async def test_causes_without_end_do_not_fill_the_log(
    asking: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2 * CAUSES_MAX):
        asking.faults.note(type(f"Made{number}", (Exception,), {})(), "close")

    assert len(caplog.messages) == CAUSES_MAX + 1
    assert sum(text.endswith("further ones are not logged") for text in caplog.messages) == 1
    assert sum(asking.counted.by_method().values()) == 2 * CAUSES_MAX


async def test_nonsense_is_logged_once_by_what_is_wrong_with_it(
    asking: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        for method, answer, wanted in (
            ("quota_metric_tags", {"user": number}, "texts"),
            ("quota_limit", -number, "None or a number"),
            ("quota_limit", f"{number}MB/s", "None or a number"),
        ):
            asking.faults.note(CallbackError(asking.faults, method, answer, wanted))

    assert [message.partition(" answered ")[2] for message in caplog.messages] == [
        "{'user': 0}, not texts",
        "0, not None or a number",
        "'0MB/s', not None or a number",
    ]


async def test_a_callback_that_leaves_the_process_does_not_even_leave_its_thread(
    asking: Asked,
) -> None:
    (answer,) = await asking.asked("leave")

    assert isinstance(answer, SystemExit)
    assert await asking.asked("alice") == [("alice", "kvota-callback")]


async def test_questions_that_wait_are_bounded(
    asking: Asked, callback: Callback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUESTIONS_MAX", 3)
    callback.gate.clear()
    for number in range(3):
        asking.ask(Question(str(number)))  # type: ignore[arg-type]

    refused = asking.ask(Question("one too many"))  # type: ignore[arg-type]
    asking.ask_again([Question("another")])  # type: ignore[list-item]
    assert asking.ask(Question("0")) == ""  # type: ignore[arg-type]
    callback.gate.set()

    assert "3 questions wait for the quota callback" in refused
    await until(lambda: len(asking.answers) == 3)


async def test_many_answers_are_handed_on_some_at_a_time(asking: Asked) -> None:
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(asking.answers) < 1_000:
            asyncio.get_running_loop().call_soon(turn)

    asking.hold()
    asking.ask_again([Question(str(number)) for number in range(1_000)])  # type: ignore[misc]
    asyncio.get_running_loop().call_soon(turn)
    asking.release()

    await until(lambda: len(asking.answers) == 1_000)
    assert turns >= 5


async def test_an_answer_that_comes_after_the_end_is_dropped(
    asking: Asked, callback: Callback, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    callback.gate.clear()
    asking.ask(Question("alice"))  # type: ignore[arg-type]
    await until(lambda: callback.calls)
    (thread,) = asking._threads

    asking.stop()
    assert not asking.wait_until_idle(0.01)
    callback.gate.set()
    await asyncio.to_thread(thread.join, 10)
    await asyncio.sleep(0)

    assert asking.wait_until_idle(0)
    assert asking.answers == []
    assert [record for record in caplog.records if record.name.startswith("kvota")] == []


ENDS_WHILE_A_CALLBACK_HANGS = """
import asyncio, threading
from kvota.gateway.callback_asking import CallbackAsking
from kvota.gateway.callback_faults import CallbackFaults, FaultCounts

class Question:
    begun = threading.Event()

    def ask(self, callback):
        print("asked", flush=True)
        self.begun.set()
        threading.Event().wait()

async def main():
    loop = asyncio.get_running_loop()
    asking = CallbackAsking(None, loop, faults=CallbackFaults(None, FaultCounts()), answered=print)
    asking.ask(Question())
    while not Question.begun.is_set():
        await asyncio.sleep(0.01)
    asking.stop()

asyncio.run(main())
"""


def test_a_callback_that_hangs_does_not_keep_the_process_alive() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_WHILE_A_CALLBACK_HANGS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "asked\n", "")


async def test_an_answer_that_comes_when_the_loop_is_gone_is_dropped() -> None:
    callback = Callback()
    callback.gate.clear()

    def ask_and_end() -> Callable[[], None]:
        loop = asyncio.new_event_loop()
        asking = Asked(callback, loop)
        asking.ask(Question("alice"))  # type: ignore[arg-type]
        (thread,) = asking._threads
        loop.close()
        callback.gate.set()
        asking.stop()
        return lambda: thread.join(10)

    join = await asyncio.to_thread(ask_and_end)
    await asyncio.to_thread(join)

    assert callback.calls in ([], ["alice"])
