"""What a client does in the matrix, with kafka-python: see ``tests/integration/matrix/programs.py``."""

import logging
import time

from asked import CAFILE, DENIED, NAME, PATIENCE_S, RECORDS, SECRET, SERVERS, USER, say
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError

CONFIG = {
    "bootstrap_servers": SERVERS,
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": USER,
    "sasl_plain_password": SECRET,
    "ssl_cafile": CAFILE,
    "client_id": "kafka-python",
}
logging.disable(logging.CRITICAL)


def error_of(act) -> str:
    """The name of the error with which this fails."""
    try:
        act()
    except KafkaError as error:
        return type(error).__name__
    return "none"


def consume(topic: str, group: str, count: int, **config: object) -> str:
    """What a group gets, which commits then."""
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(topic, **CONFIG, **settings, **config)
    values: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while len(values) < count and time.monotonic() < end:
        for batch in consumer.poll(500).values():
            values += [int(one.value) for one in batch]
    consumer.commit()
    consumer.close()
    return f"{len(values)} records, sum {sum(values)}"


def transactions(topic: str) -> None:
    """One is committed, one aborted."""
    producer = KafkaProducer(**CONFIG, transactional_id=f"{NAME}-t")
    producer.init_transactions()
    for numbers, end in (
        (range(10), producer.commit_transaction),
        (range(100, 110), producer.abort_transaction),
    ):
        producer.begin_transaction()
        sent = [producer.send(topic, str(number).encode(), partition=0) for number in numbers]
        for one in sent:
            one.get(PATIENCE_S)
        end()
    producer.close()
    say("transactions", consume(topic, f"{NAME}-rc", 10, isolation_level="read_committed"))


def ends(topic: str, partitions: int) -> list[int]:
    """The end of each partition."""
    consumer = KafkaConsumer(**CONFIG)
    found = consumer.end_offsets([TopicPartition(topic, one) for one in range(partitions)])
    consumer.close()
    return [found[one] for one in sorted(found)]


def main() -> None:
    """All steps."""
    admin = KafkaAdminClient(**CONFIG)
    cluster = admin.describe_cluster()
    nodes = sorted(one.get("broker_id", one.get("node_id")) for one in cluster["brokers"])
    say("cluster", f"{cluster['cluster_id']}, nodes {nodes}")
    topics = [
        NewTopic(NAME, num_partitions=3, replication_factor=3),
        NewTopic(f"{NAME}-t", num_partitions=1, replication_factor=3),
    ]
    admin.create_topics(topics)
    say("created", "again: " + error_of(lambda: admin.create_topics(topics[:1])))
    producer = KafkaProducer(**CONFIG, enable_idempotence=True)
    sent = [producer.send(NAME, str(one).encode(), partition=one % 3) for one in range(RECORDS)]
    say("produced", f"{len([one.get(PATIENCE_S).offset for one in sent])} acknowledged")
    producer.close()
    say("ends", ends(NAME, 3))
    say("classic", consume(NAME, f"{NAME}-classic", RECORDS))
    consumer = KafkaConsumer(**CONFIG, group_id=f"{NAME}-classic", enable_auto_commit=False)
    say("committed", [consumer.committed(TopicPartition(NAME, one)) for one in range(3)])
    consumer.close()
    transactions(f"{NAME}-t")
    say("transactions' end", ends(f"{NAME}-t", 1))
    producer = KafkaProducer(**CONFIG, enable_idempotence=False)
    say("denied", error_of(lambda: producer.send(DENIED, b"1").get(PATIENCE_S)))
    producer.close()
    say("denied group", error_of(lambda: consume(NAME, "of-others", 1)))
    admin.delete_topics([NAME, f"{NAME}-t"])
    say("deleted", "again: " + error_of(lambda: admin.delete_topics([NAME])))
    admin.close()
    # It tries again for as long as that.
    wrong = {**CONFIG, "sasl_plain_password": "wrong", "bootstrap_timeout_ms": 10_000}
    say("wrong password", error_of(lambda: KafkaAdminClient(**wrong).close()))


if __name__ == "__main__":
    main()
