"""Whose delegation tokens are (KIP-48): their owners never cross the wire, so the cluster is asked.

A token's owner never changes. So what is once known stays, and all tokens are described again only for one that is not
known: one description at a time serves everybody who asks meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from kvota.model.errors import KvotaError
from kvota.session.outside import Owner

# Another broker than the one that has taken a login may learn of the token a little later.
_TRIES, _PAUSE_S = 5, 0.4
# All of it; a client waits that long for its first answer.
_FIND_S = 5.0
# What was not found is not looked for again so soon: each look describes all tokens there are.
_UNKNOWN_S = 10.0
# Beside those that there are: of them that were not found.
_UNKNOWN_MAX = 10_000
_NOT_SEEN = "the gateway's own login does not see this token: it needs DESCRIBE on DelegationToken, or the token has ended"


class TokenOwners:
    """Finds the owners of tokens that a broker has accepted.

    Args:
        describe: returns the owner of each token that there is.
    """

    def __init__(self, describe: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        self._describe = describe
        self._owners: Mapping[str, str] = {}
        self._unknown_until_s: dict[str, float] = {}
        self._describing = asyncio.Lock()
        self._described = 0

    async def owner_of(self, token_id: str) -> Owner:
        """Find whose it is; whatever goes wrong is said in what is returned."""
        loop = asyncio.get_running_loop()
        known = self._owners.get(token_id)
        if known is not None:
            return Owner(known)
        if self._unknown_until_s.get(token_id, 0) > loop.time():
            return Owner(None, _NOT_SEEN)
        try:
            async with asyncio.timeout(_FIND_S):
                found = await self._look_for(token_id)
        except TimeoutError:
            return Owner(None, f"the brokers have not told whose tokens are within {_FIND_S:g} s")
        except KvotaError as error:
            return Owner(None, f"whose tokens are cannot be asked: {error}")
        if found is not None:
            return Owner(found)
        if len(self._unknown_until_s) >= _UNKNOWN_MAX:
            self._unknown_until_s.clear()
        self._unknown_until_s[token_id] = loop.time() + _UNKNOWN_S
        return Owner(None, _NOT_SEEN)

    async def _look_for(self, token_id: str) -> str | None:
        for number in range(_TRIES):
            if number:
                await asyncio.sleep(_PAUSE_S)
            described = self._described
            async with self._describing:
                if described == self._described:  # else somebody has, while this one waited
                    self._owners = await self._describe()
                    self._described += 1
            if token_id in self._owners:
                return self._owners[token_id]
        return None
