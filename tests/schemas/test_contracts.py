"""The exported contracts, the golden vectors and the adapter page say what the code does."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka.partitioner import murmur2

from schemas.envelope import to_headers, webhook_id
from schemas.event import decode_event
from schemas.export import CONTRACTS, differing, main
from schemas.reason import Reason
from schemas.signing import SigningKey, sign
from schemas.verdict import verify_record
from tests.schemas.samples import NOW, Registry, a_key, a_secret, golden

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/adapters.md").read_text("utf-8")


@pytest.mark.rule("CH-14")
def test_the_exported_contracts_are_what_the_code_says() -> None:
    assert differing(ROOT / CONTRACTS) == []


def test_the_export_check_fails_on_a_difference(tmp_path: Path) -> None:
    assert main(["--folder", str(tmp_path)]) == 0
    assert main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "asyncapi.json").write_text("{}")
    assert main(["--check", "--folder", str(tmp_path)]) == 1


@pytest.mark.rule("EN-1", "CH-14")
@pytest.mark.parametrize("record", golden("records"), ids=lambda record: record["name"])
def test_a_golden_record_is_made_again_byte_for_byte(record: dict[str, Any]) -> None:
    event = decode_event(record["value"].encode())
    keys = [SigningKey.parse("golden", text) for text in record["signing_keys"]]
    identifier = webhook_id(event.event_id)
    signature = sign(keys, identifier, record["timestamp"], event.raw)
    headers = [[name, text.decode()] for name, text in to_headers(event, record["timestamp"], signature)]
    version, digest = event.payload_hash()

    assert identifier == record["webhook_id"]
    assert signature == record["signature"]
    assert headers == record["headers"]
    assert event.record_key.decode() == record["record_key"]
    assert event.address == record["reply_address"]
    assert {"version": version, "sha256": digest.hex()} == record["payload_hash"]
    for partitions, partition in record["partitions"].items():
        assert (murmur2(event.record_key) & 0x7FFFFFFF) % int(partitions) == partition


@pytest.mark.rule("CH-14")
def test_the_adapter_on_the_page_makes_records_that_are_believed() -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    adapter: dict[str, Any] = {}
    exec(example, adapter)  # the page's own example
    event = {
        "version": 1,
        "event_id": "$a.b:example.org",
        "channel": "matrix x",
        "account": "@bot:example.org",
        "chat": "!r|a/b",
        "audience": "room",
        "kind": "message",
        "principal": {"id": "@ada"},
        "text": "hej 😀",
        "occurred_at": NOW.isoformat(),
    }

    key, value, headers = adapter["seal"](event, a_secret("one"), NOW.timestamp())
    registry = Registry(**{"matrix x": [a_key().verify_key("matrix x")]})

    proven = verify_record(headers, key.encode(), value, registry, NOW, timedelta(days=1))
    assert proven.event.text == "hej 😀"
    assert len(example.splitlines()) <= 40


@pytest.mark.rule("CH-14")
def test_the_page_explains_every_reason() -> None:
    assert [reason for reason in Reason if f"`{reason}`" not in PAGE] == []
