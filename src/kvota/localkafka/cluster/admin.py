"""A cluster is asked and told here without a JVM started for it."""

import hashlib
import os
from collections.abc import Iterable, Mapping

from kio.schema.alter_user_scram_credentials.v0 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kio.schema.alter_user_scram_credentials.v0.request import ScramCredentialUpsertion
from kio.schema.create_topics.v7 import CreateTopicsRequest, CreateTopicsResponse
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig
from kio.schema.describe_cluster.v1 import DescribeClusterRequest, DescribeClusterResponse
from kio.schema.describe_user_scram_credentials.v0 import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from kvota.localkafka.cluster.ask import ask
from kvota.model.errors import KvotaError, UsageError

Address = tuple[str, int]

# Kafka's numbers for the mechanisms (KIP-554) and Python's names of their hashes.
_SCRAM_HASHES = {1: "sha256", 2: "sha512"}
_SCRAM_ITERATIONS = 4096  # the least that Kafka takes; these users are for tests


def live_broker_ids(address: Address) -> set[int]:
    """Return the ids of the brokers that this one knows to be registered and not fenced (DescribeCluster)."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    answer = ask(address, request, DescribeClusterResponse)
    return {broker.broker_id for broker in answer.brokers}


def create_topic(
    address: Address,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
) -> None:
    """Creates a topic (CreateTopics v7); brokers may learn of it a little later.

    Raises:
        UsageError: the broker refuses; the text has Kafka's error.
    """
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(replication_factor),
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in configs.items()),
    )
    answer = ask(address, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
    for result in answer.topics:
        if result.error_code:
            msg = f'topic "{name}": {result.error_code.name} ({result.error_code.value}): {result.error_message}'
            raise UsageError(msg)


def knows_topic(address: Address, name: str, partitions: int) -> bool:
    """Tell whether this broker knows a leader for each partition of the topic (Metadata v12)."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name=TopicName(name)),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    (topic,) = ask(address, request, MetadataResponse).topics
    led = [partition for partition in topic.partitions if partition.leader_id >= 0]
    return len(led) == partitions


def add_scram_users(address: Address, users: Mapping[str, str]) -> None:
    """Gives each user SCRAM-SHA-256 and SCRAM-SHA-512 credentials (KIP-554).

    Raises:
        KvotaError: the broker refuses one.
    """
    for mechanism, hash_name in _SCRAM_HASHES.items():  # Kafka takes each user once per request
        upsertions = tuple(
            _credential(name, secret, mechanism, hash_name) for name, secret in users.items()
        )
        request = AlterUserScramCredentialsRequest(deletions=(), upsertions=upsertions)
        answer = ask(address, request, AlterUserScramCredentialsResponse)
        for result in answer.results:
            if result.error_code:
                msg = f'user "{result.user}": {result.error_code.name}: {result.error_message}'
                raise KvotaError(msg)


def _credential(name: str, secret: str, mechanism: int, hash_name: str) -> ScramCredentialUpsertion:
    salt = os.urandom(16)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=i8(mechanism),
        iterations=i32(_SCRAM_ITERATIONS),
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(hash_name, secret.encode(), salt, _SCRAM_ITERATIONS),
    )


def knows_users(address: Address, users: Iterable[str]) -> bool:
    """Tell whether this broker can let all these users in by SCRAM."""
    answer = ask(
        address,
        DescribeUserScramCredentialsRequest(users=None),
        DescribeUserScramCredentialsResponse,
    )
    return set(users) <= {
        result.user
        for result in answer.results
        if len(result.credential_infos) == len(_SCRAM_HASHES)
    }
