"""Four client libraries, ten connections each, that offer ten times what ``token_bucket`` lets through.

Their time-outs are those that they have by default, and their requests cost so much of the limit that some
wait in line for longer than the 25 s after which the gateway closes the connection.
"""

from collections import Counter

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.integration.overload.crowds import CROWDS, LIBRARIES, Crowd, Offer, Run, run_crowds

from kvota.localkafka import LocalKafka

pytestmark = pytest.mark.timeout(300)

# Each request takes 3 s of the limit, a round of ten 30 s: more than half of the second ones wait for
# over 25 s. All take a minute, and what is in line then is sent again by no client for another reason.
OFFER = Offer(limit=4_000, record_bytes=12_000, seconds=6, end_s=200.0)


@pytest.fixture(scope="module")
def run(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_crowds(kafka, tmp_path_factory.mktemp("over-their-limit"), OFFER)


@pytest.mark.parametrize("crowd", CROWDS, ids=lambda crowd: crowd.name)
def test_each_record_is_delivered_once_or_reported_as_failed(run: Run, crowd: Crowd) -> None:
    seen = run.seen[crowd]

    assert {*seen.delivered, *seen.failed} == OFFER.keys
    assert len(seen.delivered) + len(seen.failed) == len(OFFER.keys)
    # Nothing that was reported as delivered is missing; what is closed in line was never forwarded, so
    # a client that sends it again, idempotent or not, does not write it twice.
    assert set(seen.delivered) <= set(seen.log)
    assert [key for key, times in Counter(seen.log).items() if times > 1] == []


def test_they_were_held_back_for_longer_than_clients_wait_in_line(run: Run) -> None:
    rows = pq.read_table(run.record)
    for library in LIBRARIES:
        of_library = rows.filter(pc.starts_with(rows["client_id"], library + "-"))
        waits = of_library.filter(pc.equal(of_library["outcome"], "rejected"))
        charged = of_library.filter(pc.not_equal(of_library["outcome"], "rejected"))
        first_us, last_us = (bound.as_py() for bound in pc.min_max(charged["ts_us"]).values())

        assert waits.num_rows > 0, library
        assert last_us - first_us > 25_000_000, library
    assert "a request has waited 25 s for its turn" in run.log
