"""A database in which events are admitted and turns claimed by the engine itself, for an operator to act upon."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from schemas.identity import Principal
from schemas.run import RunStatus, new_uuid7
from tests.schemas.samples import an_event
from workers.admission.policy import Admitted, Outcome
from workers.admission.service import Admission
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.delivery.journal import NewDelivery, journal
from workers.intake.policy import candidate
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations
from workers.postgres.database import Database
from workers.turns.claim import Claimed, Claims
from workers.turns.policy import Caps, Ended, TryAgain
from workers.turns.settle import Settlement, Settlements

_numbers = count(1)


async def idle(turn: Turn) -> None:
    """An agent that is never really run here."""


async def allow(access: Access) -> Allow:
    return Allow()


def an_agent(name: str = "helper", **changes: Any) -> Agent:
    fields: dict[str, Any] = {"conversation": True, "subscriptions": [Subscription("slack")], **changes}
    return Agent(name, runs=idle, **fields)


@dataclass(slots=True)
class OperatorDesk:
    db: Database
    agents: Mapping[str, Agent] = field(default_factory=lambda: {"helper": an_agent()})

    async def admit(self, agent: str = "helper", **changes: Any) -> Outcome | Exception:
        """One event, admitted for `agent`."""
        number = next(_numbers)
        fields = {
            "event_id": f"Ev.{number}",
            "message_id": f"m.{number}",
            "principal": Principal("U1"),
            **changes,
        }
        event = an_event(**fields)
        event._raw = event.encode()
        asked = candidate(self.agents[agent], event, new_uuid7(), None)
        return (await Admission(self.db).admit([asked]))[0]

    async def a_queued_run(self, agent: str = "helper", **changes: Any) -> UUID:
        outcome = await self.admit(agent, **changes)
        assert isinstance(outcome, Admitted), outcome
        return outcome.run_id

    async def claim(self) -> dict[UUID, Claimed]:
        """Every turn that may run now, claimed by a worker session of its own."""
        session_id = uuid.uuid4()
        await self.db.execute(
            "insert into worker_sessions (id, worker, lease_until) values ($1, 'w', now() + interval '1 hour')",
            session_id,
        )
        claims = Claims(self.db, self.agents, Conversations(allow), Caps())
        return {turn.own.run_id: turn for turn in (await claims.claim(session_id, ())).turns}

    async def let_back_off(self, turn: Claimed) -> None:
        """The turn keeps its lane and waits an hour for its next try."""
        settlements = Settlements(self.db)
        await settlements.settle(Settlement(turn, TryAgain(timedelta(hours=1), "peer is away")))
        await settlements.close()

    async def let_end(self, turn: Claimed) -> None:
        """The turn has done its work; what it journalled may still be unsent."""
        settlements = Settlements(self.db)
        await settlements.settle(Settlement(turn, Ended(RunStatus.SUCCEEDED)))
        await settlements.close()

    async def a_pending_reply(self, turn: Claimed) -> UUID:
        """A recalled reply of the turn that nobody has sent yet."""
        delivery_id = new_uuid7()
        key = f"{turn.own.run_id}:1:0"
        reply = NewDelivery(
            delivery_id,
            key,
            key,
            0,
            turn.own.run_id,
            turn.own.lane_id,
            turn.head.generation,
            turn.head.agent,
            True,
            "slack",
            "T1",
            "C1",
            "a planted word",
        )
        async with self.db.transaction() as tx:
            await journal(tx, [reply])
        return delivery_id

    async def status(self, run_id: UUID) -> tuple[str, str | None]:
        row = await self.db.fetchrow("select status, reason from runs where id = $1", run_id)
        assert row is not None
        return row["status"], row["reason"]

    async def value(self, statement: str, *arguments: object) -> Any:
        """The first column of the one row of `statement`."""
        row = await self.db.fetchrow(statement, *arguments)
        return None if row is None else row[0]

    async def acts(self) -> list[tuple[str, str, str]]:
        """(actor, act, subject) of the audit, in order."""
        rows = await self.db.fetch("select actor, act, subject from audit order by id")
        return [(row["actor"], row["act"], row["subject"]) for row in rows]

    async def rows_of_every_table(self) -> dict[str, int]:
        """How many rows each table of the schema holds."""
        tables = await self.db.fetch("select relname from pg_stat_user_tables order by relname")
        return {
            row["relname"]: await self.value(f'select count(*) from "{row["relname"]}"') for row in tables
        }
