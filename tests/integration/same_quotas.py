"""The same alterations to a broker and to gateways: each answer is the broker's, and so are the quotas at the end."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.integration.alteration_strategies import (
    ALTERATIONS,
    DESCRIPTIONS,
    Alteration,
    Description,
)
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import (
    address,
    asked,
    cleaned,
    entries_of,
    gateway,
    same_description,
)
from tests.unit.quota_api.written import alteration, altered, description

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka

EVERYTHING = description(strict=False)
_READY_S = 60.0
# Drawn in one go.
_EXAMPLES = 10


class SameQuotas:
    """A broker and gateways, one for each store, ready on entry.

    Attributes:
        altered: how many entries were sent to each of them.
        answers: how many answers were compared.
        entities: how many had quotas at the end of an example, at most.
    """

    def __init__(self, kafka: LocalKafka, folder: Path, topic: str) -> None:
        self.altered = self.answers = self.entities = 0
        self._kafka = kafka
        self.processes: Mapping[str, GatewayProcess] = {
            "file": gateway(folder / "file", kafka.bootstrap_servers),
            "topic": gateway(folder / "topic", kafka.bootstrap_servers, source="topic"),
        }
        path = folder / "topic" / "gateway.toml"
        path.write_text(path.read_text().replace("[quotas]", f'[quotas]\ntopic = "{topic}"'))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for process in self.processes.values():
            self._stack.enter_context(process)
        self._direct = self._stack.enter_context(RawClient(self._kafka.nodes[0].address))
        self._clients = {
            store: self._stack.enter_context(RawClient(address(process)))
            for store, process in self.processes.items()
        }
        nothing = alteration(({"user": "nobody"}, {"producer_byte_rate": None}))
        end = time.monotonic() + _READY_S
        # One that has not read its topic yet refuses alterations.
        while altered(asked(self._clients["topic"], nothing))[0][1]:
            assert time.monotonic() < end, self.processes["topic"].log[-3_000:]
            time.sleep(0.02)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def run(self, count: int) -> None:
        """So many alterations, or a few more, drawn by Hypothesis.

        Raises:
            AssertionError: a gateway has not answered, or kept, what the broker has; with the least requests that show it.
        """

        @settings(
            max_examples=_EXAMPLES,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(ALTERATIONS, max_size=4), st.lists(DESCRIPTIONS, max_size=3))
        def same(requests: Sequence[Alteration], descriptions: Sequence[Description]) -> None:
            self.one(requests, descriptions)

        while self.altered < count:
            same()

    def one(self, requests: Sequence[Alteration], descriptions: Sequence[Description]) -> None:
        """From nothing; at the end all describe the same."""
        for client in self._direct, *self._clients.values():
            cleaned(client)
        for request in requests:
            frame = request.frame
            straight = asked(self._direct, frame)
            for store, client in self._clients.items():
                assert asked(client, frame) == straight, (store, request)
                self.answers += 1
            self.altered += len(request.entries)
        for client in self._clients.values():
            same_description(self._direct, client, EVERYTHING, 1)
            for each in descriptions:
                same_description(self._direct, client, each.frame, each.version)
            self.answers += 1 + len(descriptions)
        found = entries_of(asked(self._direct, EVERYTHING), 1)[2]
        self.entities = max(self.entities, len(found))
