"""Users' SCRAM credentials (KIP-554; Kafka 2.7 and newer). Passwords never leave this process, only what is made of them."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from kvota.admin.operation import Operation, Outcome
from kvota.client import CONTROLLER, Answer, Fields, UsageError
from kvota.wire.error_code import ErrorCode

DESCRIBE_USER_SCRAM_CREDENTIALS, ALTER_USER_SCRAM_CREDENTIALS = 50, 51
# Brokers take these.
_ITERATIONS = range(4_096, 16_385)


class ScramMechanism(IntEnum):
    """The names are Kafka's."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """What a broker tells of a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A credential that is set, whether there was one or not.

    Attributes:
        user: the plain name.
        mechanism: its.
        password: it is in no text.
        iterations: of the hash, 4,096 to 16,384.
        salt: else one by chance.

    Raises:
        UsageError: so many iterations are not taken, or the name or the password is empty.
    """

    user: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    iterations: int = 4_096
    salt: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what a broker would, before the password is hashed."""
        if not self.user or not self.password:
            msg = f'the credential of user "{self.user}" needs a name and a password'
            raise UsageError(msg)
        if self.iterations not in _ITERATIONS:
            msg = (
                f'the credential of user "{self.user}": {self.iterations} iterations; brokers take '
                f"{_ITERATIONS[0]} to {_ITERATIONS[-1]}"
            )
            raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A credential that is removed."""

    user: str
    mechanism: ScramMechanism


UserScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion
Credentials = tuple[ScramCredentialInfo, ...]


def description_of_all() -> Operation[None, dict[str, Credentials]]:
    """What is asked: everybody who has credentials."""

    def outcomes(answer: Answer) -> Iterable[Outcome[None, dict[str, Credentials]]]:
        found = {str(result.user): _credentials(result) for result in answer.results}
        yield Outcome(None, int(answer.error_code), answer.error_message, found)

    return Operation(
        api_key=DESCRIBE_USER_SCRAM_CREDENTIALS,
        what=lambda _: "SCRAM credentials cannot be described",
        content=lambda _version, _keys, _left_ms: {"users": None},
        outcomes=outcomes,
        to=CONTROLLER,
    )


def description(users: Sequence[str]) -> Operation[str, Credentials]:
    """What is asked of these users; who has no credentials has an error."""

    def content(_version: int, names: Sequence[str], _left_ms: int) -> Fields:
        return {"users": [{"name": name} for name in names]}

    def outcomes(answer: Answer) -> Iterable[Outcome[str, Credentials]]:
        code = int(answer.error_code)
        if code:
            for user in users:
                yield Outcome(user, code, answer.error_message, ())
        for result in answer.results:
            error, message = int(result.error_code), result.error_message
            yield Outcome(str(result.user), error, message, _credentials(result))

    return Operation(
        api_key=DESCRIBE_USER_SCRAM_CREDENTIALS,
        what=lambda user: f'the SCRAM credentials of user "{user}" cannot be described',
        content=content,
        outcomes=outcomes,
        to=CONTROLLER,
    )


def _credentials(result: Answer) -> Credentials:
    return tuple(
        ScramCredentialInfo(ScramMechanism(int(info.mechanism)), int(info.iterations))
        for info in result.credential_infos
    )


def alteration(
    alterations: Iterable[UserScramCredentialAlteration],
) -> tuple[Sequence[str], Operation[str, None]]:
    """Which users, and what is asked; it hashes each password, which takes some milliseconds.

    Raises:
        UsageError: a credential is altered twice.
    """
    by_user: dict[str, dict[ScramMechanism, Fields]] = {}
    deleted: set[tuple[str, ScramMechanism]] = set()
    for each in alterations:
        of_user = by_user.setdefault(each.user, {})
        if each.mechanism in of_user:
            msg = f'the {each.mechanism.name} credential of user "{each.user}" is altered twice'
            raise UsageError(msg)
        if isinstance(each, UserScramCredentialDeletion):
            deleted.add((each.user, each.mechanism))
            of_user[each.mechanism] = {"name": each.user, "mechanism": int(each.mechanism)}
        else:
            of_user[each.mechanism] = _upsertion(each)

    def content(_version: int, users: Sequence[str], _left_ms: int) -> Fields:
        return _request(by_user, deleted, users)

    return list(by_user), Operation(
        api_key=ALTER_USER_SCRAM_CREDENTIALS,
        what=lambda user: f'the SCRAM credentials of user "{user}" cannot be altered',
        content=content,
        outcomes=_altered,
        to=CONTROLLER,
        changes=True,
        doubtful=frozenset({ErrorCode.RESOURCE_NOT_FOUND}),
    )


def _request(
    by_user: Mapping[str, Mapping[ScramMechanism, Fields]],
    deleted: set[tuple[str, ScramMechanism]],
    users: Sequence[str],
) -> Fields:
    deletions: list[Fields] = []
    upsertions: list[Fields] = []
    for user in users:
        for mechanism, fields in by_user[user].items():
            (deletions if (user, mechanism) in deleted else upsertions).append(fields)
    return {"deletions": deletions, "upsertions": upsertions}


def _upsertion(wanted: UserScramCredentialUpsertion) -> Fields:
    salt = secrets.token_bytes(32) if wanted.salt is None else wanted.salt
    name = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
    return {
        "name": wanted.user,
        "mechanism": int(wanted.mechanism),
        "iterations": wanted.iterations,
        "salt": salt,
        "salted_password": hashlib.pbkdf2_hmac(
            name[wanted.mechanism], wanted.password.encode(), salt, wanted.iterations
        ),
    }


def _altered(answer: Answer) -> Iterable[Outcome[str, None]]:
    for result in answer.results:
        yield Outcome(str(result.user), int(result.error_code), result.error_message, None)
