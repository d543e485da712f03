"""Kafka's own command line tools, by the names of its scripts: ``kafka-topics.sh`` is ``topics``."""

from kvota.localkafka.processes.command_line import SHORT_LIVED, kafka_command

_TOOLS = "org.apache.kafka.tools."

# Each with its class in Kafka 4; some have another one in Kafka 3.
CLASS_OF_TOOL: dict[str, str] = {
    "acls": f"{_TOOLS}AclCommand",
    "broker-api-versions": f"{_TOOLS}BrokerApiVersionsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_TOOLS}consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}ConsoleProducer",
    "consumer-groups": f"{_TOOLS}consumer.group.ConsumerGroupCommand",
    "consumer-perf": f"{_TOOLS}ConsumerPerformance",
    "delete-records": f"{_TOOLS}DeleteRecordsCommand",
    "get-offsets": f"{_TOOLS}GetOffsetShell",
    "log-dirs": f"{_TOOLS}LogDirsCommand",
    "producer-perf": f"{_TOOLS}ProducerPerformance",
    "topics": f"{_TOOLS}TopicCommand",
    "transactions": f"{_TOOLS}TransactionsCommand",
    "verifiable-consumer": f"{_TOOLS}VerifiableConsumer",
    "verifiable-producer": f"{_TOOLS}VerifiableProducer",
}
_CLASS_IN_KAFKA_3 = {
    "acls": "kafka.admin.AclCommand",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
}
_LIVE_LONG = frozenset(
    {
        "console-consumer",
        "console-producer",
        "consumer-perf",
        "producer-perf",
        "verifiable-consumer",
        "verifiable-producer",
    }
)


def tool_command(tool: str, version: str, arguments: list[str]) -> list[str]:
    """Return the command that runs a tool of ``CLASS_OF_TOOL``."""
    main_class = CLASS_OF_TOOL[tool]
    if version.startswith("3."):
        main_class = _CLASS_IN_KAFKA_3.get(tool, main_class)
    return kafka_command(
        version,
        main_class,
        arguments,
        log_level="WARN",
        log_stream="SYSTEM_ERR",
        java_options=() if tool in _LIVE_LONG else SHORT_LIVED,
    )
