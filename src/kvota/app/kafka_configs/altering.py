"""``--alter``."""

import difflib
import re
from collections.abc import Collection, Mapping

from kvota.admin import (
    DEFAULT,
    AdminClient,
    AlterConfigOp,
    BrokerError,
    ClientQuotaAlteration,
    OpType,
    QuotaEntity,
    ScramMechanism,
    UsageError,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kvota.app.kafka_configs.command_line import CLIENTS, IPS, USERS, CommandLine
from kvota.app.kafka_configs.described_quotas import described_quotas
from kvota.app.kafka_configs.describing import resource_of
from kvota.app.kafka_configs.java_numbers import read_double
from kvota.app.kafka_configs.output import Output
from kvota.model.client_quotas import KEYS, PRODUCER_IDS_KEY
from kvota.wire.error_code import ErrorCode

_SCRAM = {each.name.replace("_", "-"): each for each in ScramMechanism}
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
_ITERATIONS = 4_096


async def alter(admin: AdminClient, line: CommandLine, output: Output) -> None:
    """Do what the line asks for, and say so; all of it, or nothing.

    Raises:
        UsageError: it cannot be asked for so, or a quota to be deleted is not set; nothing was altered.
        KvotaError: brokers refuse or do not answer.
    """
    if not line.is_of_quotas:
        await _alter_settings(admin, line)
    elif _SCRAM.keys() & {*line.added, *line.deleted}:
        await _alter_credentials(admin, line)
    else:
        await _alter_quotas(admin, line)
    output.altered(line.types, line.names)


# ------------------------------------------------------------------ quotas


async def _alter_quotas(admin: AdminClient, line: CommandLine) -> None:
    values = {key: _number(key, value) for key, value in line.added.items()}
    twice = [key for key in line.deleted if line.deleted.count(key) > 1 or key in values]
    if twice:
        msg = f'"{twice[0]}" is there twice: delete it or give it a value'
        raise UsageError(msg)
    names = {
        kind: DEFAULT if name == "" else name
        for kind, name in zip(line.types, line.names, strict=True)
    }
    entity = QuotaEntity(user=names.get(USERS), client_id=names.get(CLIENTS), ip=names.get(IPS))
    in_force: Mapping[str, float] = (await described_quotas(admin, line)).get(entity, {})
    _check_set(line, in_force)
    changes: dict[str, float | None] = {**values, **dict.fromkeys(line.deleted)}
    if not changes:
        return
    results = await admin.alter_client_quotas([ClientQuotaAlteration(entity, changes)])
    error = results.exception(entity)
    if isinstance(error, BrokerError) and error.code == ErrorCode.INVALID_REQUEST:
        msg = f"{error}{_hint(line, entity, error.message or '')}"
        raise UsageError(msg) from error
    results.all()


def _number(key: str, value: str) -> float:
    number = read_double(value)
    if number is None:
        msg = f'{key}: "{value}" is not a number; bytes per second, percent or mutations per second stand without a unit'
        raise UsageError(msg)
    return number


def _check_set(line: CommandLine, in_force: Collection[str]) -> None:
    missing = [key for key in line.deleted if key not in in_force]
    if missing:
        known = f"set are {', '.join(sorted(in_force))}" if in_force else "nothing is set"
        msg = f"not set, so they cannot be deleted: {', '.join(missing)}; {known}"
        raise UsageError(msg)


def _hint(line: CommandLine, entity: QuotaEntity, message: str) -> str:
    """What to do where the brokers do not know a key."""
    if "Invalid configuration key" not in message:
        return ""
    fitting = [name for name, key in KEYS.items() if key.fits(entity.types)]
    unknown = next((key for key in line.added if key not in fitting), None)
    if unknown is None:
        if PRODUCER_IDS_KEY in line.added:
            return ". No broker has that quota: it is the gateway's (--bootstrap-server HOST:PORT of kvota's gateway)"
        return ". These brokers do not know that key; it came with a later Kafka"
    near = difflib.get_close_matches(unknown, fitting, n=1)
    meant = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(fitting)}"
    return f". These brokers know no such key of {' and '.join(line.types)}; {meant}"


# ------------------------------------------------------------------ credentials


async def _alter_credentials(admin: AdminClient, line: CommandLine) -> None:
    if line.types != (USERS,) or line.names == ("",):
        msg = "SCRAM credentials are of one user: --user NAME"
        raise UsageError(msg)
    others = {*line.added, *line.deleted} - _SCRAM.keys()
    if others:
        msg = f"alter SCRAM credentials and {', '.join(sorted(others))} one after the other"
        raise UsageError(msg)
    (user,) = line.names
    deletions = [UserScramCredentialDeletion(user, _SCRAM[name]) for name in line.deleted]
    upsertions = [_credential(user, name, value) for name, value in line.added.items()]
    (await admin.alter_user_scram_credentials([*deletions, *upsertions])).all()


def _credential(user: str, mechanism: str, value: str) -> UserScramCredentialUpsertion:
    """Read ``iterations=4096,password=…``; the password is in no text."""
    found = _CREDENTIAL.fullmatch(value)
    iterations = None if found is None else found[1]
    if found is None or iterations in {"", "-"}:
        msg = f"{mechanism}: write [password=…] or [iterations={_ITERATIONS},password=…]"
        raise UsageError(msg)
    count = _ITERATIONS if iterations in {None, "-1"} else int(str(iterations))
    return UserScramCredentialUpsertion(user, _SCRAM[mechanism], found[2], count)


# ------------------------------------------------------------------ brokers and topics


async def _alter_settings(admin: AdminClient, line: CommandLine) -> None:
    """Brokers take it without a word where a setting to be deleted is not set."""
    kind, name = line.types[0], line.names[0]
    changes = [AlterConfigOp(key, value) for key, value in line.added.items()]
    changes += [AlterConfigOp(key, op_type=OpType.DELETE) for key in line.deleted]
    resource = resource_of(kind, name)
    (await admin.incremental_alter_configs({resource: changes})).all()
