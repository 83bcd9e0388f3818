"""No planted secret comes out of a log, by whatever road it went in."""

import errno
import io
import json
import logging
import timeit
from urllib.parse import urlsplit

import asyncpg
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from workers.telemetry import configure, redact_text

PASSWORD = "hunter2-S3CRET"
BOT = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawx"
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WHSK = "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNATURE = "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
SLACK = "xoxb-1234567890-abcdefSECRETghijkl"
TEXT = "please remember my diagnosis"
SECRETS = (PASSWORD, BOT.split(":")[1], WHSEC[6:], WHSK[5:], SIGNATURE, SLACK[5:], TEXT)

DSNS = (
    f"postgresql://parley:{PASSWORD}@127.0.0.1:9/parley",
    f"postgres://parley:{PASSWORD}/@127.0.0.1/parley",
    f"postgresql://parley:{PASSWORD}@x@127.0.0.1/parley",
    f"postgresql://parley:{PASSWORD}#y@127.0.0.1/parley",
    f"postgresql://parley:a {PASSWORD}@127.0.0.1/parley",
    f"postgresql://parley:'{PASSWORD}@127.0.0.1/parley",
    f"postgresql+psycopg://parley:{PASSWORD}@[::1/parley",
    f"postgresql:/parley:{PASSWORD}@127.0.0.1/parley",
    f"postgresql://parley:{PASSWORD}",
    f"parley:{PASSWORD}@127.0.0.1/parley",
    f"host=db user=parley password={PASSWORD} dbname=parley",
    f"host=db password = '{PASSWORD} with blanks' dbname=parley",
    f"PGPASSWORD={PASSWORD}",
    f'{{"sasl_plain_password": "{PASSWORD}"}}',
    f"AIOKafkaClient(sasl_plain_password='{PASSWORD}', x=1)",
)


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def assert_no_secret(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


@pytest.mark.rule("EN-47")
@pytest.mark.parametrize("dsn", DSNS)
def test_a_password_in_a_dsn_however_malformed_is_masked(dsn: str) -> None:
    for text in (
        dsn,
        f"connecting to {dsn} failed",
        f"{dsn!r}",
        f"tuple ({dsn!r}, 1)",
        f"two {dsn} and {dsn}",
    ):
        assert_no_secret(redact_text(text))


@pytest.mark.rule("EN-47")
def test_secrets_of_channels_are_masked_and_the_rest_is_kept(written: io.StringIO) -> None:
    log = structlog.get_logger("parley.test")
    log.info(
        f"POST https://api.telegram.org/bot{BOT}/sendMessage",
        keys=[WHSEC, WHSK],
        headers={"webhook-signature": f"v1,{SIGNATURE} v1a,{SIGNATURE}", "Authorization": f"Bearer {SLACK}"},
        note=f"Authorization: Bearer {SLACK}; got v1,{SIGNATURE}",
        text=TEXT,
        body={"text": TEXT},
        nested=[{"reply_text": TEXT}],
        dsn=PASSWORD,
        raw=TEXT.encode(),
        run_id="0190-run",
        tokens=17,
        token_count=3,
    )
    assert_no_secret(written.getvalue())
    (line,) = lines_of(written)
    assert line["run_id"] == "0190-run"
    assert (line["tokens"], line["token_count"]) == (17, 3)
    assert "api.telegram.org" in str(line["event"])


@pytest.mark.rule("EN-47")
async def test_tracebacks_of_third_parties_are_masked(written: io.StringIO) -> None:
    class Body(BaseModel):
        count: int

    def parse_port(dsn: str) -> None:
        urlsplit(dsn).port  # noqa: B018 - the attribute parses

    for road in (
        lambda: parse_port(f"postgresql://parley:{PASSWORD}/x@127.0.0.1/parley"),
        lambda: Body.model_validate({"count": TEXT}),
        lambda: (_ for _ in ()).throw(RuntimeError(f"no route to postgres://u:{PASSWORD}@127.0.0.1")),
    ):
        try:
            road()
        except (ValueError, RuntimeError):
            logging.getLogger("third.party").exception("failed with %s", f"kafka://u:{PASSWORD}@k:9092")
            structlog.get_logger("ours").exception("failed")
    for dsn in DSNS[:9]:
        try:
            await asyncpg.connect(dsn, timeout=0.01)
        except (OSError, ValueError, asyncpg.InterfaceError, TimeoutError):
            logging.getLogger("asyncpg").exception("no database at %r", dsn)
    assert len([line for line in lines_of(written) if line["level"] == "error"]) == 15
    assert_no_secret(written.getvalue())


def test_what_postgres_quotes_of_a_row_is_masked() -> None:
    assert_no_secret(redact_text(f"DETAIL:  Failing row contains (1, {TEXT}, null)."))
    assert_no_secret(redact_text(f"invalid input for query argument $1: '{TEXT}' (expected int)"))


def test_addresses_without_passwords_stay_readable() -> None:
    for text in (
        "kafka://broker:9092/x",
        "postgresql://db:5432/parley",
        "http://127.0.0.1:8080/health",
        "at 12:30:01",
    ):
        assert redact_text(text) == text


def test_stdlib_and_structlog_lines_have_one_shape(written: io.StringIO) -> None:
    logging.getLogger("aiokafka").warning("node %s away", 3)
    structlog.get_logger("parley").warning("turn settled", run_id="r")
    first, second = lines_of(written)
    assert first["event"] == "node 3 away"
    assert {"event", "level", "logger", "timestamp"} <= first.keys() & second.keys()


def test_configuring_again_replaces_what_was_set(written: io.StringIO) -> None:
    again = io.StringIO()
    configure("WARNING", json=False, stream=again)
    logging.getLogger("x").info("not shown")
    logging.getLogger("x").warning("shown")
    assert written.getvalue() == ""
    assert again.getvalue().count("shown") == 1


class Full(io.StringIO):
    """A disk without room, or a pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("written")
def test_a_log_that_takes_no_line_does_not_reach_the_one_who_writes() -> None:
    configure("INFO", stream=Full())

    structlog.get_logger("x").info("run.admitted")


@given(st.text(max_size=300))
def test_no_text_makes_redaction_fail(text: str) -> None:
    redact_text(text)


def test_a_huge_text_is_cut_and_quick() -> None:
    assert len(redact_text("a:" * 200_000)) < 21_000
    assert len(redact_text("postgres://" + "x:" * 50_000)) < 21_000


@pytest.mark.rule("EN-47")
@pytest.mark.parametrize(
    "filler", ["x", "1", "a.", "a+", "a@", "a:", "'", '"', "token=", "kafka:a:", "input_value="]
)
def test_a_long_text_costs_in_proportion_to_its_length(filler: str) -> None:
    """A text that takes seconds to redact would stop every turn of the worker."""

    def cost(length: int) -> float:
        text = "password " + (filler * length)[:length]
        return min(timeit.repeat(lambda: redact_text(text), number=1, repeat=3))

    assert cost(16_000) < 100 * cost(1_000) + 0.05
