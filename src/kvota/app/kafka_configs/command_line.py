"""A command line of ``kafka-configs.sh``, read and checked as Kafka's tool does; source: ConfigCommand of Kafka 4.3."""

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kvota.client.properties import read_properties
from kvota.model.errors import UsageError

USERS, CLIENTS, IPS, BROKERS, TOPICS = "users", "clients", "ips", "brokers", "topics"
_KNOWN = (TOPICS, CLIENTS, USERS, BROKERS, IPS)
# Kafka's tool goes through them in this order.
_FLAGS = {"topic": TOPICS, "client": CLIENTS, "user": USERS, "broker": BROKERS, "ip": IPS}
_DEFAULT_FLAGS = {
    "client_defaults": CLIENTS,
    "user_defaults": USERS,
    "broker_defaults": BROKERS,
    "ip_defaults": IPS,
}
_ONCE = ("bootstrap_server", "command_config", "add_config", "add_config_file", *_FLAGS)

_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_COMMA = re.compile("," + _OUTSIDE_BRACKETS)
_EQUALS = re.compile(r"\s*=\s*" + _OUTSIDE_BRACKETS, re.ASCII)
_BRACKETS = re.compile(r"\[?\]?")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ID = re.compile(r"[+-]?[0-9]{1,10}")
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What is asked for.

    Attributes:
        types: ``users`` and ``clients`` together, or one type.
        names: of the first types; empty: the default.
        added: settings and their values, as text.
        deleted: names of settings.
        alters: whether it alters; else it describes.
        describes_all: settings that are not dynamic, too.
    """

    types: tuple[str, ...]
    names: tuple[str, ...]
    added: Mapping[str, str]
    deleted: Sequence[str]
    alters: bool
    describes_all: bool

    @property
    def is_of_quotas(self) -> bool:
        """Whether it is about users, clients or ips."""
        return self.types[0] not in {BROKERS, TOPICS}


def read_command_line(args: Namespace) -> CommandLine:
    """Check the options as a whole.

    Raises:
        UsageError: they cannot stand together, or one of them is missing.
    """
    _check_once(args)
    if args.alter == args.describe:
        _refuse("say what to do: either --alter or --describe")
    if args.describe and (args.add_config or args.delete_config):
        _refuse("--add-config and --delete-config belong to --alter")
    by_flag = {name: kind for name, kind in _FLAGS.items() if getattr(args, name)}
    by_default = {name: kind for name, kind in _DEFAULT_FLAGS.items() if getattr(args, name)}
    types = (*args.entity_type, *by_flag.values(), *by_default.values())
    names = (
        *args.entity_names,
        *(getattr(args, flag)[0] for flag in by_flag),
        *map(_empty, by_default),
    )
    if (args.entity_type or args.entity_names) and (by_flag or by_default):
        _refuse(
            "--entity-type, --entity-name and --entity-default do not go with --user, --client, …"
        )
    _check_types(types)
    _check_names(args, types, names)
    if args.alter:
        _check_alteration(args, types, names)
    elif len(names) > len(types):
        _refuse("there are more names than entity types")
    return CommandLine(
        types=types,
        names=names,
        added=_added(args) if args.alter else {},
        deleted=_deleted(args.delete_config),
        alters=args.alter,
        describes_all=args.all,
    )


def _empty(_flag: str) -> str:
    return ""


def _check_once(args: Namespace) -> None:
    for name in _ONCE:
        if len(getattr(args, name)) > 1:
            _refuse(f"--{name.replace('_', '-')} is there twice; which holds?")
    if not args.bootstrap_server:
        _refuse("say where to ask: --bootstrap-server HOST:PORT")


def _check_types(types: Sequence[str]) -> None:
    for kind in types:
        if kind not in _KNOWN:
            _refuse(f'--entity-type: "{kind}" is not one of {", ".join(_KNOWN)}')
        if types.count(kind) > 1:
            _refuse(f"--entity-type {kind} is there twice")
    if not types:
        _refuse("name an entity type: --entity-type, or --user, --client, --ip, --broker, --topic")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        _refuse("only users and clients stand together")


def _check_names(args: Namespace, types: Sequence[str], names: Sequence[str]) -> None:
    for name in filter(None, names):
        if BROKERS in types and not _is_id(name):
            _refuse(f'a broker is named by its id, a whole number, not by "{name}"')
        if IPS in types and not _is_known_host(name):
            _refuse(f'"{name}" is neither an IP address nor a host that can be looked up')
        if TOPICS in types and (name in {".", ".."} or not _TOPIC.fullmatch(name)):
            _refuse(f'"{name}" cannot be a topic: up to 249 of a-z, A-Z, 0-9, ".", "_", "-"')
    if args.describe and "" in args.entity_names and TOPICS in types:
        _refuse("topics have no --entity-default")


def _is_id(name: str) -> bool:
    return bool(_ID.fullmatch(name)) and -(2**31) <= int(name) < 2**31


def _is_known_host(name: str) -> bool:
    import socket

    try:
        socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return True


def _check_alteration(args: Namespace, types: Sequence[str], names: Sequence[str]) -> None:
    if not names or (TOPICS in types and not any(names)):
        _refuse("name whose settings are altered: --entity-name or --entity-default")
    if args.add_config and args.add_config_file:
        _refuse("--add-config and --add-config-file do not go together")
    if not (args.add_config or args.add_config_file or args.delete_config):
        _refuse("say what is altered: --add-config, --add-config-file or --delete-config")
    if len(names) != len(types):
        _refuse("each entity type needs a name: --entity-name or --entity-default")


def _added(args: Namespace) -> Mapping[str, str]:
    found: dict[str, str] = {}
    if args.add_config_file:
        found.update(read_properties(Path(args.add_config_file[0])))
    for text in args.add_config:
        found.update(_pairs(text))
    for key in found:
        if not _KEY.fullmatch(key):
            _refuse(f'--add-config: "{key}" is not the name of a setting')
    return found


def _pairs(text: str) -> Mapping[str, str]:
    """``a=1,b=[2,3]``; a value may be a secret, and is in no text."""
    parts = _COMMA.split(text)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    found: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        key, *values = _EQUALS.split(part)
        if len(values) != 1:
            _refuse(
                f"--add-config: part {number} is not name=value; a value with commas stands in brackets: name=[a,b]"
            )
        found[key.strip()] = _BRACKETS.sub("", values[0]).strip()
    return found


def _deleted(texts: Sequence[str]) -> Sequence[str]:
    return [
        name.strip()
        for text in texts
        for name in [part for part in text.split(",") if part] or [text]
    ]


def _refuse(sentence: str) -> NoReturn:
    raise UsageError(sentence)
