"""Which class conducts the conversation of which API."""

from collections.abc import Mapping

from kvota.session.exchanges.addresses import Addresses
from kvota.session.exchanges.auto_creation import AutoCreation
from kvota.session.exchanges.broker_settings import AlterBrokerSettings
from kvota.session.exchanges.client_quotas import AlterQuotas, DescribeQuotas
from kvota.session.exchanges.described_brokers import DescribedBrokers
from kvota.session.exchanges.exchange import Exchange
from kvota.session.exchanges.login import Authenticate, Handshake
from kvota.session.exchanges.mutation import Mutation
from kvota.session.exchanges.refusals import Refusals
from kvota.session.exchanges.transactions import CountedTransaction
from kvota.session.exchanges.versions import Versions
from kvota.wire import refusals
from kvota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    API_VERSIONS,
    APIS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Treatment,
)

EXCHANGES: Mapping[int, type[Exchange]] = {
    **{key: Addresses for key, api in APIS.items() if api.treatment is Treatment.REWRITE},
    **{key: CountedTransaction for key, api in APIS.items() if api.treatment is Treatment.COUNTED},
    **dict.fromkeys(refusals.KEYS, Refusals),
    METADATA: AutoCreation,
    API_VERSIONS: Versions,
    SASL_HANDSHAKE: Handshake,
    SASL_AUTHENTICATE: Authenticate,
    CREATE_TOPICS: Mutation,
    DELETE_TOPICS: Mutation,
    CREATE_PARTITIONS: Mutation,
    DESCRIBE_CONFIGS: DescribedBrokers,
    DESCRIBE_CLIENT_QUOTAS: DescribeQuotas,
    ALTER_CLIENT_QUOTAS: AlterQuotas,
    ALTER_CONFIGS: AlterBrokerSettings,
    INCREMENTAL_ALTER_CONFIGS: AlterBrokerSettings,
}
