"""What stands on the events topic, by whatever road it came, and what becomes of strange records in a whole worker."""

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.partitioner import murmur2

from schemas import jsonio
from schemas.envelope import SealedEvent, source, to_headers, webhook_id
from schemas.event import Event
from schemas.identity import Principal
from schemas.signing import sign
from tests.channels.receiver import a_receiver
from tests.support.events import KEYS, an_event, secret_of
from tests.support.running import ROOT, Site, a_worker
from tests.support.waiting import eventually
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.channels.sealing import seal
from workers.channels.webhook import WebhookChannel
from workers.kafka.record import Headers

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def echo(turn: Turn) -> None:
    await turn.reply(turn.event.text or "nothing")


def an_app(*channels: Any) -> App:
    listens = [Subscription(channel.name) for channel in channels]
    return App("tested", agents=[Agent("echo", runs=echo, subscriptions=listens)], channels=channels)


def raw(value: bytes, event: Event, *, version: int = 1) -> SealedEvent:
    """`value` signed as it is, under the headers and the key of `event`."""
    now = int(datetime.now(UTC).timestamp())
    signature = sign(KEYS.signing, webhook_id(event.event_id), now, value)
    kind = f"parley.event.v{version}".encode()
    headers = [(n, kind if n == "ce_type" else v) for n, v in to_headers(event, now, signature)]
    return SealedEvent(event.record_key, value, headers)


async def records_of(site: Site, topic: str, at_least: int) -> list[Any]:
    """The first records of a topic, in the order of their time stamps."""
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=site.life.bootstrap, auto_offset_reset="earliest", group_id=None
    ) as consumer:
        found: list[Any] = []
        async with asyncio.timeout(20):
            while len(found) < at_least:
                found.append(await consumer.getone())
    return sorted(found, key=lambda record: record.timestamp)


def names(headers: Headers | Sequence[tuple[str, bytes]]) -> list[str]:
    return [name for name, _ in headers]


@pytest.mark.rule("EN-1")
async def test_every_road_writes_the_same_kind_of_record_and_the_trace_reaches_the_delivery(
    site: Site, tmp_path: Path
) -> None:
    body = jsonio.dumps(
        {"account": "shop/1", "chat": "c|1", "thread": "t", "principal": {"id": "u"}, "text": "by hook"}
    )
    now = int(datetime.now(UTC).timestamp())
    posted = {
        "webhook-id": "hook-1",
        "webhook-timestamp": str(now),
        "webhook-signature": sign(KEYS.signing, "hook-1", now, body),
        "traceparent": TRACEPARENT,
    }
    (tmp_path / "keys").write_text(f"one {secret_of('one')} channel=hook\n", "utf-8")
    adapted = Event(
        event_id="adapter-1",
        channel="hook",
        account="shop/1",
        chat="c|1",
        audience="direct",
        kind="message",
        principal=Principal("u"),
        text="by an adapter",
        occurred_at=datetime.now(UTC),
    )
    async with a_receiver() as receiver:
        hook = WebhookChannel("hook", receiver.url, KEYS)
        async with a_worker(
            site, an_app(hook), roles=frozenset({"intake", "turns", "delivery", "api"})
        ) as worker:
            await eventually("the producer is up", lambda: worker._producer._producer is not None)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{worker.http_port}") as http:
                answer = await http.post("/channels/hook/webhook", content=body, headers=posted)
            assert answer.status_code == 202
            await _publish_by_command(site, tmp_path)
            await site.publish(seal(adapted, KEYS, datetime.now(UTC), TRACEPARENT))
            await site.settled(3)
        records = await records_of(site, site.kafka.events_topic, 3)

    known = {
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_time",
        "content-type",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    }
    by_text = {jsonio.loads(record.value)["text"]: record for record in records}
    assert set(by_text) == {"by hook", "by command", "by an adapter"}
    for text, record in by_text.items():
        headers = {name: value.decode() for name, value in record.headers}
        assert len(headers) == len(record.headers)
        assert set(headers) == known | (set() if text == "by command" else {"traceparent"})
        assert headers["ce_specversion"] == "1.0"
        assert headers["ce_type"] == "parley.event.v1"
        assert headers["ce_source"] == source("hook", "shop/1") == "/channels/hook/shop%2F1"
        assert headers["content-type"] == "application/json"
        assert headers["webhook-id"] == webhook_id(headers["ce_id"])
        assert datetime.fromisoformat(headers["ce_time"]).utcoffset() == timedelta(0)
        assert record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 4
        if "traceparent" in headers:
            assert headers["traceparent"].split("-")[1] == TRACEPARENT.split("-")[1]
    assert by_text["by hook"].key == b"hook|shop%2F1|c%7C1|t"
    assert by_text["by command"].key == by_text["by an adapter"].key == b"hook|shop%2F1|c%7C1|"
    sent = {jsonio.loads(body)["text"]: headers.get("traceparent") for headers, body in receiver.requests}
    assert sent["by an adapter"] == TRACEPARENT
    assert sent["by hook"] is not None
    assert sent["by hook"].split("-")[1] == TRACEPARENT.split("-")[1]
    assert sent["by command"] is None


async def _publish_by_command(site: Site, folder: Path) -> None:
    options = {
        "text": "by command",
        "channel": "hook",
        "account": "shop/1",
        "chat": "c|1",
        "principal": "u",
        "key-file": str(folder / "keys"),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from workers.cli import main; main()", "publish"),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "PARLEY_KAFKA_BOOTSTRAP": site.life.bootstrap,
            "PARLEY_EVENTS_TOPIC": site.kafka.events_topic,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


@pytest.mark.rule("EN-3", "EN-4")
async def test_strange_values_are_understood_kept_exactly_or_refused_by_name(site: Site) -> None:
    lab = LabChannel(keys=KEYS)
    plain = jsonio.loads(an_event(event_id="x").encode())

    def value_of(event: Event, text: str = '"t"', **more: str) -> bytes:
        fields = {**jsonio.loads(event.encode())}
        del fields["text"]
        added = "".join(f', "{name}": {content}' for name, content in more.items())
        return f'{jsonio.dumps(fields).decode()[:-1]} , "text":  {text}{added}}}'.encode()

    events = {
        name: an_event(event_id=name, chat=name)
        for name in ("unknown", "nul", "surrogate", "old", "new", "nan")
    }
    old = {
        "version": 0,
        "event_id": "old",
        "channel": "lab",
        "account": "a",
        "chat": "old",
        "private": True,
        "user": "u",
        "ts": events["old"].occurred_at.timestamp(),
        "text": "from version 0",
    }
    values = {
        "unknown": value_of(events["unknown"], '"known"', later='{"a": [1, 2]}', audience2='"x"'),
        "nul": value_of(events["nul"], '"a\\u0000b"'),
        "surrogate": value_of(events["surrogate"], '"c\\ud800d \\ude00"'),
        "old": jsonio.dumps(old),
        "new": jsonio.dumps({**plain, "event_id": "new", "chat": "new", "version": 99}),
        "nan": value_of(events["nan"], '"t"', payload="NaN"),
    }
    versions = {"old": 0, "new": 99}
    records = [raw(values[name], event, version=versions.get(name, 1)) for name, event in events.items()]

    async with a_worker(site, an_app(lab)):
        await site.publish(*records)
        await site.settled(4)
        letters = await records_of(site, site.kafka.dead_topic, 2)

    assert sorted(lab.received) == ["a\ufffdb", "c\ufffdd \ufffd", "from version 0", "known"]
    kept = {row["event_id"]: row["event"] for row in await site.rows("select event_id, event from runs")}
    assert kept == {name: values[name] for name in ("unknown", "nul", "surrogate", "old")}
    reasons = {dict(letter.headers)["parley-reason"]: letter.value for letter in letters}
    assert reasons == {b"unsupported_version": values["new"], b"invalid_json": values["nan"]}
