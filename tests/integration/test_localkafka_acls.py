"""A cluster with an authorizer: users may do what rules let them do, and no more."""

import time

import pytest
from tests.integration.test_client import creation

from kvota.client import CONTROLLER, Cluster, Security
from kvota.localkafka import Acl, LocalKafka
from kvota.model.errors import UsageError
from kvota.wire.apis import CREATE_TOPICS

TOPIC_AUTHORIZATION_FAILED = 29
_KNOWN_S = 60.0


def login(kafka: LocalKafka, user: str) -> Cluster:
    security = Security.scram(user, f"{user}-secret")
    return Cluster(kafka.sasl_bootstrap_servers.split(","), security=security)


async def created(cluster: Cluster, *names: str) -> dict[str, int]:
    answer = await cluster.ask(CREATE_TOPICS, creation(*names), to=CONTROLLER)
    return {str(topic.name): int(topic.error_code) for topic in answer.topics}


async def test_a_user_does_what_the_rules_allow_and_nothing_else(acl_kafka: LocalKafka) -> None:
    async with login(acl_kafka, "alice") as alice, login(acl_kafka, "operator") as operator:
        assert await created(operator, "of-the-operator") == {"of-the-operator": 0}
        refused = await created(alice, "mine-1", "other-1")

        rule = Acl(user="alice", operation="create", resource="topic", name="mine-", is_prefix=True)
        acl_kafka.add_acls(rule)
        allowed = await created(alice, "mine-1", "other-1")
        end = time.monotonic() + _KNOWN_S
        while allowed["mine-1"] == TOPIC_AUTHORIZATION_FAILED:  # the controller reads it by itself
            assert time.monotonic() < end
            allowed = await created(alice, "mine-1", "other-1")
        denied = Acl(
            user="alice", operation="create", resource="topic", name="mine-2", is_denied=True
        )
        acl_kafka.add_acls(denied)
        forbidden = await created(alice, "mine-2")
        end = time.monotonic() + _KNOWN_S
        while forbidden["mine-2"] != TOPIC_AUTHORIZATION_FAILED:
            assert time.monotonic() < end
            forbidden = await created(alice, "mine-2")

        assert refused == dict.fromkeys(["mine-1", "other-1"], TOPIC_AUTHORIZATION_FAILED)
        assert allowed == {"mine-1": 0, "other-1": TOPIC_AUTHORIZATION_FAILED}


def test_a_cluster_without_an_authorizer_takes_no_rules(kafka: LocalKafka) -> None:
    with pytest.raises(UsageError, match="has no authorizer"):
        kafka.add_acls(Acl(user="alice", operation="describe"))


@pytest.mark.parametrize(("resource", "name"), [("topic", "kafka-cluster"), ("cluster", "c")])
def test_a_rule_that_would_never_match_is_refused(resource: str, name: str) -> None:
    with pytest.raises(UsageError, match="only the cluster is called kafka-cluster"):
        Acl(user="alice", operation="describe", resource=resource, name=name)  # type: ignore[arg-type]
