"""Why an operator's act was not done; each says what to do instead."""

from uuid import UUID

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


class TurnActive(ActRefused):
    """A turn of run `run_id` owns the conversation of lane `lane_id`, which the act would change under it."""

    def __init__(self, act: str, lane_id: int, run_id: UUID, advice: str) -> None:
        super().__init__(
            f"conversation {lane_id} cannot be changed by {act}", f"run {run_id} has an active turn", advice
        )
        self.act = act
        self.lane_id = lane_id
        self.run_id = run_id
