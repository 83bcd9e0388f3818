"""The promises by their stable names, and what is broken of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.checker import of_replies, of_turns
from tests.checker.evidence import Evidence

PROMISES: Final[Mapping[str, Callable[[Evidence], Iterator[str]]]] = {
    "no-lost-event": of_turns.no_lost_event,
    "completed-once": of_turns.completed_once,
    "admitted-in-order": of_turns.admitted_in_order,
    "serial-turns": of_turns.serial_turns,
    "one-writer": of_turns.one_writer,
    "same-snapshot": of_turns.same_snapshot,
    "whole-history": of_turns.whole_history,
    "nothing-left-owned": of_turns.nothing_left_owned,
    "one-key-a-reply": of_replies.one_key_a_reply,
    "replies-in-order": of_replies.replies_in_order,
    "sent-means-received": of_replies.sent_means_received,
    "reply-before-next-turn": of_replies.reply_before_next_turn,
    "only-sent-is-recalled": of_replies.only_sent_is_recalled,
}


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that the records disprove; each breach in one sentence."""

    promise: str
    breaches: Sequence[str]


def check(evidence: Evidence) -> list[Broken]:
    """The promises that were not kept, in the order of PROMISES."""
    found = [Broken(name, list(breaches(evidence))) for name, breaches in PROMISES.items()]
    return [broken for broken in found if broken.breaches]
