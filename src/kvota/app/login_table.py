"""``[logins]`` of gateway.toml: whose quotas hold where the name behind a login cannot be read, by mechanism."""

import re
from collections.abc import Mapping

from kvota.app import config_values as values
from kvota.app.config_reader import Reader
from kvota.session.principal import NAMED_LOGINS

# RFC 4422.
_MECHANISM = re.compile("[A-Z0-9_-]{1,20}")


def read_logins(reader: Reader) -> Mapping[str, str]:
    """Return the user of each mechanism that stands there."""
    table = reader.table("logins")
    users = {}
    for mechanism in table.data:
        if mechanism in NAMED_LOGINS:
            problem = "who logs in so is who he says, and the gateway reads it"
            table.fault(mechanism, problem, "Take it away.")
        elif not _MECHANISM.fullmatch(mechanism):
            problem = f'"{mechanism}" is not the name of a SASL mechanism'
            table.fault(mechanism, problem, 'Write e.g. GSSAPI = "kerberos".')
        else:
            users[mechanism] = table.value(mechanism, "", values.read_user)
    return users
