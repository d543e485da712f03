"""The tables of gateway.toml that say how the gateway encrypts: ``[gateway.tls]``, ``[listeners.NAME.tls]``, ``[upstream.tls]``."""

from pathlib import Path

from kvota.app import config_values as values
from kvota.app.config_reader import Reader, Table
from kvota.tls.client_tls import Tls, Version
from kvota.tls.pem import TlsSettingError
from kvota.tls.principal_mapping import MappingError, PrincipalMapper
from kvota.tls.secret import Secret
from kvota.tls.server_tls import ClientAuth, ServerTls, make_context

_OF_BOTH = ("certfile", "keyfile", "password_file", "password_env", "versions")
_OF_CLIENTS = ("client_auth", "client_cafile", "client_crlfile", "principal_mapping_rules")
_OF_LISTENER = (*_OF_BOTH, *_OF_CLIENTS, "ciphers")
_OF_UPSTREAM = (*_OF_BOTH, "cafile", "crlfile", "check_hostname")
_VERSIONS = {"TLSv1.2": Version.TLSv1_2, "TLSv1.3": Version.TLSv1_3}
_REMEDIES = {
    "cafile": "Name a PEM file with the certificate of who has signed the brokers'.",
    "certfile": "Name a PEM file with the certificate and its chain, or a PKCS #12 file.",
    "client_cafile": "Name a PEM file with the certificates of who signs those of clients.",
    "client_crlfile": "Name a PEM file with the lists of revoked certificates (CRLs) of who signs those of clients.",
    "crlfile": "Name a PEM file with the lists of revoked certificates (CRLs) of who has signed the brokers'.",
    "keyfile": "Name the PEM file with the certificate's key.",
    "password_env": "Start the gateway with the password in that variable.",
    "password_file": "Write the password into a file that only the gateway may read, and name that.",
    "ciphers": 'Write e.g. ciphers = "ECDHE+AESGCM".',
}


def read_listener_tls(reader: Reader, folder: Path, *path: str) -> ServerTls | None:
    """Read the table at this path; None: there is none. All files are read once, so what is wrong is said now."""
    table = _table(reader, path, _OF_LISTENER)
    if table is None:
        return None
    certfile = table.required("certfile", values.read_path, '"server.pem"')
    client_auth = ClientAuth(
        table.value("client_auth", "none", lambda value: values.read_choice(value, [*ClientAuth]))
    )
    client_cafile = _file(table, folder, "client_cafile")
    if client_auth is not ClientAuth.NONE and "client_cafile" not in table.data:
        problem = f'missing, and client_auth = "{client_auth}" asks clients for certificates'
        table.fault("client_cafile", problem, _REMEDIES["client_cafile"])
    client_crlfile = _file(table, folder, "client_crlfile")
    if client_auth is ClientAuth.NONE and client_crlfile is not None:
        problem = 'no client is asked for a certificate (client_auth = "none")'
        table.fault("client_crlfile", problem, 'Write client_auth = "required", or take it away.')
    lowest, highest = table.value("versions", _ALL_VERSIONS, _read_versions)
    tls = ServerTls(
        certfile=folder / (certfile or ""),
        keyfile=_file(table, folder, "keyfile"),
        password=_secret(table, folder),
        client_auth=client_auth,
        client_cafile=client_cafile,
        client_crlfile=client_crlfile,
        mapper=table.value("principal_mapping_rules", PrincipalMapper(), _read_mapper),
        version_min=lowest,
        version_max=highest,
        ciphers=table.value("ciphers", "", values.read_text),
    )
    if certfile is None or (client_auth is not ClientAuth.NONE and client_cafile is None):
        return tls
    try:
        make_context(tls)
    except TlsSettingError as error:
        _note(table, error)
    return tls


def read_upstream_tls(reader: Reader, folder: Path) -> Tls | None:
    """Read ``[upstream.tls]``; None: there is none. All files are read once."""
    table = _table(reader, ("upstream", "tls"), _OF_UPSTREAM)
    if table is None:
        return None
    lowest, highest = table.value("versions", _ALL_VERSIONS, _read_versions)
    password = _secret(table, folder)
    try:
        tls = Tls(
            cafile=_file(table, folder, "cafile"),
            certfile=_file(table, folder, "certfile"),
            keyfile=_file(table, folder, "keyfile"),
            password=password if password.is_set else None,
            crlfile=_file(table, folder, "crlfile"),
            check_hostname=table.value("check_hostname", True, values.read_boolean),  # noqa: FBT003
            version_min=lowest,
            version_max=highest,
        )
        tls.context()
    except TlsSettingError as error:
        _note(table, error)
        return None
    return tls


_ALL_VERSIONS = Version.TLSv1_2, Version.MAXIMUM_SUPPORTED


def _table(reader: Reader, path: tuple[str, ...], known: tuple[str, ...]) -> Table | None:
    above = reader.table(*path[:-1])
    if path[-1] not in above.data:
        return None
    reader.known(
        path,
        known,
        {"password": "A password stands in no settings: write password_file, or password_env."},
    )
    return reader.table(*path)


def _file(table: Table, folder: Path, key: str) -> Path | None:
    name = table.value(key, "", values.read_path)
    return folder / name if name else None


def _secret(table: Table, folder: Path) -> Secret:
    variable = table.value("password_env", "", values.read_text)
    if variable and "password_file" in table.data:
        table.fault("password_env", "password_file says the same", "Keep one of the two.")
    return Secret(
        file=None if variable else _file(table, folder, "password_file"), variable=variable
    )


def _note(table: Table, error: TlsSettingError) -> None:
    key = error.setting
    if key == "password":
        key = "password_env" if "password_env" in table.data else "password_file"
    problem, _, remedy = str(error).partition(". ")
    table.fault(key, problem, f"{remedy.rstrip('.')}." if remedy else _REMEDIES[key])


def _read_versions(value: object) -> tuple[Version, Version]:
    names = value if isinstance(value, list) else []
    if not names or not all(isinstance(name, str) and name in _VERSIONS for name in names):
        msg = f'{value!r} is not a list of versions of TLS. Write e.g. ["TLSv1.2", "TLSv1.3"].'
        raise ValueError(msg)
    found = [_VERSIONS[name] for name in names]
    return min(found), max(found)


def _read_mapper(value: object) -> PrincipalMapper:
    try:
        return PrincipalMapper(values.read_text(value))
    except MappingError as error:
        msg = f'{error}. Write rules as in Kafka\'s ssl.principal.mapping.rules, e.g. "RULE:^CN=(.*?),.*$/$1/,DEFAULT".'
        raise ValueError(msg) from error
