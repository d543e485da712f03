"""Who may see or alter what the gateway keeps: the cluster is asked, on the caller's own connection.

A broker checks the right before anything else. So an alteration that is sent to it as a mere validation
tells whether it would have been allowed, and its answer to a description that matches nothing tells
whether one is. Where the cluster has no authorizer, or cannot be asked, a list of the gateway's decides
who may alter.

Brokers that are shown the gateway's certificate would answer for the gateway, not for a client that has not logged in:
of those the list decides who may see quotas, too.
"""

from collections.abc import Collection, Generator
from typing import NamedTuple

from kvota.model.errors import ProtocolError
from kvota.session.caller import Caller
from kvota.session.exchanges.conversation import Sent
from kvota.session.outside import Refusal
from kvota.wire import api_versions
from kvota.wire import permission_questions as questions
from kvota.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from kvota.wire.error_code import ErrorCode
from kvota.wire.questions import OWN_CORRELATION, metadata_by_name

# What a broker says of an alteration that its authorizer allows: right, wrong, or not known to it (it may
# be older than the key).
_ALLOWED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    }
)


class Verdict(NamedTuple):
    """What has been found out.

    Attributes:
        refusal: None: the caller may.
        throttle_ms: the longest throttle time that the broker has told meanwhile.
    """

    refusal: Refusal | None
    throttle_ms: int


# None: a step is done.
Asking = Generator[Sent | None, bytes, Verdict]


def may_see(caller: Caller, version: int) -> Asking:
    """Find out whether the caller may see quotas.

    Args:
        caller: who asks.
        version: of its DescribeClientQuotas request.
    """
    yield from _learn_versions(caller)
    if DESCRIBE_CLIENT_QUOTAS not in caller.upstream_versions:
        return (yield from _said_by_list(caller))
    if _is_gateway_to_broker(caller):
        said, throttle_ms = yield from _ask_for_rules()
        is_open = said.error_code == ErrorCode.SECURITY_DISABLED
        return Verdict(None if is_open else _refused_by_list(caller), throttle_ms)
    answer = yield Sent(OWN_CORRELATION, questions.describe_nothing(OWN_CORRELATION, version))
    (said,), throttle_ms = questions.scan_description(answer, version)
    return Verdict(_refused(said, {ErrorCode.NONE}), throttle_ms)


def may_alter(caller: Caller) -> Asking:
    """Find out whether the caller may alter; the right is one of the cluster's, whatever is to be altered."""
    yield from _learn_versions(caller)
    if ALTER_CLIENT_QUOTAS not in caller.upstream_versions or _is_gateway_to_broker(caller):
        return (yield from _said_by_list(caller))
    answer = yield Sent(OWN_CORRELATION, questions.alter_nothing(OWN_CORRELATION))
    all_said, throttle_ms = yield from questions.scan_alteration(answer, questions.ALTER_VERSION)
    for said in all_said:
        refused = _refused(said, _ALLOWED)
        if refused is not None:
            return Verdict(refused, throttle_ms)
    said, told_ms = yield from _ask_for_rules()
    throttle_ms = max(throttle_ms, told_ms)
    if said.error_code == ErrorCode.SECURITY_DISABLED:
        return Verdict(_refused_by_list(caller), throttle_ms)
    # One that has an authorizer says so, whether this caller may see its rules or not.
    has_one = {ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    return Verdict(_refused(said, has_one), throttle_ms)


def _is_gateway_to_broker(caller: Caller) -> bool:
    return caller.shared.shows_certificate and not caller.principal.has_logged_in


def _ask_for_rules() -> Generator[Sent | None, bytes, tuple[questions.Said, int]]:
    """Ask for no rule of the cluster's authorizer: one that has none says so."""
    answer = yield Sent(OWN_CORRELATION, questions.describe_no_acls(OWN_CORRELATION))
    (said,), throttle_ms = questions.scan_acls(answer)
    return said, throttle_ms


def _said_by_list(caller: Caller) -> Asking:
    """A broker that is not asked still says whether it serves this client: without a login it may not."""
    yield Sent(OWN_CORRELATION, metadata_by_name(OWN_CORRELATION, ()))
    return Verdict(_refused_by_list(caller), 0)


def _learn_versions(caller: Caller) -> Generator[Sent | None, bytes, None]:
    """Ask what the broker offers, unless the client has: one that is too old closes when it is asked for more.

    Raises:
        ProtocolError: the broker does not say.
    """
    if caller.upstream_versions:
        return
    answer = yield Sent(OWN_CORRELATION, api_versions.question(OWN_CORRELATION))
    told = api_versions.scan(answer, 0)
    if told.error_code != ErrorCode.NONE:
        msg = f"the broker answers ApiVersions v0 with error {told.error_code}"
        raise ProtocolError(msg)
    caller.upstream_versions = caller.shared.offered_versions.shared(told.versions)


def _refused(said: questions.Said, allowed: Collection[int]) -> Refusal | None:
    if said.error_code in allowed:
        return None
    return Refusal(said.error_code, said.message)


def _refused_by_list(caller: Caller) -> Refusal | None:
    """What the gateway's own list says; None: this caller is on it."""
    user, host = caller.principal.name, caller.client_host
    if caller.shared.quota_admins.may_alter(user, host):
        return None
    why = (
        "brokers see the gateway's certificate and not its client's"
        if _is_gateway_to_broker(caller)
        else "there is no authorizer to ask"
    )
    return Refusal(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        f"Cluster authorization failed: {why}, so quotas.admins in the gateway's "
        f"configuration says who may, and {user} from {host} is not among them.",
    )
