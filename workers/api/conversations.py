"""What an operator may do to conversations over HTTP: look, reset, delete, prune. Served only where tokens are set.

The acts are those of `workers.operations.conversations`, with the operator's name in the audit. What people wrote is
shown here, so no answer may be stored by anybody on the way.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from schemas import jsonio
from schemas.identity import Id, Identity
from workers.api.body import BodyRoom
from workers.api.operators import OperatorTokens, operator_in
from workers.api.problems import Problem
from workers.memory.limits import Limits
from workers.operations import conversations
from workers.operations.errors import ActRefused, NotFound, TurnActive
from workers.operations.quiet import WhenActive
from workers.operations.retention import Retention
from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.telemetry.metrics import Metrics

PREFIX: Final = "/v1/operator/conversations"
MOST_BODY_BYTES: Final = 4096
WAIT_WITHIN: Final = timedelta(seconds=20)
PRUNE_WITHIN: Final = timedelta(seconds=20)
"""A request ends within this; what was pruned by then stays pruned, and the answer says that more may be left."""

RETRY_AFTER_S: Final = 5

log = structlog.get_logger(__name__)

T = TypeVar("T")

Number = Annotated[int, Path(ge=1, lt=2**63)]
Limit = Annotated[int, Query(ge=1, le=500)]
Offset = Annotated[int, Query(ge=0, lt=2**31)]
Part = Annotated[Id, Query()]
Filter = Annotated[Id | None, Query()]


def _named(memory_key: Part, channel: Part, account: Part, chat: Part, audience: Part) -> Identity:
    return Identity(memory_key, channel, account, chat, audience)


Named = Annotated[Identity, Depends(_named)]


class _Reset(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keep_notes: Annotated[bool, Field(strict=True)] = False
    when_active: WhenActive = "refuse"


class _Prune(BaseModel):
    model_config = ConfigDict(extra="forbid")

    dry_run: Annotated[bool, Field(strict=True)] = False


def conversation_routes(
    database: Database,
    tokens: OperatorTokens,
    metrics: Metrics,
    retention: Retention,
    limits: Limits | None,
    room: BodyRoom,
) -> APIRouter:
    """The routes below `PREFIX`; each asks for an operator's bearer token before anything else."""
    operator = operator_in(tokens, metrics)
    router = APIRouter(prefix=PREFIX, dependencies=[Depends(operator)])
    Actor = Annotated[str, Depends(operator)]

    @router.get("")
    async def listed(
        memory_key: Filter = None, channel: Filter = None, chat: Filter = None, limit: Limit = 50
    ) -> Response:
        lines = await _refusing(
            conversations.list_conversations(
                database, memory_key=memory_key, channel=channel, chat=chat, at_most=limit
            )
        )
        return _answer({"conversations": lines})

    @router.get("/inspect")
    async def inspected_by_identity(identity: Named, limit: Limit = 20, offset: Offset = 0) -> Response:
        return await look(identity, limit, offset)

    @router.get("/{number}")
    async def inspected(number: Number, limit: Limit = 20, offset: Offset = 0) -> Response:
        return await look(number, limit, offset)

    @router.post("/reset")
    async def reset_by_identity(identity: Named, request: Request, actor: Actor) -> Response:
        return await begin_anew(identity, request, actor)

    @router.post("/{number}/reset")
    async def reset(number: Number, request: Request, actor: Actor) -> Response:
        return await begin_anew(number, request, actor)

    @router.delete("")
    async def delete_by_identity(
        identity: Named, actor: Actor, when_active: WhenActive = "refuse"
    ) -> Response:
        return await remove(identity, actor, when_active)

    @router.delete("/{number}")
    async def delete(number: Number, actor: Actor, when_active: WhenActive = "refuse") -> Response:
        return await remove(number, actor, when_active)

    @router.post("/prune")
    async def prune(request: Request, actor: Actor) -> Response:
        asked = await _body(_Prune, request, room)
        removed: dict[str, int] = {}

        def note(table: str, rows: int) -> None:
            removed[table] = removed.get(table, 0) + rows

        finished = False
        try:
            async with asyncio.timeout(PRUNE_WITHIN.total_seconds()):
                found = await _refusing(
                    conversations.prune(
                        database, retention, actor, limits=limits, dry_run=asked.dry_run, pruned=note
                    )
                )
                finished = True
        except TimeoutError:
            found = removed
        return _answer({"dry_run": asked.dry_run, "removed": found, "finished": finished})

    async def look(conversation: int | Identity, limit: int, offset: int) -> Response:
        found = await _refusing(conversations.inspect(database, conversation, at_most=limit, offset=offset))
        if found is None:
            raise Problem(404, detail=str(conversations.unknown(conversation)))
        return _answer(found)

    async def begin_anew(conversation: int | Identity, request: Request, actor: str) -> Response:
        asked = await _body(_Reset, request, room)
        return _answer(
            await _refusing(
                conversations.reset(
                    database,
                    conversation,
                    actor,
                    keep_notes=asked.keep_notes,
                    when_active=asked.when_active,
                    within=WAIT_WITHIN,
                )
            )
        )

    async def remove(conversation: int | Identity, actor: str, when_active: WhenActive) -> Response:
        return _answer(
            await _refusing(
                conversations.delete(
                    database, conversation, actor, when_active=when_active, within=WAIT_WITHIN
                )
            )
        )

    return router


async def _refusing(act: Awaitable[T]) -> T:
    try:
        return await act
    except NotFound as missing:
        raise Problem(404, detail=str(missing)) from None
    except TurnActive as active:
        raise Problem(
            409,
            "turn_active",
            detail=f"run {active.run_id} has an active turn in conversation {active.lane_id}: try again when it has "
            "ended, or ask with when_active wait or cancel",
            members={"run_id": str(active.run_id)},
        ) from None
    except ActRefused as refused:
        raise Problem(409, "refused", detail=str(refused)) from None
    except Exception as error:
        if not is_retryable(error):
            raise
        log.warning("operator.not_done", error=type(error).__name__)
        raise Problem(503, retry_after_s=RETRY_AFTER_S) from None


async def _body(model: type[Any], request: Request, room: BodyRoom) -> Any:
    """The request's JSON object; all defaults where there is no body."""
    async with room.body_of(request, MOST_BODY_BYTES) as raw:
        try:
            return model.model_validate(jsonio.loads(raw) if raw.strip() else {})
        except jsonio.InvalidJson as error:
            raise Problem(400, detail=f"the body is no JSON: {error.problem}") from None
        except ValidationError as error:
            raise Problem(422, detail=_first(error)) from None


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, found['loc'])) or 'body'}: {found['msg']}"


def _answer(content: object) -> Response:
    return Response(to_json(content), 200, {"cache-control": "no-store"}, media_type="application/json")
