"""The demo on the terminal: the transcript as it happens, then the journal, what was recovered, and the checks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table
from rich.text import Text

from workers.embedded.demo.checks import Check
from workers.embedded.demo.evidence import Evidence
from workers.embedded.demo.plan import Fault
from workers.embedded.demo.platform import Attempt

SHOWN_METRICS: Final = (
    "parley_events_total",
    "parley_takeovers_total",
    "parley_turns_total",
    "parley_attempts_total",
    "parley_deliveries_total",
)
_BROKEN: Final = {
    "dedupe": "every request gets a fresh event id",
    "recover": "nobody takes over a dead worker's turns",
    "reconcile": "nobody looks after uncertain deliveries",
    "recall": "the agent is shown neither notes nor history",
}


class Report:
    """Prints to `console`; texts are shown as they are, never as markup."""

    def __init__(self, console: Console, fault: Fault | None) -> None:
        self._console = console
        self._fault = fault
        self._began = time.monotonic()

    def opening(self) -> None:
        """What is about to happen."""
        self._heading("Parley demo: one conversation, a killed worker, a dropped connection")
        if self._fault is not None:
            self._print(f"  broken on purpose: {self._fault} ({_BROKEN[self._fault]})", "bold red")

    def line(self, text: str) -> None:
        """One thing that happened."""
        self._at("    ", text, "dim")

    def said(self, text: str, statuses: Sequence[int]) -> None:
        """What the person wrote."""
        times = f"  (posted {len(statuses)} times, answers {statuses})" if len(statuses) > 1 else ""
        self._at("you ", f"{text}{times}", "bold")

    def received(self, attempts: Sequence[Attempt]) -> None:
        """What reached the platform since."""
        for attempt in attempts:
            if attempt.repeated:
                self.line(f"the same reply again, same key: not shown twice ({attempt.key})")
            else:
                self._at("bot ", attempt.text, "cyan")
            if attempt.dropped:
                self.line(f"the platform accepted that reply and dropped the connection ({attempt.key})")

    def closing(self, evidence: Evidence, checks: Sequence[Check], seconds: float) -> None:
        """Everything that was found."""
        self._journal(evidence)
        self._deliveries(evidence)
        self._metrics(evidence)
        self._heading("Checks")
        for check in checks:
            mark, style = ("✓", "green") if check.holds else ("✗", "bold red")
            self._print(f"  {mark} {check.promise}", style)
            self._print(f"      {check.found}", "dim")
        failed = sum(not check.holds for check in checks)
        verdict = f"{failed} of {len(checks)} checks failed" if failed else f"all {len(checks)} checks hold"
        self._print(f"\n{verdict} ({seconds:.0f} s)", "bold red" if failed else "bold green")

    def _journal(self, evidence: Evidence) -> None:
        self._heading("Journal")
        table = _table("event", "status", "crashes", "step", "what", "state", "written in life")
        for run in evidence.runs:
            lives = sorted({step.epoch for step in evidence.steps[run.id]})
            about = (run.event_id, run.status, str(run.crashes))
            for step in evidence.steps[run.id]:
                life = lives.index(step.epoch) + 1
                where = f"{step.step}.{step.call}"
                table.add_row(*about, where, f"{step.kind} {step.name}".strip(), step.state, str(life))
                about = ("", "", "")
            if about[0]:
                table.add_row(*about, "", "", "", "")
        self._console.print(table)
        for key, body in evidence.notes:
            self._print(f"  note {key}: {body}")

    def _deliveries(self, evidence: Evidence) -> None:
        self._heading("Replies")
        table = _table("key (run:step:call)", "state", "sends", "what happened")
        for each in evidence.deliveries:
            table.add_row(each.key, each.state, str(each.sends), Text(", then ".join(each.outcomes)))
        self._console.print(table)

    def _metrics(self, evidence: Evidence) -> None:
        self._heading("Metrics of the second worker")
        for family in text_string_to_metric_families(evidence.metrics):
            for sample in family.samples:
                if sample.name in SHOWN_METRICS:
                    labels = ", ".join(f"{name}={value}" for name, value in sample.labels.items())
                    self._print(f"  {sample.name}{{{labels}}} {sample.value:g}")

    def _heading(self, text: str) -> None:
        self._print(f"\n{text}", "bold")

    def _at(self, who: str, text: str, style: str) -> None:
        self._print(f"  {time.monotonic() - self._began:5.1f} s  {who} {text}", style)

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
