"""What an operator may do to conversations over HTTP: look, reset, delete, prune. Served only where tokens are set.

The acts are those of `workers.operations.conversations`, with the operator's name in the audit. What people wrote is
shown here, so no answer may be stored by anybody on the way.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

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

PREFIX: Final = "/v1/operator/conversations"
MOST_BODY_BYTES: Final = 4096
WAIT_WITHIN: Final = timedelta(seconds=20)
PRUNE_WITHIN: Final = timedelta(seconds=20)
"""A request ends within this; what was pruned by then stays pruned, and the answer says that more may be left."""

T = TypeVar("T")

Number = Annotated[int, Path(ge=1, lt=2**63)]
Limit = Annotated[int, Query(ge=1, le=500)]
Offset = Annotated[int, Query(ge=0, lt=2**31)]
Part = Annotated[Id, Query()]


class _Reset(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keep_notes: Annotated[bool, Field(strict=True)] = False
    when_active: WhenActive = "refuse"


class _Prune(BaseModel):
    model_config = ConfigDict(extra="forbid")

    dry_run: Annotated[bool, Field(strict=True)] = False


def conversation_routes(
    database: Database, tokens: OperatorTokens, retention: Retention, limits: Limits | None, room: BodyRoom
) -> APIRouter:
    """The routes below `PREFIX`; each asks for an operator's bearer token before anything else."""
    operator = operator_in(tokens)
    router = APIRouter(prefix=PREFIX, dependencies=[Depends(operator)])
    Actor = Annotated[str, Depends(operator)]

    @router.get("")
    async def listed(
        memory_key: str | None = None, channel: str | None = None, chat: str | None = None, limit: Limit = 50
    ) -> Response:
        lines = await conversations.list_conversations(
            database, memory_key=memory_key, channel=channel, chat=chat, at_most=limit
        )
        return _answer({"conversations": lines})

    @router.get("/inspect")
    async def inspected_by_identity(
        memory_key: Part,
        channel: Part,
        account: Part,
        chat: Part,
        audience: Part,
        limit: Limit = 20,
        offset: Offset = 0,
    ) -> Response:
        return await look(Identity(memory_key, channel, account, chat, audience), limit, offset)

    @router.get("/{number}")
    async def inspected(number: Number, limit: Limit = 20, offset: Offset = 0) -> Response:
        return await look(number, limit, offset)

    @router.post("/{number}/reset")
    async def reset(number: Number, request: Request, actor: Actor) -> Response:
        asked = await _body(_Reset, request, room)
        return await _act(
            conversations.reset(
                database,
                number,
                actor,
                keep_notes=asked.keep_notes,
                when_active=asked.when_active,
                within=WAIT_WITHIN,
            )
        )

    @router.delete("/{number}")
    async def delete(number: Number, actor: Actor, when_active: WhenActive = "refuse") -> Response:
        return await _act(
            conversations.delete(database, number, actor, when_active=when_active, within=WAIT_WITHIN)
        )

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
        found = await conversations.inspect(database, conversation, at_most=limit, offset=offset)
        if found is None:
            raise Problem(404, detail=str(conversations.unknown(conversation)))
        return _answer(found)

    return router


async def _act(act: Awaitable[object]) -> Response:
    return _answer(await _refusing(act))


async def _refusing(act: Awaitable[T]) -> T:
    try:
        return await act
    except NotFound as missing:
        raise Problem(404, detail=str(missing)) from None
    except TurnActive as active:
        raise Problem(
            409, "turn_active", detail=str(active), members={"run_id": str(active.run_id)}
        ) from None
    except ActRefused as refused:
        raise Problem(409, "refused", detail=str(refused)) from None


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
