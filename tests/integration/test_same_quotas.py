"""Thousands of random alterations: every answer is the broker's, and all end with its quotas, whatever keeps them."""

import os
from pathlib import Path

import pytest
from tests.integration.same_quotas import SameQuotas

from kvota.localkafka import LocalKafka

# Another number for a longer run: 10,000 are what the endurance benchmark does.
ALTERATIONS = int(os.environ.get("KVOTA_ALTERATIONS", "700"))


@pytest.mark.timeout(180 + ALTERATIONS // 20)
def test_every_answer_is_the_brokers_and_so_are_the_quotas_at_the_end(
    quota_kafka: LocalKafka, tmp_path: Path
) -> None:
    with SameQuotas(quota_kafka, tmp_path, "same-quotas") as same:
        same.run(ALTERATIONS)
        logs = [process.log for process in same.processes.values()]

    assert same.altered >= ALTERATIONS
    assert same.entities > 10
    assert not [line for log in logs for line in log.splitlines() if " ERROR " in line]
