"""Operators act by a conversation's name, at once, and while things are away; strangers are slowed down."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.test_operators import ANN, Office, identity, office
from workers.api.conversations import PREFIX
from workers.api.operators import REFUSED_BURST

__all__ = ["office"]

STRANGER = {"authorization": "Bearer stranger"}


async def act(office: Office, act: str, path: str = "", **params: Any) -> httpx.Response:
    if act == "reset":
        return await office.http.post(f"{PREFIX}{path}/reset", params=params)
    return await office.http.delete(f"{PREFIX}{path}", params=params)


@pytest.mark.rule("CM-60", "CM-17")
@pytest.mark.parametrize("name", ["reset", "delete"])
async def test_an_act_by_the_whole_name_meets_that_conversation_alone(office: Office, name: str) -> None:
    by_agent = await act(office, name, **identity(memory_key="helper"))
    done = await act(office, name, **identity())

    assert (by_agent.status_code, done.status_code) == (404, 200)
    assert (done.json()["lane_id"], done.json()["generation"]) == (await office.number(), 1)
    [row] = await office.desk.rows("select actor, act, subject from audit")
    assert (row["actor"], row["act"]) == ("operator:ann", f"conversation.{name}")
    assert row["subject"] == str(await office.number())


@pytest.mark.rule("CM-61")
@pytest.mark.parametrize("name", ["reset", "delete"])
@pytest.mark.parametrize("strange", ["nobody", "c1' or '1'='1", "c1%", "C1", "c1 ", "c1|direct", "c%31"])
async def test_an_act_upon_an_unknown_name_makes_nothing(office: Office, name: str, strange: str) -> None:
    before = await office.counts()

    answer = await act(office, name, **identity(chat=strange))

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert await office.counts() == before


@pytest.mark.parametrize("missing", ["memory_key", "channel", "account", "chat", "audience"])
@pytest.mark.parametrize("name", ["reset", "delete"])
async def test_a_name_in_part_names_nothing_and_the_part_is_said(
    office: Office, name: str, missing: str
) -> None:
    before = await office.counts()
    given = {part: text for part, text in identity().items() if part != missing}

    answer = await act(office, name, **given)

    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(f"{missing}:")
    assert await office.counts() == before


@pytest.mark.parametrize("query", ["memory_key=%00", "channel=a%0ab", "chat=" + "x" * 257, "chat="])
async def test_a_filter_that_no_conversation_can_have_is_refused_and_named(
    office: Office, query: str
) -> None:
    answer = await office.http.get(f"{PREFIX}?{query}")

    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(query.partition("=")[0])


@pytest.mark.rule("CM-60", "CM-63")
async def test_resets_and_deletes_at_once_each_take_one_generation(office: Office) -> None:
    number = await office.number()

    answers = await asyncio.gather(
        *(act(office, name, path) for name in ("reset", "delete") for path in [f"/{number}"] * 3)
    )

    assert [answer.status_code for answer in answers] == [200] * 6
    assert sorted(answer.json()["generation"] for answer in answers) == [1, 2, 3, 4, 5, 6]
    assert await office.desk.value("select generation from lanes where id = $1", number) == 6
    counts = await office.counts()
    assert (counts["items"], counts["notes"], counts["note_operations"], counts["audit"]) == (0, 0, 0, 6)


@pytest.mark.rule("CM-60")
async def test_who_fails_often_waits_and_a_good_token_of_the_same_address_does_not(office: Office) -> None:
    slow: list[httpx.Response] = []
    office.tokens_clock.step = 0
    for _ in range(REFUSED_BURST + 1):
        slow.append(await office.http.get(PREFIX, headers=STRANGER))
    good = await office.http.get(PREFIX)

    assert [answer.status_code for answer in slow] == [401] * REFUSED_BURST + [429]
    assert int(slow[-1].headers["retry-after"]) >= 1
    assert good.status_code == 200
    metrics = office.desk.metrics.render().decode()
    assert f'parley_operator_logins_total{{outcome="refused"}} {REFUSED_BURST + 1:.1f}' in metrics
    assert 'parley_operator_logins_total{outcome="accepted"} 1.0' in metrics


async def test_a_second_authorization_header_makes_neither_count(office: Office) -> None:
    request = office.http.build_request("GET", PREFIX)
    request.headers = httpx.Headers([*request.headers.items(), ("authorization", f"Bearer {ANN}")])

    assert (await office.http.send(request)).status_code == 401


async def test_other_routes_ask_for_no_token_and_refuse_none(office: Office) -> None:
    for headers in (STRANGER, {}):
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await office.http.get(path, headers=headers)).status_code == 200
    unknown = await office.http.get("/v1/operator/nothing")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


async def test_a_conversation_that_somebody_holds_is_answered_with_try_again(office: Office) -> None:
    number = await office.number()
    async with office.desk.database.transaction() as tx:
        await tx.execute("set local idle_in_transaction_session_timeout = 0")
        await tx.execute("select from lanes where id = $1 for update", number)
        answer = await act(office, "delete", f"/{number}")

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert await office.desk.value("select count(*) from audit") == 0
