"""Puts the gateway's own settings among a broker's, in whole DescribeConfigs answers.

Under the gateway's names stands what the gateway says; all other settings pass byte for byte.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

from kvota.model.broker_settings import DescribedSetting, Source, is_gateways
from kvota.wire.apis import DESCRIBE_CONFIGS
from kvota.wire.broker_configs import BROKER_CONFIGS_MAX, BROKER_RESOURCE, AskedBrokers
from kvota.wire.encode import encode_count, encode_text
from kvota.wire.headers import answer_scanner, with_size
from kvota.wire.scanner import Scanner
from kvota.wire.steps import Steps
from kvota.wire.varint import Bytes, Frame

_RESOURCE_BYTES_MIN = 2 + 1 + 1 + 1 + 1  # error code, message, type, name, count
_CONFIG_BYTES_MIN = 1 + 1 + 1 + 1 + 1  # name, value, read only, source, sensitive
_SYNONYM_BYTES_MIN = 1 + 1 + 1  # name, value, source


def with_settings(
    answer: Frame, version: int, asked: AskedBrokers, settings: Sequence[DescribedSetting]
) -> Steps[Frame]:
    """Returns the answer frame with the gateway's settings, made a little at a time.

    Raises:
        ProtocolError: the bytes are not such an answer.
    """
    scanner = answer_scanner(answer, DESCRIBE_CONFIGS, version, items_max=BROKER_CONFIGS_MAX)
    parts: list[Bytes] = []
    brokers = iter(asked.brokers)  # answered in this order, whatever else stands between
    copied_to = 0
    scanner.skip(4)  # throttle
    for _ in range(scanner.count(_RESOURCE_BYTES_MIN)):
        error_code = scanner.int16()
        scanner.skip_text()  # error message
        is_broker = scanner.int8() == BROKER_RESOURCE
        name = scanner.text() or ""
        configs_at = scanner.at
        kept, documentation = yield from _brokers_own(scanner, version)
        asked_name, keys = next(brokers, (None, None)) if is_broker else (None, None)
        if not error_code and name == asked_name:
            wanted = list(_wanted(settings, keys, of_all=not name))
            own = [_entry(each, version, asked, documentation) for each in wanted]
            count = encode_count(len(kept) + len(own), flexible=scanner.flexible)
            parts += (answer[copied_to:configs_at], count)
            parts += (answer[at:end] for at, end in kept)
            parts += own
            copied_to = scanner.at
        scanner.skip_tags()
    scanner.skip_tags()
    scanner.finish()
    if not parts:
        return answer
    return with_size([*parts, memoryview(answer)[copied_to:]])


def _wanted(
    settings: Iterable[DescribedSetting], names: Container[str] | None, *, of_all: bool
) -> Iterable[DescribedSetting]:
    """Those that are asked for; of all brokers there is only what has been set dynamically."""
    for setting in settings:
        if names is not None and setting.name not in names:
            continue
        if not of_all:
            yield setting
        elif setting.values and setting.values[0][0] is Source.DYNAMIC_DEFAULT_BROKER_CONFIG:
            yield DescribedSetting(
                name=setting.name,
                kind=setting.kind,
                values=setting.values[:1],
                is_sensitive=setting.is_sensitive,
                is_read_only=setting.is_read_only,
            )


def _brokers_own(
    scanner: Scanner, version: int
) -> Steps[tuple[list[tuple[int, int]], dict[str, str]]]:
    """Where the broker's settings stand that are not the gateway's, and what it says of the others."""
    kept: list[tuple[int, int]] = []
    documentation: dict[str, str] = {}
    for _ in range(scanner.count(_CONFIG_BYTES_MIN)):
        at = scanner.at
        name = scanner.name()
        scanner.skip_text()  # value
        scanner.skip(1 + 1 + 1)  # read only, source, sensitive
        if version >= 1:
            for _ in range(scanner.count(_SYNONYM_BYTES_MIN)):
                scanner.skip_text()
                scanner.skip_text()
                scanner.skip(1)
                scanner.skip_tags()
        text = None
        if version >= 3:
            scanner.skip(1)  # type
            text = scanner.text()
        scanner.skip_tags()
        if not is_gateways(name):
            kept.append((at, scanner.at))
        elif text is not None:
            documentation[name] = text
        if scanner.is_step_done():
            yield
    return kept, documentation


def _entry(
    setting: DescribedSetting,
    version: int,
    asked: AskedBrokers,
    documentation: Mapping[str, str],
) -> bytes:
    flexible = version >= 4
    tags = b"\0" if flexible else b""
    texts = [None if setting.is_sensitive else value for _, value in setting.values]
    source = setting.values[0][0] if setting.values else Source.DEFAULT_CONFIG
    encoded = [
        encode_text(setting.name, flexible=flexible),
        encode_text(texts[0] if texts else None, flexible=flexible),
        bytes((setting.is_read_only,)),
        bytes((source if version >= 1 else source is Source.DEFAULT_CONFIG,)),
        bytes((setting.is_sensitive,)),
    ]
    if version >= 1:
        sources = [of for of, _ in setting.values] if asked.has_synonyms else []
        encoded.append(encode_count(len(sources), flexible=flexible))
        for of, text in zip(sources, texts, strict=False):
            encoded += (
                encode_text(setting.name, flexible=flexible),
                encode_text(text, flexible=flexible),
                bytes((of,)),
                tags,
            )
    if version >= 3:
        text = documentation.get(setting.name)
        encoded += bytes((setting.kind,)), encode_text(text, flexible=flexible)
    return b"".join((*encoded, tags))
