"""DescribeClientQuotas and AlterClientQuotas: the gateway's own quotas, as a broker describes and alters its own.

Who may is asked of the cluster (``permission``); what is valid, and with which words it is refused, is
the business of ``kvota.quota_api``; where quotas are kept, the errand's.
"""

from collections.abc import Generator, Iterable

from kvota.quota_api import alteration, description
from kvota.session.caller import Caller
from kvota.session.exchanges.conversation import Back, Conversation, Talk
from kvota.session.exchanges.permission import may_alter, may_see
from kvota.session.outside import Errand, LookUpHosts, StoreQuotas
from kvota.wire import client_quotas as wire
from kvota.wire.client_quotas import AlterRequest, AlterResult
from kvota.wire.error_code import ErrorCode
from kvota.wire.headers import is_flexible


class DescribeQuotas(Conversation):
    """One DescribeClientQuotas request."""

    def _talk_over(self, caller: Caller, frame: bytes) -> Talk:
        key, version, correlation = self._head
        asked = wire.scan_filter(frame)
        refused, throttle_ms = yield from may_see(caller, version)
        refused_filter = refused or description.refusal(asked)
        if refused_filter is not None:
            return wire.description_refusal(
                correlation, version, *refused_filter, throttle_ms=throttle_ms
            )
        quotas = self._shared.client_quotas.quotas
        found = yield from description.matching(asked, quotas)
        entries = yield from self._shared.descriptions.encoded(
            found, of=len(quotas), flexible=is_flexible(key, version)
        )
        return wire.description_answer(correlation, version, entries, throttle_ms=throttle_ms)


class AlterQuotas(Conversation):
    """One AlterClientQuotas request."""

    def _talk_over(self, caller: Caller, frame: bytes) -> Talk:
        _key, version, correlation = self._head
        request = yield from wire.scan_alteration(frame)
        del frame
        refused, throttle_ms = yield from may_alter(caller)
        refused = refused or self._shared.client_quotas.refusal
        if refused is None:
            results = yield from self._alter(caller, request)
        else:
            results = alteration.refuse_all(request.entries, *refused)
        return (
            yield from wire.alteration_answer(
                correlation, version, results, throttle_ms=throttle_ms
            )
        )

    def _alter(
        self, caller: Caller, request: AlterRequest
    ) -> Generator[Errand | None, Back, Iterable[AlterResult]]:
        """Check it, and carry out what is valid of it."""
        unknown_hosts: frozenset[str] = frozenset()
        names = alteration.host_names(request.entries)
        if names:
            unknown_hosts = yield LookUpHosts(frozenset(names))
        source = self._shared.client_quotas
        judged = yield from alteration.judge(
            request.entries, source.quotas, unknown_hosts, may_lag=source.may_lag
        )
        if request.validate_only or not judged.changes:
            return judged.results
        by = f"{caller.principal.name} from {caller.client_host}"
        refused = yield StoreQuotas(judged.changes, by)
        if refused is None:
            return judged.results
        return [
            result if result.error_code != ErrorCode.NONE else AlterResult(result.parts, *refused)
            for result in judged.results
        ]
