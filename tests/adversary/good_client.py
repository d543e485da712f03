"""A client that does what it should, beside an attack, in a process of its own: how long does it wait?

    python -m tests.adversary.good_client HOST PORT TOPIC VALUE_BYTES PACE_S RECONNECTS [USER SECRET]

One Produce after the other on one connection, or on a new one each (RECONNECTS is 1), the next ``PACE_S`` after the answer. It prints a line
"began" behind its first answer, and its waits as JSON when its standard input ends; a number there is of answers that it
is to have had by then. A wait is from when
a request was first tried to its answer, over as many connections as that took; one that is not over at
the end counts for as long as it has lasted.
"""

import asyncio
import contextlib
import json
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.adversary.frames import error_of_produce, metadata, plain_login, produce
from tests.adversary.wire_client import Lost, WireClient

from kvota.model.errors import UnreachableError

CLIENT_ID = "good"
# Without logins an address is all that tells clients apart; only Linux has more than one of its own without ado.
FROM_HOST = "127.0.0.2" if sys.platform == "linux" else None
_ROOT = Path(__file__).parents[2]
_RECONNECT_S = 0.02
_BEGIN_S = 30.0
_LONGER_S, _LOOK_S = 30.0, 0.02


@dataclass(frozen=True)
class Waits:
    """Of a good client: how many answers, and how long it waited for them."""

    answers: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    reconnects: int


@dataclass(frozen=True)
class GoodLoad:
    """What a good client sends: the size of one record, and the pause behind an answer.

    Attributes:
        value_bytes: of a record; 0: it asks for Metadata, which every broker answers.
        reconnects: every request has a connection of its own.
    """

    value_bytes: int = 1_000
    pace_s: float = 0.01
    reconnects: bool = False


class GoodClient:
    """The process; it has had its first answer on entry."""

    def __init__(
        self, address: tuple[str, int], topic: str, load: GoodLoad, login: tuple[str, str] | None
    ) -> None:
        host, port = address
        self._command = [
            *(sys.executable, "-m", "tests.adversary.good_client", host, str(port)),
            *(topic, str(load.value_bytes), str(load.pace_s), str(int(load.reconnects))),
            *(login or ()),
        ]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        told = self._process.stdout
        assert told is not None
        answer = select.poll()
        answer.register(told, select.POLLIN)
        if not answer.poll(_BEGIN_S * 1000) or told.readline() != "began\n":
            self.__exit__(None, None, None)
            msg = f"the good client had no answer in {_BEGIN_S:g} s"
            raise UnreachableError(msg)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def waits(self, *, answers_min: int = 0) -> Waits:
        """Ends it, behind so many answers; it waits half a minute for them where it has had fewer so far."""
        assert self._process is not None
        told, _ = self._process.communicate(str(answers_min), timeout=_LONGER_S + 30)
        assert told, f"the good client has ended with code {self._process.returncode}"
        found = json.loads(told)
        waits_ms = sorted(found["waits_ms"])
        return Waits(
            answers=found["answers"],
            p50_ms=waits_ms[len(waits_ms) // 2],
            p99_ms=waits_ms[int(len(waits_ms) * 0.99)],
            worst_ms=waits_ms[-1],
            reconnects=found["reconnects"],
        )


class _Sender:
    def __init__(
        self, address: tuple[str, int], request: bytes, load: GoodLoad, login: bytes
    ) -> None:
        self._address, self._request, self._load = address, request, load
        self._login = login
        self.waits_ms: list[float] = []
        self.reconnects = -1
        self.since_s: float | None = None

    async def run(self) -> None:
        while True:
            self.since_s = self.since_s or time.perf_counter()
            self.reconnects += 1
            client: WireClient | None = None
            try:
                client = await WireClient.to(self._address, from_host=FROM_HOST)
                if self._login:
                    await client.ask(self._login)  # of the handshake
                    await client.answer()
                await self._one(client)
                while not self._load.reconnects:
                    await self._one(client)
            except (*Lost, OSError):
                await asyncio.sleep(_RECONNECT_S)
            finally:
                if client is not None:
                    client.abort()

    async def _one(self, client: WireClient) -> None:
        self.since_s = self.since_s or time.perf_counter()
        answer = await client.ask(self._request)
        if self._load.value_bytes and error_of_produce(answer):
            return  # sent again, as every producer does, and the wait goes on
        self.waits_ms.append((time.perf_counter() - self.since_s) * 1000)
        self.since_s = None
        if len(self.waits_ms) == 1:
            sys.stdout.write("began\n")
            sys.stdout.flush()
        await asyncio.sleep(self._load.pace_s)


async def _main() -> None:
    host, port, topic, value_bytes, pace_s, reconnects, *login = sys.argv[1:]
    load = GoodLoad(int(value_bytes), float(pace_s), reconnects == "1")
    if load.value_bytes:
        request = produce(topic, load.value_bytes, client_id=CLIENT_ID)
    else:
        request = metadata(client_id=CLIENT_ID)
    sent_first = plain_login(login[0], login[1], client_id=CLIENT_ID) if login else b""
    sender = _Sender((host, int(port)), request, load, sent_first)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(sender.run())
        answers_min = int(await loop.run_in_executor(None, sys.stdin.read) or 0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGER_S):
                while len(sender.waits_ms) < answers_min:  # noqa: ASYNC110  (nothing tells)
                    await asyncio.sleep(_LOOK_S)
        sending.cancel()
    waits_ms, answers = sender.waits_ms, len(sender.waits_ms)
    if sender.since_s is not None:
        waits_ms.append((time.perf_counter() - sender.since_s) * 1000)
    found = {"waits_ms": waits_ms, "answers": answers, "reconnects": sender.reconnects}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(_main())
