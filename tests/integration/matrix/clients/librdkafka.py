"""What a client does in the matrix, with librdkafka: see ``tests/integration/matrix/programs.py``."""

import time

from asked import CAFILE, DENIED, NAME, PATIENCE_S, RECORDS, SECRET, SERVERS, USER, say
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

CONFIG = {
    "bootstrap.servers": SERVERS,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": USER,
    "sasl.password": SECRET,
    "ssl.ca.location": CAFILE,
    "client.id": "librdkafka",
}


def error_of(act) -> str:
    """The name of the error with which this fails."""
    try:
        act()
    except KafkaException as error:
        return error.args[0].name()
    return "none"


def produce(topic: str, partitions: int) -> None:
    """All records, and how many are acknowledged."""
    acknowledged: list[int] = []
    failed: list[str] = []

    def told(error: KafkaError | None, message) -> None:
        failed.append(error.name()) if error else acknowledged.append(message.offset())

    producer = Producer({**CONFIG, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % partitions, on_delivery=told)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    say("produced", f"{len(acknowledged)} acknowledged, {failed} failed")


def consume(topic: str, group: str, count: int, **config: str) -> str:
    """What a group gets, which commits then."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**CONFIG, **settings, **config})
    consumer.subscribe([topic])
    values: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while len(values) < count and time.monotonic() < end:
        values += [int(one.value()) for one in consumer.consume(500, 1) if not one.error()]
    consumer.commit(asynchronous=False)
    consumer.close()
    return f"{len(values)} records, sum {sum(values)}"


def share(admin: AdminClient, topic: str, group: str) -> str:
    """What a share group gets; records may come again where an acceptance is late, so each value counts once."""
    setting = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[setting])
    admin.incremental_alter_configs([resource])[resource].result()
    consumer = ShareConsumer({**CONFIG, "group.id": group})
    consumer.subscribe([topic])
    values: set[int] = set()
    end = time.monotonic() + PATIENCE_S
    while len(values) < RECORDS and time.monotonic() < end:
        values |= {int(one.value()) for one in consumer.poll(1) if not one.error()}
    consumer.commit_sync()
    consumer.close()
    return f"{len(values)} records, sum {sum(values)}"


def transactions(topic: str) -> None:
    """One is committed, one aborted."""
    producer = Producer({**CONFIG, "transactional.id": f"{NAME}-t"})
    producer.init_transactions(PATIENCE_S)
    for numbers, end in (
        (range(10), producer.commit_transaction),
        (range(100, 110), producer.abort_transaction),
    ):
        producer.begin_transaction()
        for number in numbers:
            producer.produce(topic, str(number), partition=0)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)
    say("transactions", consume(topic, f"{NAME}-rc", 10, **{"isolation.level": "read_committed"}))


def described(admin: AdminClient, partitions: int) -> list[tuple[int, list[int]]]:
    """The replicas of each partition; a broker learns of topics a moment after they are made."""
    end = time.monotonic() + PATIENCE_S
    while True:
        topic = admin.list_topics(NAME, timeout=PATIENCE_S).topics[NAME]
        if len(topic.partitions) == partitions or time.monotonic() > end:
            return [(one.id, sorted(one.replicas)) for one in topic.partitions.values()]
        time.sleep(0.05)


def ends(admin: AdminClient, topic: str, partitions: int) -> list[int]:
    """The end of each partition."""
    asked = {TopicPartition(topic, one): OffsetSpec.latest() for one in range(partitions)}
    found = {
        one.partition: answer.result().offset for one, answer in admin.list_offsets(asked).items()
    }
    return [found[one] for one in sorted(found)]


def main() -> None:
    """All steps."""
    admin = AdminClient(CONFIG)
    cluster = admin.describe_cluster().result()
    say("cluster", f"{cluster.cluster_id}, nodes {sorted(one.id for one in cluster.nodes)}")
    topics = [NewTopic(NAME, 3, 3), NewTopic(f"{NAME}-t", 1, 3)]
    for answer in admin.create_topics(topics).values():
        answer.result()
    say("created", "again: " + error_of(admin.create_topics(topics[:1])[NAME].result))
    say("described", described(admin, 3))
    produce(NAME, 3)
    say("ends", ends(admin, NAME, 3))
    say("classic", consume(NAME, f"{NAME}-classic", RECORDS))
    say("consumer", consume(NAME, f"{NAME}-consumer", RECORDS, **{"group.protocol": "consumer"}))
    say("share", share(admin, NAME, f"{NAME}-share"))
    asked = ConsumerGroupTopicPartitions(f"{NAME}-classic")
    committed = admin.list_consumer_group_offsets([asked])[asked.group_id].result()
    say("committed", sorted((p.partition, p.offset) for p in committed.topic_partitions))
    transactions(f"{NAME}-t")
    say("transactions' end", ends(admin, f"{NAME}-t", 1))
    denied: list[str] = []
    producer = Producer(CONFIG)
    producer.produce(DENIED, "1", on_delivery=lambda error, _: denied.append(error.name()))
    producer.flush(PATIENCE_S)
    say("denied", denied)
    say("denied group", denied_group())
    for answer in admin.delete_topics([NAME, f"{NAME}-t"]).values():
        answer.result()
    say("deleted", "again: " + error_of(admin.delete_topics([NAME])[NAME].result))
    say("wrong password", wrong_password())


def denied_group() -> str:
    """How a group is refused that the user has no right to."""
    consumer = Consumer({**CONFIG, "group.id": "of-others"})
    consumer.subscribe([NAME])
    end, said = time.monotonic() + PATIENCE_S, "none"
    while said == "none" and time.monotonic() < end:
        message = consumer.poll(1)
        said = message.error().name() if message is not None and message.error() else said
    consumer.close()
    return said


def wrong_password() -> str:
    """The broker's words, without where it is."""
    told: list[str] = []
    config = {**CONFIG, "sasl.password": "wrong", "error_cb": lambda e: told.append(e.str())}
    client = AdminClient(config)
    end = time.monotonic() + PATIENCE_S
    while not any("SASL authentication error" in one for one in told) and time.monotonic() < end:
        client.poll(0.5)
    text = next(one for one in told if "SASL authentication error" in one)
    return text[text.index("SASL authentication error") :].partition(" (after")[0]


if __name__ == "__main__":
    main()
