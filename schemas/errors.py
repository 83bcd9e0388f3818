"""One tree of errors, cut by what the caller must do next.

Leaf classes carry fields, not prose. Outcomes of normal life (a duplicate, a lost race) are values.
"""

from datetime import timedelta


class ParleyError(Exception):
    """Anything this project raises on purpose."""


class Rejected(ParleyError):
    """The input is wrong for good: dead-letter it, never retry."""


class Transient(ParleyError):
    """Try again; not before `retry_after` has passed when the peer named a wait."""

    def __init__(self, *args: object, retry_after: timedelta | None = None) -> None:
        super().__init__(*args)
        self.retry_after = retry_after


class Ambiguous(ParleyError):
    """The effect may have happened: reconcile, never resend blindly."""


class Misconfigured(ParleyError):
    """An operator must act: stop at start-up."""
