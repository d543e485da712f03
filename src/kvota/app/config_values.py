"""Reads each kind of value of gateway.toml; a ValueError says what is wrong and what to write."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from kvota.gateway.own_addresses import ips_of
from kvota.model.address import parse_address
from kvota.model.plain_text import shortened
from kvota.model.quota_type import Algorithm
from kvota.model.suggested_units import suggested_bytes, suggested_duration
from kvota.model.units import parse_bytes, parse_duration_ms
from kvota.session.principal import ANONYMOUS
from kvota.session.producer_id_quota import REFUSALS
from kvota.session.topology import NODE_IN_HOST
from kvota.wire.error_code import ErrorCode

NODES_MAX = 1_000
PORT_MAX = 65_535
_SHOWN_MAX = 80

_HOST_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_NODE_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # as record.recorder takes it


def _refuse(value: object, expected: str, example: str) -> ValueError:
    return ValueError(f"{_shown(value)} is not {expected}. Write e.g. {example}.")


def _shown(value: object) -> str:
    """Quote a value as it stands in the file, cut where it is too long."""
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    if isinstance(value, bool):
        text = text.lower()
    return shortened(text, _SHOWN_MAX)


def read_path(value: object) -> str:
    """Read the name of a file or folder."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise _refuse(value, "the name of a file or folder", '"/var/lib/kvota/name"')
    return value


def read_text(value: object) -> str:
    """Read a text that is not empty."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _refuse(value, "a text", '"text"')
    return value


def read_node_host(value: object) -> str:
    """Read the host name of each node, with ``{node}`` for its id."""
    if not isinstance(value, str) or value.count(NODE_IN_HOST) != 1:
        raise _refuse(
            value, f"a host name with {NODE_IN_HOST} in it", '"broker-{node}.kafka.example"'
        )
    read_host(value.replace(NODE_IN_HOST, "0"))
    return value


def read_topic(value: object) -> str:
    """Read a name that a topic can have."""
    if not isinstance(value, str) or not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise _refuse(value, "a topic's name", '"kvota-quotas"')
    return value


def read_user(value: object) -> str:
    """Read the name of a user."""
    if not isinstance(value, str) or not value.strip() or value.startswith("User:"):
        plain = str(value).removeprefix("User:").strip() or "kerberos"
        raise _refuse(value, "the name of a user", f'"{plain}"')
    return value


def read_class_name(value: object) -> str:
    """Read the dotted name of a class."""
    if not isinstance(value, str) or not value:
        raise _refuse(value, "the dotted name of a class", '"kvota.callbacks.DefaultQuotaCallback"')
    return value


def read_class_names(value: object) -> tuple[str, ...]:
    """Read a list of dotted names of classes."""
    is_list = isinstance(value, list) and all(
        isinstance(name, str) and _DOTTED.fullmatch(name) for name in value
    )
    if not isinstance(value, list) or not is_list:
        raise _refuse(value, "a list of dotted names of classes", '["my_quotas.ByTeam"]')
    return tuple(value)


def read_name(value: object) -> str:
    """Read a name that can be part of a file name."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or len(value) > 64:
        raise _refuse(value, "a name of letters, digits, '.', '_' and '-'", '"gateway-1"')
    return value


def read_boolean(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise _refuse(value, "true or false", "true")
    return value


def _integer(value: object, low: int, high: int, expected: str, example: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _refuse(value, expected, example)
    return value


def read_port(value: object) -> int:
    """Read a TCP port."""
    return _integer(value, 1, 65_535, "a port (1 to 65535)", "9192")


def read_port_or_any(value: object) -> int:
    """Read a TCP port, or 0 for any that is free."""
    return _integer(value, 0, 65_535, "a port (1 to 65535, or 0 for any that is free)", "9180")


def read_count(value: object) -> int:
    """Read a whole number of 1 or more."""
    return _integer(value, 1, 10**9, "a whole number of 1 or more", "1000")


def read_samples(value: object) -> int:
    """Read how many samples a window has."""
    return _integer(value, 1, 10_000, "a number of samples (1 to 10000)", "11")


def read_window_seconds(value: object) -> int:
    """Read how long one sample is, in seconds."""
    return _integer(value, 1, 86_400, "a number of seconds (1 to 86400)", "1")


def read_layers(value: object) -> int:
    """Read into how many layers the window of producer ids is divided."""
    return _integer(value, 1, 64, "a number of layers (1 to 64)", "4")


def read_rate_samples(value: object) -> int:
    """Read in how many samples of its window the rate of new producer ids is measured."""
    what = "a number of samples, whole ones and the running one (2 to 1000)"
    return _integer(value, 2, 1_000, what, "11")


def read_sweep_ms(value: object) -> int:
    """Read how often is looked what of producer ids can be forgotten, in ms."""
    return _integer(value, 1_000, 3_600_000, "a number of ms (1000 to 3600000)", "60000")


def read_false_positives(value: object) -> float:
    """Read which part of new producer ids may be taken for known ones."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 1e-9 <= float(str(value)) <= 0.5:
        raise _refuse(value, "a probability (1e-9 to 0.5)", "0.01")
    return float(str(value))


def read_refusal(value: object) -> ErrorCode:
    """Read what a partition is answered whose batch is refused for its producer id."""
    name = read_choice(value, [code.name for code in reversed(REFUSALS)])
    return ErrorCode[name]


def read_size_bytes(value: object) -> int:
    """Read a size in bytes, with or without a unit."""
    example = '"64MiB"'
    try:
        size = parse_bytes(value) if isinstance(value, str) else value
    except ValueError:
        size, example = None, suggested_bytes(str(value)) or example
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 2**53:
        raise _refuse(value, "a size of at least 1 byte", example)
    return size


def read_time_ms(value: object) -> int:
    """Read a time with its unit; return milliseconds."""
    try:
        time_ms = parse_duration_ms(value) if isinstance(value, str) else 0
    except (ValueError, OverflowError):
        time_ms = 0
    if not 1 <= time_ms <= 2**40:
        example = _example_of_time(value, '"30s"')
        raise _refuse(value, "a time with its unit, between 1 ms and 30 years", example)
    return time_ms


def read_algorithm(value: object) -> Algorithm:
    """Read how counters hold charges against their limit."""
    if value not in set(Algorithm):
        raise _refuse(value, 'an algorithm ("sampled_rate" or "token_bucket")', '"token_bucket"')
    return Algorithm(str(value))


def read_choice(value: object, choices: Sequence[str]) -> str:
    """Read one of some words."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        raise _refuse(value, f"one of {listed}", f'"{choices[-1]}"')
    return value


def read_users(value: object) -> list[str]:
    """Read a list of users' names, as they log in."""
    names = _texts(value, "a list of users' names", '["admin"]')
    for name in names:
        if name == ANONYMOUS:
            msg = (
                f'"{name}" is everybody who does not log in. Write the hosts from which they come.'
            )
            raise ValueError(msg)
        if name.startswith("User:"):
            plain = name.removeprefix("User:")
            raise _refuse(name, "a name as users log in with it", f'"{plain}"')
    return names


def read_addresses(value: object) -> set[str]:
    """Read a list of hosts; names are looked up now."""
    found: set[str] = set()
    for host in _texts(value, "a list of hosts", '["10.1.2.3"]'):
        found |= _addresses(read_host(host))
    return found


def _texts(value: object, expected: str, example: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise _refuse(value, expected, example)
    return value


def read_factor_scope(value: object) -> str:
    """Read for whom the throttle factor of a volume holds."""
    if value not in {"cluster", "broker"}:
        raise _refuse(value, 'a scope ("cluster" or "broker")', '"cluster"')
    return str(value)


def read_burst_ms(value: object) -> int:
    """Read a burst as a time at the limit; return milliseconds."""
    return _span_ms(value, 1, "a time at the limit, between 1 ms and 1 h", '"1s"')


def read_debt_max_ms(value: object) -> int:
    """Read a debt as a time at the limit, from 0 on; return milliseconds."""
    return _span_ms(value, 0, "a time at the limit, between 0 s and 1 h", '"15s"')


def _span_ms(value: object, low_ms: int, expected: str, example: str) -> int:
    try:
        span_ms = parse_duration_ms(value) if isinstance(value, str) else -1
    except (ValueError, OverflowError):
        span_ms = -1
    if not low_ms <= span_ms <= 3_600_000:
        raise _refuse(value, expected, _example_of_time(value, example))
    return span_ms


def _example_of_time(value: object, example: str) -> str:
    """What was probably meant where it is no time at all, else an example."""
    meant = suggested_duration(value) if isinstance(value, str) else None
    return example if meant is None or meant == f'"{value}"' else meant


def read_host(value: object) -> str:
    """Read a host name or an address."""
    problem = _host_problem(value) if isinstance(value, str) else "not a text"
    if problem:
        raise _refuse(value, f"a host name ({problem})", '"kafka.prod.example"')
    return str(value)


def read_hosts(value: object) -> tuple[str, ...]:
    """Read a list of host names."""
    if not isinstance(value, list):
        raise _refuse(value, "a list of host names", '["kvota.prod.example"]')
    return tuple(read_host(name) for name in value)


def read_networks(value: object) -> tuple[IPv4Network | IPv6Network, ...]:
    """Read a list of addresses and networks, which is not empty."""
    example = '["10.0.0.7", "10.1.0.0/16"]'
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise _refuse(value, "a list of addresses and networks", example)
    try:
        return tuple(ip_network(one) for one in value)
    except ValueError:
        raise _refuse(value, "a list of addresses and networks", example) from None


def _host_problem(host: str) -> str:
    if not host:
        return "empty"
    if len(host) > 253:
        return "longer than 253 characters"
    if ":" in host and re.fullmatch(r"[0-9A-Fa-f:.]+", host):
        return ""  # IPv6
    for label in host.removesuffix(".").split("."):
        if not label:
            return "empty label"
        if not _HOST_LABEL.fullmatch(label):
            return f'"{label}" has a character that no host name has'
    return ""


def read_servers(value: object) -> list[tuple[str, int]]:
    """Read one or more host:port, as a list or a text with commas."""
    texts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise _refuse(value, "a list of host:port", '["127.0.0.1:9092"]')
    if isinstance(value, str) and any(" " in text for text in texts):
        meant = ", ".join(f'"{text}"' for text in value.replace(",", " ").split())
        raise _refuse(value, "a list of host:port", f"[{meant}]")
    return [_server(text) for text in texts]


def _server(text: object) -> tuple[str, int]:
    try:
        host, port = parse_address(text if isinstance(text, str) else "")
    except ValueError:
        raise _refuse(text, "host:port", '"127.0.0.1:9092"') from None
    return read_host(host), port


def read_connections_per_ip(value: object) -> int:
    """Read how many connections one address may have; 0: none."""
    return _integer(value, 0, 2**31 - 1, "a number of connections (0 to 2147483647)", "100")


def read_idle_ms(value: object) -> int:
    """Read for how long a connection may be idle, in ms; -1: for ever."""
    if value == -1:
        return -1
    what = "a number of ms (1000 to 2147483647, or -1: no connection is closed for it)"
    return _integer(value, 1_000, 2**31 - 1, what, "600000")


def read_connections_per_ip_overrides(value: object) -> dict[str, int]:
    """Read Kafka's host:number,host:number; names are looked up now, so the keys are addresses."""
    expected, example = "host:number, with commas between", '"127.0.0.1:200,batch-1:50"'
    if not isinstance(value, str):
        raise _refuse(value, expected, example)
    numbers: dict[str, int] = {}
    for part in filter(None, (text.strip() for text in value.split(","))):
        host, colon, number = part.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not colon or not number.strip().isdecimal() or int(number) > 2**31 - 1:
            raise _refuse(part, expected, example)
        for address in _addresses(read_host(host)):
            numbers[address] = int(number)
    return numbers


def _addresses(host: str) -> set[str]:
    found = ips_of(host)
    if not found:
        msg = f'"{host}" has no address. Write one, or a name that this machine can look up.'
        raise ValueError(msg)
    return found


def read_node_range(value: object) -> tuple[int, int]:
    """Read the first and the last node id of a range such as "0-9"."""
    match = _NODE_RANGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _refuse(value, "a range of node ids", '"0-9"')
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if last < first:
        raise _refuse(value, "a range from low to high", '"0-9"')
    if last - first >= NODES_MAX:
        raise _refuse(value, f"a range of at most {NODES_MAX} nodes (one port each)", '"0-9"')
    return first, last
