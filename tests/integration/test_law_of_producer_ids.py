"""The law on what a gateway has recorded of new producer ids: real clients, another quota, and a restart meanwhile."""

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from tests.oracle.recorded_ids import rows_of

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.pipeline.law_check import LAW_COLUMNS
from kvota.pipeline.law_stage import compared_rows

_QUOTAS = "[[quota]]\nuser_default = true\nproducer_ids_rate = {}\n"
# A stop and a start fit well into what is owed before them.
_WINDOW_S = 60
_SETTINGS = {"producer.id.quota.window.size.seconds": _WINDOW_S}
# Under the first quota an id comes back in half a minute, so the third is refused; under the second one in two seconds.
_BEFORE, _AFTER = 2, 30.5


def crash_loop(servers: str, topic: str, times: int) -> None:
    """A new idempotent producer for each record, which does not wait for long."""
    for number in range(times):
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.produce(topic, str(number).encode())
        producer.flush(3)
        producer.purge()


@pytest.mark.parametrize("enforced", [True, False])
def test_every_decision_about_producer_ids_follows_from_the_record(
    kafka: LocalKafka, tmp_path: Path, *, enforced: bool
) -> None:
    topic = f"ids-law-{uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=1)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"PRODUCER_ID": enforced},
        record="record",
        kafka=_SETTINGS,
    )
    with GatewayProcess(tmp_path, config=config, quotas=_QUOTAS.format(_BEFORE)) as gateway:
        crash_loop(gateway.bootstrap_servers, topic, 3)
        gateway.reload(_QUOTAS.format(_AFTER))
        crash_loop(gateway.bootstrap_servers, topic, 4)
    with GatewayProcess(tmp_path, config=config, quotas=_QUOTAS.format(_AFTER)) as gateway:
        crash_loop(gateway.bootstrap_servers, topic, 4)

    record = pa.concat_tables(
        pq.read_table(file) for file in (tmp_path / "record").glob("*.parquet")
    )
    of_ids = record.filter(pc.equal(record["quota_type"], "PRODUCER_ID"))
    rows = [
        row for batch in compared_rows(rows_of([of_ids], LAW_COLUMNS)) for row in batch.to_pylist()
    ]
    assert len(rows) == of_ids.num_rows >= 6
    assert [row for row in rows if row["equal"] is not True] == []
    assert len({row["limit"] for row in rows}) == 2
    assert {row["outcome"] for row in rows} == {"admitted", "rejected"}
    owed_ms = of_ids.filter(pc.is_valid(of_ids["owed_ms"]))
    # Each run has one beginning; the second one goes on with what was owed.
    assert len(owed_ms) == len(set(owed_ms["run_id"].to_pylist())) == 2
    owed = owed_ms["owed_ms"].to_pylist()
    assert min(owed) == -1_000 * _WINDOW_S < max(owed)
