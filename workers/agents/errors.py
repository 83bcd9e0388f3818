"""Why a run of an agent stopped, and whether trying again can help.

`classify` reads an exception and never its message: a reason holds class names and codes of ours only.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from schemas.errors import Ambiguous, Misconfigured, ParleyError, Rejected, Transient

LimitKind = Literal["steps", "tokens", "replies"]

RETRYABLE_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class LostOwnership(Ambiguous):
    """The turn no longer owns its lane: nothing of it is written any more, another worker may have it."""


class ReplayDiverged(Rejected):
    """The journal holds something else at (step, call) than the agent does there now; `what` names the difference."""

    def __init__(self, step: int, call: int, what: str) -> None:
        super().__init__(step, call, what)
        self.step = step
        self.call = call
        self.what = what


class LimitExceeded(Rejected):
    """The run used up what its RunLimits allow of `kind`."""

    def __init__(self, kind: LimitKind, limit: int) -> None:
        super().__init__(kind, limit)
        self.kind = kind
        self.limit = limit


class NotJournalable(Misconfigured):
    """A step's argument or result is no JSON value; `type_name` is what it was, `where` the part of the step."""

    def __init__(self, name: str, where: Literal["argument", "result"], type_name: str) -> None:
        super().__init__(f"the {where} of {name!r} cannot be journalled as JSON: {type_name}")
        self.name = name
        self.where = where
        self.type_name = type_name


class NestedTooDeep(Misconfigured):
    """A step, reply or emit was called inside a step that itself runs inside a tool or step: one level is numbered."""


class TooManyCalls(Rejected):
    """One tool or step did more than `limit` numbered things: replies, steps and note edits together."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a tool or step may do at most {limit} replies, steps and note edits")
        self.limit = limit


class NoText(Rejected):
    """A reply that is no text; `type_name` is what it was."""

    def __init__(self, type_name: str) -> None:
        super().__init__(f"a reply must be text, not {type_name}")
        self.type_name = type_name


class BadStepName(Rejected):
    """A step's name that no journal holds: it is 1 to `limit` characters of text that Postgres can store."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"a step's name must be text of 1 to {limit} characters, without U+0000 or lone surrogates"
        )
        self.limit = limit


class UnknownChannel(Rejected):
    """A message to a channel that the app has not registered."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"no channel {channel!r} is registered")
        self.channel = channel


class UnknownAgent(Rejected):
    """Work for an agent that the app has not registered."""

    def __init__(self, agent: str) -> None:
        super().__init__(f"no agent {agent!r} is registered")
        self.agent = agent


class TooManyHandOffs(Rejected):
    """A run of a chain of `limit` hand-offs hands off again."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a chain of hand-offs ends after {limit}")
        self.limit = limit


class NoReplyAddress(Rejected):
    """A reply in a run that was dispatched by the program and comes from nobody: use `emit`."""

    def __init__(self) -> None:
        super().__init__("a dispatched run has nobody to reply to: use emit(channel, address, body, account)")


class EmptyReply(Rejected):
    """A reply without any text; there is nothing to send."""


class ReplyTooLong(Rejected):
    """A reply of `body_bytes` bytes of UTF-8, more than `limit`; nothing of it is journalled."""

    def __init__(self, body_bytes: int, limit: int) -> None:
        super().__init__(f"a reply of {body_bytes} bytes is longer than the {limit} that are sent at once")
        self.body_bytes = body_bytes
        self.limit = limit


class NoConversation(Rejected):
    """Conversation memory was used in a run that is bound to no conversation."""


class NotesDenied(Rejected):
    """The app's policy refused this turn the notes."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NoteRefused(Rejected):
    """A note that may not be written; `problem` is a code such as `too_many_notes`."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class AgentFailed(ParleyError):
    """The agent's own failure, with a safe `reason`; `retryable` says whether backing off in place may help."""

    def __init__(self, reason: str, *, retryable: bool, retry_after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Retryable:
    """Back off and try the same turn again, not before `retry_after` when the peer named a wait."""

    reason: str
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Permanent:
    """Settle the run as failed with `reason`."""

    reason: str


def classify(error: BaseException) -> Retryable | Permanent:
    """What to do about an agent's exception. Decides by class and status; an exception group by its worst member."""
    match error:
        case AgentFailed(retryable=True):
            return Retryable(error.reason, error.retry_after)
        case AgentFailed():
            return Permanent(error.reason)
        case ReplayDiverged():
            return Permanent("replay_diverged")
        case LimitExceeded():
            return Permanent(f"limit_exceeded: {error.kind}")
        case Transient():
            return Retryable(_class_name(error), error.retry_after)
        case ParleyError():
            return Permanent(_class_name(error))
        case BaseExceptionGroup():
            return _worst(error)
        case ConnectionError():
            return Retryable(_class_name(error))
    return _classify_model_error(error)


def _classify_model_error(error: BaseException) -> Retryable | Permanent:
    """A model provider's error by its HTTP status, known by shape so that no model library is imported here."""
    bases = {base.__name__ for base in type(error).__mro__ if base.__module__.startswith("pydantic_ai.")}
    if "ModelQuotaExceededError" in bases:
        return Permanent(_class_name(error))
    if "ModelHTTPError" in bases:
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            reason = f"model_http_{status}"
            return Retryable(reason, _asked_wait(error)) if status in RETRYABLE_STATUS else Permanent(reason)
    if bases & {"ModelConnectionError", "ModelRateLimitError", "ModelUnavailableError", "ModelServerError"}:
        return Retryable(_class_name(error), _asked_wait(error))
    return Permanent(_class_name(error))


def _worst(group: BaseExceptionGroup[BaseException]) -> Retryable | Permanent:
    verdicts = [classify(error) for error in group.exceptions]
    return next((verdict for verdict in verdicts if isinstance(verdict, Permanent)), verdicts[0])


def _asked_wait(error: BaseException) -> timedelta | None:
    seconds = getattr(error, "retry_after", None)
    if isinstance(seconds, int | float) and 0 < seconds <= 86_400:
        return timedelta(seconds=seconds)
    return None


def _class_name(error: BaseException) -> str:
    return re.sub(r"\W", "_", type(error).__name__)[:80]
