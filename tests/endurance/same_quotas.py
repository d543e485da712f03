"""Random alterations to a broker and to gateways: the same answers, and the same quotas at the end."""

from pathlib import Path

from tests.endurance.findings import Findings
from tests.integration.same_quotas import SameQuotas

from kvota.localkafka import LocalKafka


def run_same_quotas(kafka: LocalKafka, folder: Path, *, count: int) -> Findings:
    """So many alterations to the broker, to a gateway with a file and to one with a topic.

    Raises:
        AssertionError: one of the gateways has answered, or kept, what the broker has not.
    """
    with SameQuotas(kafka, folder, "same-quotas") as same:
        same.run(count)
    return Findings(
        {
            "alterations": same.altered,
            "answers compared, all equal": same.answers,
            "entities at the end, at most": same.entities,
        }
    )
