"""A traceparent goes through, with or without OpenTelemetry."""

import pytest

from workers.telemetry import tracing
from workers.telemetry.tracing import carry_on, current_traceparent, valid_traceparent

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    "value", [None, b"", "junk", PARENT.upper(), "00-" + "0" * 32 + "-b7ad6b7169203331-01", b"\xff"]
)
def test_what_is_no_traceparent_is_none(value: bytes | str | None) -> None:
    assert valid_traceparent(value) is None


def test_the_incoming_trace_is_what_goes_out() -> None:
    with carry_on("turn", PARENT.encode(), run_id="r"):
        outgoing = current_traceparent()
    assert outgoing is not None
    assert outgoing.split("-")[1] == PARENT.split("-")[1]
    assert current_traceparent() is None


def test_without_opentelemetry_it_is_passed_on_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_has_otel", False)
    with carry_on("turn", PARENT):
        assert current_traceparent() == PARENT
        with carry_on("step", None):
            assert current_traceparent() is None
        assert current_traceparent() == PARENT
