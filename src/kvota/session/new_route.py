"""What a connection does with an API version that it uses for the first time."""

from kvota.session.caller import Caller
from kvota.session.exchanges.login import LOGIN_KEYS
from kvota.session.exchanges.table import EXCHANGES
from kvota.session.heads import during_login
from kvota.session.route import Kind, Route
from kvota.wire.apis import APIS, FETCH, INIT_PRODUCER_ID, PRODUCE, SHARE_FETCH, Treatment


def new_route(caller: Caller, key: int, version: int) -> Route:
    """The route of this version.

    Raises:
        ProtocolError: the gateway has not offered it, or a login is under way that it is no part of.
    """
    if caller.logs_in and key not in LOGIN_KEYS:
        raise during_login(key, version)
    settings = caller.shared.settings
    route = Route(
        key,
        version,
        kind=_kind(caller, key),
        size_max=settings.request_bytes_max,
        mute_ms_max=settings.mute_ms_max,
        factor_told_ms_max=settings.factor_told_ms_max,
        count=caller.shared.api_counts.of(key),
    )
    if APIS[key].treatment is Treatment.COUNTED:
        route.count_ids(caller.shared.producer_ids.rate(caller.principal.name))
    return route


def _kind(caller: Caller, key: int) -> Kind:
    if key == PRODUCE:
        return Kind.CHARGED_PRODUCE if caller.shared.produce_quotas else Kind.PRODUCE
    if key == FETCH:
        return Kind.FETCH
    if key == SHARE_FETCH:
        return Kind.SHARE_FETCH
    if key == INIT_PRODUCER_ID:
        return Kind.INIT_PRODUCER_ID
    return Kind.EXCHANGE if key in EXCHANGES else Kind.PASS
