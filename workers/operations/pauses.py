"""Pause and resume an agent, a channel or an account: what comes in is admitted all the same, and its turns wait.

    agent             no turn of it begins; what its turns have journalled is still sent
    channel, account  no turn for it begins, and nothing new is sent there: an operator who pauses it wants silence

What runs or is under way at that moment comes to its end. It holds in every worker, restarted ones included, until
it is resumed.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from workers.operations import audit, store
from workers.operations.errors import ActRefused
from workers.postgres.database import Database
from workers.postgres.sql import load

INSERT_PAUSE = load(__package__, "insert_pause")
DELETE_PAUSE = load(__package__, "delete_pause")
LIST_PAUSES = load(__package__, "list_pauses")
HOLD_SENDS = load(__package__, "hold_sends")
RELEASE_SENDS = load(__package__, "release_sends")
IS_AGENT_KNOWN = load(__package__, "is_agent_known")

PauseKind = Literal["agent", "channel", "account"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a pause is about; `name` is the agent or the channel, `account` is empty unless it is an account's."""

    kind: PauseKind
    name: str
    account: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f"/{self.account}" if self.account else "")


@dataclass(frozen=True, slots=True)
class PauseLine:
    """One pause."""

    kind: PauseKind
    name: str
    account: str
    paused_at: datetime
    actor: str
    reason: str | None


async def list_pauses(database: Database) -> list[PauseLine]:
    """What is paused now, the oldest first."""
    return [PauseLine(*row) for row in await database.fetch(LIST_PAUSES)]


async def is_agent_known(database: Database, agent: str) -> bool | None:
    """Whether a living worker has this agent; None where no worker says."""
    row = await database.fetchrow(IS_AGENT_KNOWN, agent)
    known: bool | None = None if row is None else row["known"]
    return known


async def pause(database: Database, target: Target, actor: str, reason: str | None = None) -> None:
    """Pause it until `resume`. Raises ActRefused where it is paused already."""
    async with database.transaction() as tx:
        place = (target.kind, target.name, target.account)
        if await tx.fetchrow(INSERT_PAUSE, *place, actor, reason) is None:
            raise ActRefused(
                str(target), "it is paused already", "`parley pauses` says since when and by whom"
            )
        if target.kind != "agent":
            await tx.execute(HOLD_SENDS, target.name, target.account)
        await audit.record(tx, actor, "pause", str(target), {"kind": target.kind, "reason": reason})
        await store.hint(tx, "pauses")


async def resume(database: Database, target: Target, actor: str) -> None:
    """Let it go on. Raises ActRefused where it is not paused."""
    async with database.transaction() as tx:
        if await tx.fetchrow(DELETE_PAUSE, target.kind, target.name, target.account) is None:
            raise ActRefused(str(target), "it is not paused", "`parley pauses` lists what is")
        if target.kind != "agent":
            await tx.execute(RELEASE_SENDS, target.name, target.account)
        await audit.record(tx, actor, "resume", str(target), {"kind": target.kind})
        await store.hint(tx, "pauses")
