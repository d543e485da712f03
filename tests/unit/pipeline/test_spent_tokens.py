"""What one row of producer ids spends, also where it says that there were more than anybody has."""

import pytest

from kvota.engine.arithmetic import debt_with, id_gate_ms
from kvota.pipeline.kernels.producer_id_law import spend_tokens


@pytest.mark.parametrize(
    ("debt_ms", "count", "token_ms"), [(-60_000.0, 8.0, 5_000.0), (-900.0, 300.0, 7.3)]
)
def test_tokens_go_one_by_one_while_there_are_any(
    debt_ms: float, count: float, token_ms: float
) -> None:
    owed_ms, spent = debt_ms, 0
    while spent < count and not owed_ms > id_gate_ms(token_ms):
        owed_ms, spent = debt_with(owed_ms, 1.0, token_ms, 60_000.0), spent + 1

    assert spend_tokens(debt_ms, count, token_ms, 60_000.0) == (owed_ms, spent)


@pytest.mark.parametrize(
    ("count", "spent"), [(3.0, 3), (2.5, 3), (2.0**36, 2**36), (2.0**80, 2**62)]
)
def test_without_a_limit_all_are_spent_at_once(count: float, spent: int) -> None:
    assert spend_tokens(-5.0, count, 0.0, 10.0) == (-5.0, spent)


def test_more_than_anybody_has_are_not_counted_one_by_one() -> None:
    _, spent = spend_tokens(-1e12, 2.0**50, 1e-3, 1e12)

    assert spent == 1 << 24
