"""Which class conducts the conversation of which API."""

from collections.abc import Mapping

from kvota.session.exchanges import addresses
from kvota.session.exchanges.exchange import Exchange
from kvota.session.exchanges.login import Authenticate, Handshake
from kvota.session.exchanges.mutation import Mutation
from kvota.session.exchanges.versions import Versions
from kvota.wire.apis import (
    API_VERSIONS,
    APIS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Addresses,
)

# Where an answer of theirs names brokers is for ``wire.addresses`` to know.
_REWRITTEN = frozenset(
    {
        Addresses.METADATA,
        Addresses.FIND_COORDINATOR,
        Addresses.DESCRIBE_CLUSTER,
        Addresses.DESCRIBE_CONFIGS,
    }
)

EXCHANGES: Mapping[int, type[Exchange]] = {
    **{key: addresses.Addresses for key, api in APIS.items() if api.addresses in _REWRITTEN},
    API_VERSIONS: Versions,
    SASL_HANDSHAKE: Handshake,
    SASL_AUTHENTICATE: Authenticate,
    CREATE_TOPICS: Mutation,
    DELETE_TOPICS: Mutation,
    CREATE_PARTITIONS: Mutation,
}
