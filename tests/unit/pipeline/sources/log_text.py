"""Lines as brokers write them, and messages of kio as they are in such lines."""

import json
from dataclasses import MISSING, fields
from typing import Any

_NAMES = {0: "PRODUCE", 1: "FETCH"}
_SIZES = {"records": "recordsSizeInBytes"}


def line(
    *,
    at: str = "2026-11-21 00:42:21,114",
    key: int = 0,
    version: int = 10,
    client_id: str | None = "app",
    principal: str = "User:alice",
    request: dict[str, Any] | None = None,
    response: dict[str, Any] | str | None = None,
    forwarded: bool = False,
    correlation_id: int = 7,
    **more: Any,
) -> str:
    """Return a line of Kafka 4.3; by itself of a Produce with 1,000 bytes of records, 1,039 in all."""
    header = {
        "requestApiKey": key,
        "requestApiVersion": version,
        "correlationId": correlation_id,
        "clientId": client_id,
        "requestApiKeyName": _NAMES.get(key, "ANY"),
    }
    fields_ = {
        "isForwarded": forwarded,
        "requestHeader": header,
        "request": produced(1000) if request is None else request,
        "response": {"responses": [], "throttleTimeMs": 0} if response is None else response,
        "connection": "127.0.0.1:9092-127.0.0.1:37536-1-3",
        "totalTimeMs": 24.31,
        "requestQueueTimeMs": 1.574,
        "localTimeMs": 20.0,
        "remoteTimeMs": 0.0,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 0.5,
        "sendTimeMs": 0.25,
        "securityProtocol": "SASL_PLAINTEXT",
        "principal": principal,
        "listener": "SASL",
        "clientInformation": {"softwareName": "c", "softwareVersion": "1"},
    }
    text = json.dumps({**fields_, **more}, separators=(",", ":"))
    return f"[{at}] DEBUG Completed request:{text} (kafka.request.logger)"


def produced(records_bytes: int, *, acks: int = -1) -> dict[str, Any]:
    """Return a Produce of one partition."""
    partitions = [{"index": 0, "recordsSizeInBytes": records_bytes}]
    return {
        "transactionalId": None,
        "acks": acks,
        "timeoutMs": 30000,
        "topicData": [{"name": "orders", "partitionData": partitions}],
    }


def logged(message: Any) -> Any:
    """Return a message of kio as the log has it: names in Kafka's way, records only by their size."""
    if isinstance(message, tuple):
        return [logged(part) for part in message]
    if not hasattr(message, "__dataclass_fields__"):
        return message
    found: dict[str, Any] = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if "tag" in field.metadata and field.default is not MISSING and value == field.default:
            continue
        name = _camel(field.name)
        if name in _SIZES and value is not None:
            found[_SIZES[name]] = len(value)
        else:
            found[name] = logged(value)
    return found


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)
