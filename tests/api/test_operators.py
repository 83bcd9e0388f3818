"""Operators act over HTTP with a token, and nobody acts without one."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from workers.agents.turn import Turn
from workers.api.conversations import MOST_BODY_BYTES, PREFIX
from workers.api.operators import OperatorTokens, TokenFileProblem, new_token
from workers.api.parts import ApiParts
from workers.api.server import ApiServer
from workers.api.service import create_api
from workers.telemetry.health import Health

ANN, ANNS_LINE = new_token("ann")
BOB, BOBS_LINE = new_token("bob")
TABLES = ("lanes", "conversations", "items", "notes", "note_operations", "runs", "reservations", "audit")


class Clock:
    """Every look at it is `step` seconds after the one before."""

    now = 0.0
    step = 10

    def __call__(self) -> float:
        self.now += self.step
        return self.now


async def noting(turn: Turn) -> None:
    await turn.set_note("style", "short")
    await turn.reply(turn.event.text)


@dataclass
class Office:
    """A served API over a desk with one conversation."""

    desk: Desk
    http: httpx.AsyncClient
    file: Path
    tokens_clock: Clock

    async def counts(self) -> dict[str, int]:
        return {table: await self.desk.value(f"select count(*) from {table}") for table in TABLES}

    async def number(self) -> int:
        return int(await self.desk.value("select lane_id from conversations"))


@pytest.fixture
async def office(database_url: str, tmp_path: Path) -> AsyncIterator[Office]:
    file = tmp_path / "operators"
    file.write_text(f"# operators\n{ANNS_LINE}\n{BOBS_LINE}\n")
    file.chmod(0o600)
    agent = an_agent("helper", runs=noting, conversation="desk")
    async with a_desk(database_url, agent, recall_wait=timedelta(0)) as desk:
        await desk.admit("helper", an_event(account="main", chat="c1", text="my secret text"))
        await desk.work()
        clock = Clock()
        tokens = OperatorTokens(file, clock=clock)
        parts = ApiParts(
            "support", {}, _no_broker, desk.database, None, Health(), desk.metrics, operators=tokens
        )
        server = ApiServer(create_api(parts))
        url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
        async with httpx.AsyncClient(
            base_url=url, timeout=30, headers={"authorization": f"Bearer {ANN}"}
        ) as http:
            yield Office(desk, http, file, clock)
        await server.stop()


async def _no_broker(_sealed: Any) -> None:
    raise AssertionError("operators publish nothing")


def identity(**changes: str) -> dict[str, str]:
    return {
        "memory_key": "desk",
        "channel": "lab",
        "account": "main",
        "chat": "c1",
        "audience": "direct",
        **changes,
    }


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        f"Basic {ANN}",
        f"Bearer {ANN}x",
        f"Bearer {ANN[:-1]}",
        f"bearer  {ANN}",
        "Bearer " + "x" * 10_000,
        f"Bearer {ANNS_LINE.split()[1]}",
    ],
    ids=["none", "empty", "scheme", "basic", "longer", "shorter", "spaced", "long", "digest"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/inspect"),
        ("GET", "/1"),
        ("POST", "/1/reset"),
        ("DELETE", "/1"),
        ("POST", "/prune"),
    ],
)
async def test_nobody_gets_in_without_a_token(
    office: Office, header: str | None, method: str, path: str
) -> None:
    before = await office.counts()
    headers = {"cookie": f"authorization={ANN}"} | ({} if header is None else {"authorization": header})
    request = office.http.build_request(method, PREFIX + path, headers=headers)
    if header is None:
        del request.headers["authorization"]
    answer = await office.http.send(request)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "secret" not in answer.text
    assert await office.counts() == before


@pytest.mark.rule("CM-60", "CM-17")
async def test_a_conversation_is_found_by_the_memory_key_and_shown_whole(office: Office) -> None:
    found = (await office.http.get(f"{PREFIX}/inspect", params=identity())).json()
    numbered = await office.http.get(f"{PREFIX}/{await office.number()}")
    listed = (await office.http.get(PREFIX, params={"memory_key": "desk"})).json()
    by_agent = await office.http.get(f"{PREFIX}/inspect", params=identity(memory_key="helper"))

    assert [item["body"] for item in found["items"]] == ["my secret text", "my secret text"]
    assert [note["key"] for note in found["notes"]] == ["style"]
    assert numbered.json() == found
    assert numbered.headers["cache-control"] == "no-store"
    assert [line["lane_id"] for line in listed["conversations"]] == [await office.number()]
    assert by_agent.status_code == 404


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize("strange", ["nobody", "c1' or '1'='1", "c1/../c1", "%00", "😀" * 256, "c1\u202e"])
async def test_an_unknown_identity_is_not_there_and_is_not_made(office: Office, strange: str) -> None:
    before = await office.counts()
    answer = await office.http.get(f"{PREFIX}/inspect", params=identity(chat=strange))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert await office.counts() == before


@pytest.mark.rule("CM-61")
async def test_items_come_by_pages(office: Office) -> None:
    pages = [
        (await office.http.get(f"{PREFIX}/inspect", params=identity() | {"limit": 1, "offset": n})).json()
        for n in range(3)
    ]
    assert [[item["kind"] for item in page["items"]] for page in pages] == [["reply"], ["input"], []]


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize("act", ["reset", "delete"])
async def test_an_act_is_audited_with_who_did_it_and_without_what_was_said(office: Office, act: str) -> None:
    number = await office.number()
    headers = {"authorization": f"Bearer {BOB}"}
    if act == "reset":
        answer = await office.http.post(
            f"{PREFIX}/{number}/reset", json={"keep_notes": True}, headers=headers
        )
    else:
        answer = await office.http.delete(f"{PREFIX}/{number}", headers=headers)

    assert answer.status_code == 200, answer.text
    assert (answer.json()["act"], answer.json()["generation"]) == (act, 1)
    [row] = await office.desk.rows("select actor, act, detail::text as detail from audit")
    assert (row["actor"], row["act"]) == ("operator:bob", f"conversation.{act}")
    assert "secret" not in row["detail"]


@pytest.mark.rule("CM-64")
@pytest.mark.parametrize("act", ["reset", "delete"])
async def test_an_active_turn_is_named_and_refuses_the_act(office: Office, act: str) -> None:
    [run_id] = await office.desk.admit("helper", an_event(account="main", chat="c1"))
    await office.desk.claims.claim(office.desk.session.id, [])
    number = await office.number()
    answer = await (
        office.http.post(f"{PREFIX}/{number}/reset")
        if act == "reset"
        else office.http.delete(f"{PREFIX}/{number}")
    )
    assert answer.status_code == 409
    problem = answer.json()
    assert (problem["code"], problem["run_id"]) == ("turn_active", str(run_id))
    assert str(run_id) in problem["detail"]


@pytest.mark.rule("CM-60")
async def test_prune_says_what_it_removed_and_that_it_is_done(office: Office) -> None:
    answer = await office.http.post(f"{PREFIX}/prune", json={"dry_run": True})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["dry_run"], answer.json()["finished"]) == (True, True)
    done = await office.http.post(f"{PREFIX}/prune")
    assert done.json()["finished"] is True


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("GET", "/inspect?memory_key=desk", None, 422),
        ("GET", "?limit=0", None, 422),
        ("GET", "?limit=501", None, 422),
        ("GET", "/inspect?memory_key=a&channel=b&account=c&chat=%0a&audience=d", None, 422),
        ("GET", "/99999999999999999999", None, 422),
        ("GET", "/-1", None, 422),
        ("DELETE", "/1?when_active=now", None, 422),
        ("POST", "/1/reset", b"{", 400),
        ("POST", "/1/reset", b"[]", 422),
        ("POST", "/1/reset", b'{"keep_notes": "yes"}', 422),
        ("POST", "/1/reset", b'{"keep": true}', 422),
        ("POST", "/1/reset", b" " * (MOST_BODY_BYTES + 1), 413),
        ("POST", "/987654/reset", b"", 404),
        ("DELETE", "/987654", None, 404),
        ("PUT", "/1", None, 405),
    ],
)
async def test_bad_requests_are_problems_and_change_nothing(
    office: Office, method: str, path: str, content: bytes | None, status: int
) -> None:
    before = await office.counts()
    answer = await office.http.request(method, PREFIX + path, content=content)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert await office.counts() == before


async def test_a_removed_line_lets_nobody_in_and_a_broken_edit_changes_nothing(office: Office) -> None:
    office.file.write_text("ann not-a-digest\n")
    assert (await office.http.get(PREFIX)).status_code == 200
    office.file.write_text(f"# ann has left\n{BOBS_LINE}\n")
    assert (await office.http.get(PREFIX)).status_code == 401
    office.file.unlink()
    answer = await office.http.get(PREFIX, headers={"authorization": f"Bearer {BOB}"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("text", "mode", "line"),
    [
        ("", 0o600, 0),
        ("ann", 0o600, 1),
        (f"# fine\nann {ANN}\n", 0o600, 2),
        (ANNS_LINE.upper(), 0o600, 1),
        (f"{ANNS_LINE} more", 0o600, 1),
        (ANNS_LINE, 0o644, 0),
    ],
    ids=["empty", "name alone", "token itself", "upper case", "more", "readable by all"],
)
def test_a_file_with_a_mistake_is_refused_by_line_and_without_its_content(
    tmp_path: Path, text: str, mode: int, line: int
) -> None:
    file = tmp_path / "operators"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(TokenFileProblem) as refused:
        OperatorTokens(file)
    assert refused.value.line == line
    assert ANN not in str(refused.value)
    assert ANNS_LINE.split()[1] not in str(refused.value)


async def test_without_a_file_there_are_no_such_routes(database_url: str) -> None:
    async with a_desk(database_url, an_agent()) as desk:
        parts = ApiParts("support", {}, _no_broker, desk.database, None, Health(), desk.metrics)
        transport = httpx.ASGITransport(create_api(parts))
        async with httpx.AsyncClient(transport=transport, base_url="http://parley") as http:
            answer = await http.get(PREFIX, headers={"authorization": f"Bearer {ANN}"})
    assert answer.status_code == 404


def test_an_operators_name_is_plain() -> None:
    for name in ("", "a b", "a\n", "x" * 65, "é"):
        with pytest.raises(ValueError, match="name"):
            new_token(name)
