"""No planted secret is in the logs, metrics or dead letters of a whole run in which everything fails once."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.envelope import SealedEvent
from tests.support.events import a_key, an_event, sealed
from tests.support.running import ROOT, Site
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite

SECRET = "PLANTEDx9Qe7"
PASSWORD = f"db-{SECRET}"
URL = f"http://127.0.0.1:9/bot123456:{SECRET}/send?token={SECRET}"
LEAKY = "tests.worker.apps:leaky"


@pytest.mark.rule("EN-47")
async def test_a_whole_run_at_debug_shows_no_secret(make_site: MakeSite, database_url: str) -> None:
    with_password = database_url.replace("postgres:@", f"postgres:{PASSWORD}@")
    assert with_password != database_url
    async with make_site(app=LEAKY, options={"secret": SECRET, "url": URL}, log_level="DEBUG") as site:
        child = site.start(database_url=with_password)
        texts = [f"{SECRET} good", f"{SECRET} permanent", f"{SECRET} denied"]
        await site.publish(
            *(an_event(event_id=f"e{n}", text=text) for n, text in enumerate(texts)),
            sealed(an_event(text=SECRET), a_key(SECRET)),
            SealedEvent(b"k", SECRET.encode(), [("webhook-signature", SECRET.encode())]),
        )

        async def ended() -> Any:
            over = await site.value("select count(*) from runs where finished_at is not null")
            sent = await site.value(
                "select count(*) from deliveries where channel = 'lab' and state = 'sent'"
            )
            return over == 2 and sent == 3

        await eventually("two runs have ended", ended)
        metrics = await child.scrape()
        log = child.life.log.read_text("utf-8")

    moves = ["turn.failed", "event.denied", "delivery.channel_raised", "event.refused", "delivery.sent"]
    assert [move for move in moves if f'"event":"{move}"' not in log] == []
    assert _lines_with(log, SECRET) == []
    assert _lines_with(metrics, SECRET) == []
    for line in log.splitlines():
        assert line.startswith("{"), line


def _lines_with(text: str, secret: str) -> list[str]:
    return [line for line in text.splitlines() if secret in line]


DSNS = (
    f"postgresql://parley:{SECRET}@127.0.0.1:port/parley",
    f"postgresql://parley:{SECRET}@[::1/parley",
    f"parley:{SECRET}@127.0.0.1/parley",
)
SERVE_WITH_EACH = """
import os, sys
from workers.cli import main
for dsn in sys.argv[1:]:
    os.environ["PARLEY_DATABASE_URL"] = dsn
    sys.argv[1:] = ["serve", "shop:app"]
    try:
        main()
    except SystemExit as exit:
        print("exit", exit.code, flush=True)
"""


@pytest.mark.rule("EN-47")
async def test_a_start_with_a_malformed_dsn_does_not_tell_its_password(site: Site, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from workers.app import App\napp = App('shop', agents=[], channels=[])\n", "utf-8"
    )

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE_WITH_EACH, *DSNS),
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": f"{ROOT}:{tmp_path}",
            "PARLEY_KAFKA_BOOTSTRAP": site.life.bootstrap,
            "PARLEY_LOG_LEVEL": "debug",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await asyncio.wait_for(process.communicate(), 60))[0].decode()

    exits = [line for line in output.splitlines() if line.startswith("exit ")]
    assert len(exits) == len(DSNS), output
    assert "exit 0" not in exits
    assert len(output.splitlines()) >= 2 * len(DSNS)
    assert SECRET not in output
