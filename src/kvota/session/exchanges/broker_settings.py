"""AlterConfigs and IncrementalAlterConfigs that are about settings of the gateway, or may be.

A resource is altered whole or not at all, as on a broker. What is not the gateway's goes on to the broker as it
came; settings of both in one resource are refused, for two who keep them could end half altered.
"""

from collections import Counter
from collections.abc import Collection, Generator, Mapping

from kvota.model.broker_settings import CALLBACK_PREFIX, SettingChanges, is_gateways
from kvota.quota_api.broker_settings import Refused, judge, mixed
from kvota.session.caller import Caller
from kvota.session.exchanges.conversation import QUESTION_MS_MAX, Back, Conversation, Sent, Talk
from kvota.session.exchanges.error_texts import ErrorTexts
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.exchanges.permission import may_alter
from kvota.session.outside import AlterSettings, BrokerSettings, Errand
from kvota.wire import alter_configs as wire
from kvota.wire import error_texts, questions
from kvota.wire.alter_configs import AlterConfigsRequest, ResourceAsk, ResourceKey, Result
from kvota.wire.apis import ALTER_CONFIGS
from kvota.wire.broker_configs import BROKER_RESOURCE
from kvota.wire.encode import encode_text
from kvota.wire.error_code import ErrorCode
from kvota.wire.questions import OWN_CORRELATION
from kvota.wire.steps import STEP_PARTS

# In every request that has a setting of the gateway's, and in few others.
_TRACES = (b"quota.window.", CALLBACK_PREFIX.encode())
_ALL_BROKERS: ResourceKey = (BROKER_RESOURCE, "")
# In every request about all brokers: its type and its empty name, in either encoding.
_ALL_BROKERS_TRACES = tuple(
    bytes((BROKER_RESOURCE,)) + encode_text("", flexible=flexible) for flexible in (False, True)
)
# Beyond what a question may take: a controller may be asked.
_ALTERED_MS_MAX = 2 * QUESTION_MS_MAX

Asking = Generator[Sent | Errand | None, Back, Refused | None]


class AlterBrokerSettings(Conversation):
    """One request with settings of the gateway's in it, or one that may remove some."""

    ANSWER_BYTES_MAX = error_texts.ANSWER_BYTES_MAX
    _settings: BrokerSettings

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """All other requests go on as they are.

        Raises:
            ProtocolError: the request cannot be read, or is about more than one may be.
        """
        if not _may_be_gateways(caller.shared.broker_settings, head.key, frame):
            caller.whole.give_back()
            return ErrorTexts.begin(caller, head, frame, now_us)
        return super().begin(caller, head, frame, now_us)

    def _talk_over(self, caller: Caller, frame: bytes) -> Talk:
        key, version, correlation = self._head
        settings = caller.shared.broker_settings
        assert settings is not None, "else the request has gone on"
        self._settings = settings
        request = yield from wire.scan_request(frame, key)
        del frame
        own = [resource for resource in request.resources if self._is_own(request, resource)]
        results: list[Result] = []
        throttle_ms = 0
        if own:
            verdict = yield from may_alter(caller)
            throttle_ms = verdict.throttle_ms
            if verdict.refusal is not None:
                results = [Result(each.key, *verdict.refusal) for each in own]
            else:
                results = yield from self._alter_own(caller, request, own)
        rest = wire.request_for(
            request,
            left_out={result.key for result in results},
            without={resource.key: is_gateways for resource in own},
        )
        del request
        if rest is None:
            told = yield from wire.own_answer(
                key, version, correlation, results, throttle_ms=throttle_ms
            )
        else:
            told = yield Sent(correlation, rest, _ALTERED_MS_MAX)
            if results:
                told = yield from wire.with_results(told, key, version, results)
        brokers = tuple(self._shared.topology.brokers.values())
        return (yield from error_texts.hide_addresses_in_steps(told, key, version, brokers))

    def _is_own(self, request: AlterConfigsRequest, resource: ResourceAsk) -> bool:
        """Whether it is about settings of the gateway's, also by not naming one."""
        if resource.key[0] != BROKER_RESOURCE:
            return False
        if request.replaces and resource.key == _ALL_BROKERS and self._settings.stored:
            return True
        return any(is_gateways(each.name) for each in resource.operations)

    # ------------------------------------------------------------------ the gateway's part

    def _alter_own(
        self, caller: Caller, request: AlterConfigsRequest, own: list[ResourceAsk]
    ) -> Generator[Sent | Errand | None, Back, list[Result]]:
        """What has become of those that do not go on to the broker."""
        times = Counter(resource.key for resource in request.resources)
        results: dict[ResourceKey, Result] = {}
        parts_left = STEP_PARTS
        for resource in own:
            parts_left -= 1 + len(resource.operations)
            if parts_left < 0:
                parts_left = STEP_PARTS
                yield None
            if times[resource.key] > 1:
                words = "Each resource must appear at most once."
                results[resource.key] = Result(resource.key, ErrorCode.INVALID_REQUEST, words)
                continue
            has_more = request.replaces or any(
                not is_gateways(each.name) for each in resource.operations
            )
            changes = yield from judge(
                resource.operations,
                self._settings.stored,
                replaces=request.replaces,
                of_all=resource.key == _ALL_BROKERS,
                may_lag=self._settings.may_lag and not has_more,
            )
            if isinstance(changes, Refused):
                results[resource.key] = Result(resource.key, *changes)
                continue
            if not changes:
                if not has_more:
                    results[resource.key] = Result(resource.key, ErrorCode.NONE, None)
                continue
            refused = yield from self._alter(caller, request, resource, changes)
            results[resource.key] = Result(resource.key, *(refused or (ErrorCode.NONE, None)))
        return list(results.values())

    def _alter(
        self,
        caller: Caller,
        request: AlterConfigsRequest,
        resource: ResourceAsk,
        changes: SettingChanges,
    ) -> Asking:
        refusal = self._settings.refusal
        if refusal is not None:
            return Refused(refusal.error_code, refusal.message or "")
        values = {
            each.name: each.value for each in resource.operations if not is_gateways(each.name)
        }
        others: Collection[str] = values
        if request.replaces:
            others = yield from _changed_at_broker(values)
        if others:
            return mixed(changes, others)
        by = f"{caller.principal.name} from {caller.client_host}"
        done = yield AlterSettings(changes, request.validate_only, by)
        return None if done is None else Refused(done.error_code, done.message or "")


def _may_be_gateways(settings: BrokerSettings | None, key: int, frame: bytes) -> bool:
    """False for nearly all requests; found out without a look at each resource."""
    if settings is None:
        return False
    if any(trace in frame for trace in _TRACES):
        return True
    if key != ALTER_CONFIGS or not settings.stored:
        return False
    return any(trace in frame for trace in _ALL_BROKERS_TRACES)


def _changed_at_broker(
    wanted: Mapping[str, str | None],
) -> Generator[Sent | Errand | None, Back, list[str]]:
    """Which of its own settings for all brokers the broker would change, if it had to have just these.

    AlterConfigs names them all, also those that stay. One that it keeps secret may be another one.
    """
    answer = yield Sent(
        OWN_CORRELATION, questions.describe_broker_configs(OWN_CORRELATION, "", None)
    )
    told = questions.scan_configs(answer)
    if told.error_code:
        return list(wanted)
    values = {name: value for name, value in told.values.items() if not is_gateways(name)}
    return [
        name
        for name in {**wanted, **values}
        if values.get(name) is None or wanted.get(name) != values[name]
    ]
