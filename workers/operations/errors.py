"""Why an operator's act was not done; each says what to do instead."""

from schemas.errors import Rejected


class NotFound(Rejected):
    """There is no such thing; `kind` and `name` say which was meant."""

    def __init__(self, kind: str, name: str, advice: str) -> None:
        super().__init__(f"there is no {kind} {name}: {advice}")
        self.kind = kind
        self.name = name


class ActRefused(Rejected):
    """The thing is in a state that forbids the act."""

    def __init__(self, subject: str, why: str, advice: str) -> None:
        super().__init__(f"{subject}: {why}; {advice}")
        self.subject = subject
