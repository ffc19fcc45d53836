"""From the suite or alias that a request names to the suite version that is served."""

from __future__ import annotations

import asyncio

from reward_proto import v1

from reward_service.aliases import ALIAS_ID, AliasStore
from reward_service.errors import ProblemError, unknown
from reward_service.suites import Suites

ALIASES_ARE_OFF = "aliases are off: set REWARD_STORE to the path of a file to keep them in"


async def find_suite(asked: str, suites: Suites, aliases: AliasStore | None) -> v1.SuiteInfo:
    """The suite of that id, or the one that the alias of that name points at now.

    Raises ProblemError 404: unknown, no aliases here, or an alias whose target is not served; StoreError.
    """
    found = suites.get(asked)
    if found is not None:
        return found
    if not ALIAS_ID.fullmatch(asked):
        raise unknown("suite", asked, [one.id for one in suites])
    if aliases is None:
        raise ProblemError(404, f"no suite has that id, and {ALIASES_ARE_OFF}")
    alias = await asyncio.to_thread(aliases.get, asked)
    if alias is None:
        known = [one.alias for one in await asyncio.to_thread(aliases.all)]
        raise unknown("suite", asked, [*known, *(one.id for one in suites)])
    target = suites.get(alias.target)
    if target is None:
        name = asked.partition("@")[0]
        raise ProblemError(
            404,
            f"that alias points at {alias.target}, which is not served here; serve it again (REWARD_SUITES), "
            f"or move the alias with PUT {v1.ALIASES_PATH}",
            nearest=[one.id for one in suites if one.id.partition("@")[0] == name],
        )
    return target
