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
_SETTINGS = {"producer.id.quota.window.size.seconds": 6}


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
        producer.flush(1.5)
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
    with GatewayProcess(tmp_path, config=config, quotas=_QUOTAS.format(2)) as gateway:
        crash_loop(gateway.bootstrap_servers, topic, 4)
        gateway.reload(_QUOTAS.format(3.5))
        crash_loop(gateway.bootstrap_servers, topic, 4)
    with GatewayProcess(tmp_path, config=config, quotas=_QUOTAS.format(3.5)) as gateway:
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
    assert min(owed_ms["owed_ms"].to_pylist()) == -6_000 < max(owed_ms["owed_ms"].to_pylist())
