"""The rooms over one real database, without a broker: workers whose every step a test decides.

A laboratory has an event loop of its own and one pool that all workers share. A worker is a session row, the services
that hold it, and the turns that it has in memory; it sends through channels that answer when they are told to.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from schemas.errors import ParleyError
from schemas.event import Event
from tests.model import expected
from tests.support.clock import shift_clock
from tests.support.desk import allow
from tests.support.events import an_agent, candidates_of
from tests.support.faults import Faults
from workers.admission.service import Admission
from workers.agents.turn import Turn
from workers.channels.lab import Fault, LabChannel, MemoryLedger
from workers.channels.port import Capability, Outcome, Outgoing
from workers.delivery.loops.reconciler import Reconciler
from workers.delivery.loops.sender import Sender
from workers.delivery.receipts import Receipts
from workers.memory.access import Allow
from workers.memory.limits import Conversations, Limits
from workers.memory.notes import Notes, NoteScope
from workers.operations.retention import Retention
from workers.operations.sweeper import Sweeper
from workers.postgres.database import Database
from workers.telemetry.metrics import Metrics
from workers.turns import store
from workers.turns.claim import Claimed, Claims
from workers.turns.journal import StepJournal
from workers.turns.policy import DEFAULT_SLOTS, Caps, Paused
from workers.turns.recovery import Recovery
from workers.turns.settle import Settlements

T = TypeVar("T")

EMPTY: Final = """
delete from ready; delete from turns; delete from note_operations; delete from notes; delete from items;
delete from run_steps; delete from delivery_attempts; delete from deliveries; delete from addresses;
delete from send_holds; delete from reservations; delete from runs; delete from conversations; delete from lanes;
delete from worker_sessions; delete from audit; delete from leases
"""
LIMITS: Final = Limits(
    max_items=expected.RECALLED_ITEMS,
    max_stored_items=expected.STORED_ITEMS,
    max_item_bytes=expected.ITEM_BYTES,
    retention=timedelta(hours=expected.RETENTION),
)
RECALL_WAIT: Final = timedelta(hours=expected.RECALL_WAIT)
CAPABILITIES: Final = {"lab": Capability.LOOK_UP_DEFINITE, "blind": Capability.NONE}
AGENTS: Final = {
    name: an_agent(name, conversation="shared", max_crash_attempts=10_000) for name in ("helper", "twin")
}
"""Two agents that share one memory."""


class HeldChannel(LabChannel):
    """Each send waits until `answer` says how it goes; `waiting` are the attempts that wait, by key."""

    def __init__(self, name: str, capability: Capability, peer: MemoryLedger) -> None:
        super().__init__(name, capability, transport_timeout=timedelta(hours=1), ledger=peer)
        self.waiting: dict[str, tuple[Outgoing, asyncio.Future[Fault | None]]] = {}

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        answer: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()
        self.waiting[outgoing.key] = (outgoing, answer)
        try:
            fault = await answer
        finally:
            if self.waiting.get(outgoing.key, (None, None))[1] is answer:
                del self.waiting[outgoing.key]
        if fault is not None:
            self.fail_next(fault)
        return await super().send(outgoing, timeout)


@dataclass(eq=False)
class Handle:
    """A turn in a worker's memory: what the agent's code holds, and how far it has come."""

    worker: Worker
    run: expected.Run
    claimed: Claimed
    turn: Turn
    recorded: int
    position: int = 0


@dataclass(eq=False)
class Worker:
    """One worker process, as far as conversations go."""

    name: str
    session_id: UUID
    channels: dict[str, HeldChannel]
    claims: Claims
    journal: StepJournal
    settlements: Settlements
    receipts: Receipts
    sender: Sender
    reconciler: Reconciler
    recovery: Recovery
    faults: Faults
    paused: set[str] = field(default_factory=set)
    renews: bool = True
    handles: list[Handle] = field(default_factory=list)
    sending: asyncio.Task[int] | None = None
    receipts_written: int = 0

    @property
    def waiting(self) -> list[Outgoing]:
        """The messages that its channels hold."""
        return [held for channel in self.channels.values() for held, _ in channel.waiting.values()]


class Laboratory:
    """Open it once for many examples: `fresh()` empties it."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self.database: Database = self.do(Database.open(url, max_size=8))
        # What a crash of the server loses is asked elsewhere; here it would only cost time.
        self.do(self.database.execute("alter database model set synchronous_commit = off"))
        self.do(self.database.close())
        self.database = self.do(Database.open(url, max_size=8))
        self.peers: dict[str, MemoryLedger] = {}
        self.workers: list[Worker] = []

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end."""
        return self._runner.run(work)

    def close(self) -> None:
        self.fresh()
        self.do(self.database.close())
        self._runner.close()

    def fresh(self) -> None:
        """No rows, no workers, nothing at the peers, and the clock as it was."""
        for worker in self.workers:
            self.crash(worker)
        self.workers = []
        self.peers = {name: MemoryLedger() for name in CAPABILITIES}
        self.do(self._empty())

    async def _empty(self) -> None:
        async with self.database.acquire() as connection:
            await connection.execute(EMPTY)
            # A day ahead: sessions may be taken over, however young the server is.
            await connection.execute(
                "create or replace function parley_now() returns timestamptz language sql stable parallel safe as"
                " 'select now() + interval ''1 day'''"
            )
        self.admission = Admission(
            self.database, idempotency_ttl=timedelta(hours=expected.RESERVED_FOR), patience=timedelta(0)
        )
        self.notes = Notes(self.database)
        self.sweeper = Sweeper(
            self.database, Retention(runs=timedelta(hours=expected.RUNS_KEPT)), limits=LIMITS
        )

    def hire(self) -> Worker:
        """A new worker with a living session."""
        worker = self.do(self._hire(f"worker-{len(self.workers) + 1}"))
        self.workers.append(worker)
        return worker

    async def _hire(self, name: str) -> Worker:
        session_id, faults, metrics = uuid.uuid4(), Faults(), Metrics()
        await self.database.execute(
            "insert into worker_sessions (id, worker, lease_until) values ($1, $2, parley_now() + interval '1 hour')",
            session_id,
            name,
        )
        receipts = Receipts(self.database, metrics, reached=lambda point: written(point))
        channels = {name: HeldChannel(name, able, self.peers[name]) for name, able in CAPABILITIES.items()}
        sender = Sender(self.database, channels, session_id, receipts, metrics, jitter=lambda: 0.0)
        worker: Worker = Worker(
            name=name,
            session_id=session_id,
            channels=channels,
            claims=self._claims(lambda: Paused(accounts=frozenset(worker.paused))),
            journal=StepJournal(self.database, lambda published: None, reached=faults),
            settlements=Settlements(self.database, recall_wait=RECALL_WAIT, reached=faults),
            receipts=receipts,
            sender=sender,
            reconciler=Reconciler(self.database, channels, session_id, sender, receipts, metrics),
            recovery=Recovery(self.database, AGENTS, lease_for=timedelta(seconds=1), recall_wait=RECALL_WAIT),
            faults=faults,
        )

        def written(point: str) -> None:
            worker.receipts_written += point == "receipt committed"

        return worker

    def _claims(self, paused: Any) -> Claims:
        return Claims(
            self.database,
            AGENTS,
            Conversations(allow, LIMITS),
            Caps(DEFAULT_SLOTS, DEFAULT_SLOTS, DEFAULT_SLOTS),
            recall_wait=RECALL_WAIT,
            paused=paused,
        )

    def crash(self, worker: Worker) -> None:
        """Its memory is gone, and so are its sockets; its session is not renewed any more."""
        worker.renews = False
        worker.handles = []
        if worker.sending is not None:
            worker.sending.cancel()
            self.do(_over(worker.sending))
            worker.sending = None

    async def admit(self, agent: str, event: Event) -> Any:
        [outcome] = await self.admission.admit(candidates_of(AGENTS[agent], [event]))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def claim(self, worker: Worker, accounts: Sequence[str], *, anew: bool = False) -> list[Claimed]:
        """What the worker gets of these accounts (`channel/account`) in one round; `anew`: knowing nothing yet."""
        everywhere = {f"{channel}/{account}" for channel in CAPABILITIES for account in "ab"}
        worker.paused = everywhere - set(accounts)
        claims = self._claims(lambda: Paused(accounts=frozenset(worker.paused))) if anew else worker.claims
        claim = await claims.claim(worker.session_id, [handle.claimed for handle in worker.handles])
        return list(claim.turns)

    async def begin(self, worker: Worker, run: expected.Run, claimed: Claimed) -> Handle:
        """The turn as the agent gets it, with what its journal holds already."""
        async with self.database.acquire() as connection:
            recorded = await store.read_steps(connection, run.run_id)
        scope = self.scope_of(claimed)
        turn = Turn(
            agent=AGENTS[claimed.head.agent],
            run_id=run.run_id,
            event=claimed.event,
            principal=claimed.event.principal,
            user=None,
            snapshot=claimed.snapshot,
            journal=worker.journal.of(claimed, recorded),
            split=lambda channel, text: tuple(text.split("|")),
            notes=self.notes.open(scope, _always),
        )
        handle = Handle(worker, run, claimed, turn, recorded=len(recorded))
        worker.handles.append(handle)
        return handle

    @staticmethod
    def scope_of(claimed: Claimed) -> NoteScope:
        """Whose notes the turn edits."""
        own = claimed.own
        return NoteScope(own.lane_id, claimed.head.lane_generation, own.epoch, own.run_id)

    async def lapse(self) -> None:
        """The leases of workers that no longer renew run out; the others are renewed."""
        await self.database.execute(
            "update worker_sessions set lease_until = parley_now()"
            " + case when id = any($1::uuid[]) then interval '1 hour' else interval '-1 second' end",
            [worker.session_id for worker in self.workers if worker.renews],
        )

    async def pass_time(self, hours: float) -> None:
        """The database's clock goes on; living workers have renewed meanwhile."""
        await shift_clock(self.database, timedelta(hours=hours))
        await self.database.execute(
            "update worker_sessions set lease_until = parley_now() + interval '1 hour' where id = any($1::uuid[])",
            [worker.session_id for worker in self.workers if worker.renews],
        )

    def peer_holds(self, key: str) -> bool:
        """Whether the message of this key arrived."""
        return any(message.key == key for peer in self.peers.values() for message in peer.messages())

    async def send(self, worker: Worker) -> None:
        """The worker takes what is due of every address; returns when the channels hold it, or there was nothing."""
        rows = await self.database.fetch("select id from addresses order by id")
        worker.sending = asyncio.ensure_future(worker.sender.run_once([row["id"] for row in rows]))
        await _until(worker, lambda: bool(worker.waiting))

    async def answer(self, worker: Worker, key: str, fault: Fault | None) -> None:
        """The channel answers; returns when the receipt is written, and the next message taken if there is one."""
        channel = next(c for c in worker.channels.values() if key in c.waiting)
        before = worker.receipts_written
        channel.waiting[key][1].set_result(fault)
        await _until(worker, lambda: worker.receipts_written > before)
        await _until(worker, lambda: bool(worker.waiting))


async def _until(worker: Worker, holds: Callable[[], bool]) -> None:
    while worker.sending is not None and not holds():
        if worker.sending.done():
            ended, worker.sending = worker.sending.exception(), None
            if ended is not None and (worker.renews or not isinstance(ended, ParleyError)):
                raise ended
        await asyncio.sleep(0.0005)


async def _over(task: asyncio.Task[int]) -> None:
    await asyncio.wait([task])


async def _always() -> Allow:
    return Allow()
