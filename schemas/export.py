"""The contracts as files that other languages read: JSON Schema and one AsyncAPI 3.0 document.

`python -m schemas.export` writes them to docs/contracts; with `--check` it writes nothing and fails
when a file there differs from what the code says.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import orjson

from schemas.dead_letter import DETAIL_HEADER, REASON_HEADER, REFUSED_AT_HEADER, SHA256_HEADER
from schemas.delivery import DELIVERY_TYPE, DeliveryCommand
from schemas.envelope import CONTENT_TYPE, SPEC_VERSION
from schemas.event import EVENT_TYPE, MAX_EVENT_BYTES, Event
from schemas.reason import Reason

CONTRACTS: Final = Path("docs/contracts")
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def documents() -> dict[str, bytes]:
    """File name to content of every exported contract."""
    return {
        "event.v1.schema.json": _pretty(_event_schema()),
        "delivery.v1.schema.json": _pretty({"$schema": _DIALECT, **DeliveryCommand.model_json_schema()}),
        "asyncapi.json": _pretty(_asyncapi()),
    }


def differing(folder: Path) -> list[str]:
    """The names of contract files in `folder` that are missing or not what the code says."""
    return [name for name, content in documents().items() if _read(folder / name) != content]


def write(folder: Path) -> None:
    """Write every contract to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in documents().items():
        (folder / name).write_bytes(content)


def main(arguments: list[str]) -> int:
    """The exit status of the command: 1 when `--check` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m schemas.export")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    parser.add_argument("--folder", type=Path, default=CONTRACTS)
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.folder)
        return 0
    stale = differing(options.folder)
    for name in stale:
        sys.stderr.write(f"{options.folder / name} is not what the code says; run python -m schemas.export\n")
    return 1 if stale else 0


def _event_schema() -> dict[str, Any]:
    """The schema of the value; a reader insists on the version, which only the constructor fills in."""
    schema = Event.model_json_schema()
    return {"$schema": _DIALECT, **schema, "required": ["version", *schema["required"]]}


def _asyncapi() -> dict[str, Any]:
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Parley",
            "version": "1.0.0",
            "description": "Signed events in, delivery wake-ups between workers, refused records aside.",
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {
            "events": _channel("channel.events", "event", "Signed events from adapters."),
            "deliveries": _channel("channel.deliveries", "delivery", "Wake-ups for the sending loop."),
            "deadEvents": _channel("channel.events.dead", "deadEvent", "Refused records of channel.events."),
        },
        "operations": {
            "receiveEvent": _receive("events", "event"),
            "receiveDelivery": _receive("deliveries", "delivery"),
            "sendDeadEvent": {**_receive("deadEvents", "deadEvent"), "action": "send"},
        },
        "components": {"messages": {"event": _event(), "delivery": _delivery(), "deadEvent": _dead_event()}},
    }


def _channel(address: str, message: str, description: str) -> dict[str, Any]:
    return {
        "address": address,
        "description": description,
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
    }


def _receive(channel: str, message: str) -> dict[str, Any]:
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{message}"}],
    }


def _event() -> dict[str, Any]:
    return {
        "name": EVENT_TYPE,
        "summary": f"One thing a person did on a channel; at most {MAX_EVENT_BYTES} value bytes.",
        "contentType": CONTENT_TYPE,
        "headers": {
            "type": "object",
            "required": [
                "ce_specversion",
                "ce_id",
                "ce_source",
                "ce_type",
                "ce_time",
                "content-type",
                "webhook-id",
                "webhook-timestamp",
                "webhook-signature",
            ],
            "properties": {
                "ce_specversion": {"const": SPEC_VERSION},
                "ce_id": _text("The event_id of the value."),
                "ce_source": _text("/channels/{channel}/{account}, both percent-escaped."),
                "ce_type": {"const": EVENT_TYPE},
                "ce_time": {**_text("The occurred_at of the value."), "format": "date-time"},
                "content-type": {"const": CONTENT_TYPE},
                "webhook-id": _text("The event_id percent-escaped, '.' as %2E."),
                "webhook-timestamp": {
                    **_text("When it was signed, epoch seconds."),
                    "pattern": "^[0-9]{1,12}$",
                },
                "webhook-signature": _text("Standard Webhooks: v1,BASE64 or v1a,BASE64; one space between."),
                "traceparent": _text("W3C trace context; not signed."),
            },
        },
        "payload": {"$ref": "./event.v1.schema.json"},
        "bindings": _kafka_key("channel|account|chat|thread, each percent-escaped, murmur2 partitioner."),
    }


def _delivery() -> dict[str, Any]:
    return {
        "name": DELIVERY_TYPE,
        "summary": "Look at this delivery now; the truth is in the database, losing one is harmless.",
        "contentType": CONTENT_TYPE,
        "payload": {"$ref": "./delivery.v1.schema.json"},
        "bindings": _kafka_key("The address id in decimal."),
    }


def _dead_event() -> dict[str, Any]:
    return {
        "name": "parley.event.dead",
        "summary": "A refused record with its original headers and value; no value when it was too large.",
        "headers": {
            "type": "object",
            "required": [REASON_HEADER, SHA256_HEADER, REFUSED_AT_HEADER],
            "properties": {
                REASON_HEADER: {"type": "string", "enum": [reason.value for reason in Reason]},
                DETAIL_HEADER: _text("What was wrong, without content."),
                SHA256_HEADER: _text("SHA-256 of the original value, hex."),
                REFUSED_AT_HEADER: {**_text("When it was refused."), "format": "date-time"},
            },
        },
        "payload": {"description": "The original value bytes, whatever they are."},
        "bindings": _kafka_key("topic:partition:offset of the refused record."),
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _kafka_key(description: str) -> dict[str, Any]:
    return {"kafka": {"key": _text(description), "bindingVersion": "0.5.0"}}


def _pretty(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
