"""The gateway's settings as a client of Kafka's API alters and describes them, and a quota callback of one's own for them."""

from collections.abc import Mapping
from typing import Any

from tests.integration.raw_client import RawClient

from kvota.testing.frames import DESCRIBE_CONFIGS, parts, request
from kvota.wire.apis import INCREMENTAL_ALTER_CONFIGS

BROKER = 4
NUM, SIZE = "quota.window.num", "quota.window.size.seconds"
CLASS = "client.quota.callback.class"
MINE, LIMIT = "dynamic_quotas.ByTeam", "client.quota.callback.my.limit"
GROUP = "client.quota.callback.group.all.client.id.prefixes"
GROUPS = "kvota.callbacks.GroupQuotaCallback"
ALLOWED = f'[quotas]\ncallback_classes = ["{MINE}"]'
# One counter for each client id. A quota of this user is that of each.
OF_EVERY_TEAM = "every-team"
MODULE = """
from kvota.callbacks import ClientQuotaCallback

class ByTeam(ClientQuotaCallback):
    def __init__(self):
        self.given = None
    def configure(self, properties):
        self.limit = float(properties["client.quota.callback.my.limit"])
    def quota_metric_tags(self, quota_type, user, client_id):
        return {"team": client_id}
    def quota_limit(self, quota_type, tags):
        return (self.given or self.limit) * FACTOR
    def update_quota(self, quota_type, entity, limit):
        if entity.user == "every-team":
            self.given = limit
    def remove_quota(self, quota_type, entity):
        if entity.user == "every-team":
            self.given = None
    def quota_reset_required(self, quota_type):
        return False
    def close(self):
        print("closed", flush=True)

FACTOR = 1
"""
Settings = Mapping[str, str | None]


def content(settings: Settings, *, name: str = "", validate_only: bool = False) -> dict[str, Any]:
    configs = [
        {"name": each, "value": value, "config_operation": int(value is None)}
        for each, value in settings.items()
    ]
    resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
    return {"resources": [resource], "validate_only": validate_only}


def alteration_of(settings: Settings, *, name: str = "", validate_only: bool = False) -> bytes:
    """None: it is deleted."""
    ((resource,), _) = content(settings, name=name).values()
    configs = parts(
        INCREMENTAL_ALTER_CONFIGS, 1, "request", "AlterableConfig", *resource["configs"]
    )
    row = resource | {"configs": configs}
    resources = parts(INCREMENTAL_ALTER_CONFIGS, 1, "request", "AlterConfigsResource", row)
    return request(INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=validate_only)


def alter(client: RawClient, settings: Settings, **more: Any) -> tuple[int, str | None]:
    told = client.ask(alteration_of(settings, **more))
    (result,) = told.responses
    return int(result.error_code), result.error_message


def dynamic(client: RawClient) -> dict[str, str | None]:
    """What is set for all brokers."""
    wanted = {"resource_type": BROKER, "resource_name": "", "configuration_keys": None}
    resources = parts(DESCRIBE_CONFIGS, 4, "request", "DescribeConfigsResource", wanted)
    options = {"include_synonyms": True, "include_documentation": False}
    told = client.ask(request(DESCRIBE_CONFIGS, 4, resources=resources, **options))
    (result,) = told.results
    assert int(result.error_code) == 0, result.error_message
    # A broker of Kafka 4.3 always has this one.
    return {each.name: each.value for each in result.configs if each.name != "min.insync.replicas"}
