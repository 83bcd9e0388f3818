"""Promises about replies and what of them is recalled. Each function yields one sentence for every breach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from tests.checker.evidence import IDEMPOTENT, SILENT, Evidence, Line, answer_to

GATE = timedelta(seconds=2)
"""How long the next turn of a conversation waits for the replies before it to become final."""
LOOKED_BACK = 4
"""Turns whose replies a turn must recall, if they were sent; the bounds of memory allow for more."""


def one_key_a_reply(evidence: Evidence) -> Iterator[str]:
    """A reply has one key in all attempts, and a peer that knows no keys is sent an accepted one no second time."""
    for event in evidence.published:
        for agent in event.agents:
            accepted = evidence.accepted_of.get(answer_to(agent, event.event_id), [])
            keys = {each.key for each in accepted}
            if len(keys) > 1:
                yield f"{event.event_id}: the reply of {agent} went out under keys {', '.join(sorted(keys))}"
            if event.capability != IDEMPOTENT:
                for key, n in Counter(each.key for each in accepted).items():
                    if n > 1:
                        yield f"{event.event_id}: {event.channel} accepted {key} {n} times"
    for run_id, deliveries in evidence.deliveries_of.items():
        if len(deliveries) > 1:
            yield f"run {run_id} replied once and has {len(deliveries)} deliveries"


def replies_in_order(evidence: Evidence) -> Iterator[str]:
    """The replies of a conversation arrive in the order of its turns."""
    for runs in evidence.lanes.values():
        last = 0
        for run in runs:
            accepted = evidence.accepted_of.get(answer_to(run.agent, run.event_id))
            if accepted:
                if accepted[0].at_ns < last:
                    yield f"the reply to {run.event_id} arrived before an earlier one"
                last = max(last, accepted[0].at_ns)


def sent_means_received(evidence: Evidence) -> Iterator[str]:
    """What counts as sent was accepted, what counts as failed was not, and doubt stays only where nobody can ask."""
    keys = {each.key for each in evidence.accepted}
    events = {run.run_id: evidence.event.get(run.event_id) for run in evidence.runs}
    for delivery in evidence.deliveries:
        event = events.get(delivery.run_id)
        if delivery.state == "sent" and delivery.key not in keys:
            yield f"{delivery.key} counts as sent and was never accepted"
        if delivery.state == "failed" and delivery.key in keys:
            yield f"{delivery.key} counts as failed and was accepted"
        if delivery.state == "unknown" and event is not None and event.capability != SILENT:
            yield f"{delivery.key} is unknown, although {event.channel} can tell"


def reply_before_next_turn(evidence: Evidence) -> Iterator[str]:
    """A turn recalls the sent replies before it, unless it waited for them as long as the gate holds."""
    for runs in evidence.lanes.values():
        for place, run in enumerate(runs):
            begun = _begun(evidence, run.run_id)
            if not run.bound or begun is None or run.started_at is None:
                continue
            recalled = {text for role, text in begun.recalled if role == "assistant"}
            for earlier in runs[max(0, place - LOOKED_BACK) : place]:
                for delivery in evidence.deliveries_of.get(earlier.run_id, []):
                    waited = run.started_at - delivery.created_at
                    if (
                        delivery.recalled
                        and delivery.state == "sent"
                        and answer_to(earlier.agent, earlier.event_id) not in recalled
                        and waited < GATE
                    ):
                        yield (
                            f"{run.event_id} began {waited.total_seconds():.3f} s after the reply to "
                            f"{earlier.event_id} was journalled, without it"
                        )


def only_sent_is_recalled(evidence: Evidence) -> Iterator[str]:
    """A reply that a turn recalls had been accepted before that turn began."""
    for run in evidence.runs:
        begun = _begun(evidence, run.run_id)
        if begun is None:
            continue
        for role, text in begun.recalled:
            if role != "assistant":
                continue
            accepted = evidence.accepted_of.get(text)
            if not accepted:
                yield f"{run.event_id} recalled '{text}', which was never accepted"
            elif accepted[0].at_ns > begun.before_ns:
                yield f"{run.event_id} recalled '{text}' before it was accepted"


def _begun(evidence: Evidence, run_id: str) -> Line | None:
    return next((line for line in evidence.lines_of.get(run_id, []) if line.word == "begin"), None)
