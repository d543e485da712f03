"""Who may do what in a cluster with an authorizer (KIP-11, KIP-290)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kio.schema.create_acls.v3 import CreateAclsRequest, CreateAclsResponse
from kio.schema.create_acls.v3.request import AclCreation
from kio.schema.describe_acls.v3 import DescribeAclsRequest, DescribeAclsResponse
from kio.static.primitive import i8

from kvota.localkafka.cluster.ask import ask
from kvota.model.errors import UsageError

Operation = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
]
ResourceType = Literal["topic", "group", "cluster", "transactional_id"]

AUTHORIZER_SETTINGS: Final[Mapping[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
}

# Kafka's numbers: AclOperation, ResourceType, PatternType, AclPermissionType.
_OPERATIONS: Mapping[Operation, int] = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
}
_RESOURCES: Mapping[ResourceType, int] = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5}  # fmt: skip
_ANY, _LITERAL, _PREFIXED = 1, 3, 4
_DENY, _ALLOW = 2, 3
_CLUSTER_NAME = "kafka-cluster"

_Row = tuple[int, str, int, str, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One rule; what no rule allows is refused to all but ANONYMOUS, as whom brokers talk.

    Attributes:
        user: who, a name without ``User:``; ``*`` is everybody.
        operation: what.
        resource: on what kind of thing.
        name: of the thing, ``*`` for all; the cluster's is always the same.
        is_prefix: the name is the beginning of names.
        is_denied: the rule refuses, and wins over those that allow.
        host: from where; ``*``: from anywhere.
    """

    user: str
    operation: Operation
    resource: ResourceType = "cluster"
    name: str = _CLUSTER_NAME
    is_prefix: bool = False
    is_denied: bool = False
    host: str = "*"

    def __post_init__(self) -> None:
        """Refuse what Kafka would take and never match."""
        if (self.resource == "cluster") != (self.name == _CLUSTER_NAME):
            msg = f'{self.resource} "{self.name}": only the cluster is called {_CLUSTER_NAME}'
            raise UsageError(msg)

    @property
    def row(self) -> _Row:
        """The rule in Kafka's numbers."""
        return (
            _RESOURCES[self.resource],
            self.name,
            _PREFIXED if self.is_prefix else _LITERAL,
            f"User:{self.user}",
            self.host,
            _OPERATIONS[self.operation],
            _DENY if self.is_denied else _ALLOW,
        )


def add_acls(address: tuple[str, int], acls: Sequence[Acl]) -> None:
    """Makes the rules (CreateAcls v3); brokers may learn of them a little later.

    Raises:
        UsageError: the broker refuses one; the text has Kafka's error.
    """
    creations = tuple(
        AclCreation(
            resource_type=i8(row[0]),
            resource_name=row[1],
            resource_pattern_type=i8(row[2]),
            principal=row[3],
            host=row[4],
            operation=i8(row[5]),
            permission_type=i8(row[6]),
        )
        for row in (acl.row for acl in acls)
    )
    answer = ask(address, CreateAclsRequest(creations=creations), CreateAclsResponse)
    for acl, result in zip(acls, answer.results, strict=True):
        if result.error_code:
            msg = f"{acl}: {result.error_code.name} ({result.error_code.value}): {result.error_message}"
            raise UsageError(msg)


def knows_acls(address: tuple[str, int], acls: Iterable[Acl]) -> bool:
    """Tell whether this broker goes by all these rules (DescribeAcls v3)."""
    request = DescribeAclsRequest(
        resource_type_filter=i8(_ANY),
        resource_name_filter=None,
        pattern_type_filter=i8(_ANY),
        principal_filter=None,
        host_filter=None,
        operation=i8(_ANY),
        permission_type=i8(_ANY),
    )
    answer = ask(address, request, DescribeAclsResponse)
    known = {
        (
            int(resource.resource_type),
            str(resource.resource_name),
            int(resource.pattern_type),
            str(rule.principal),
            str(rule.host),
            int(rule.operation),
            int(rule.permission_type),
        )
        for resource in answer.resources
        for rule in resource.acls
    }
    return {acl.row for acl in acls} <= known
