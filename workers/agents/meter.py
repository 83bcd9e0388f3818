"""What a run used: counted as it happens, read at settlement, limited on the way."""

from dataclasses import dataclass, field
from typing import Final

from workers.agents.errors import LimitExceeded


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The most one run may use: model responses and steps together, tokens in and out together, messages emitted."""

    steps: int = 25
    tokens: int | None = None
    replies: int = 20


DEFAULT_LIMITS: Final = RunLimits()


@dataclass(slots=True)
class ModelUsage:
    """What one model was asked for."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class Meter:
    """The use of one run, replayed steps included, so that a resumed run is limited and billed as a whole."""

    steps: int = 0
    replies: int = 0
    notes_denied: int = 0
    answered: bool = False
    """Whether something was sent to where the message came from."""
    ended_unsent: bool = False
    """Whether a model agent ended with a text, and never answered."""
    models: dict[str, ModelUsage] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Input and output tokens of all models."""
        return sum(used.input_tokens + used.output_tokens for used in self.models.values())

    def count_step(self, limits: RunLimits) -> None:
        """One more model response or step is about to be taken. Raises LimitExceeded."""
        if self.steps >= limits.steps:
            raise LimitExceeded("steps", limits.steps)
        self.steps += 1

    def count_reply(self, limits: RunLimits) -> None:
        """One more message is about to be emitted. Raises LimitExceeded."""
        if self.replies >= limits.replies:
            raise LimitExceeded("replies", limits.replies)
        self.replies += 1

    def count_response(self, model: str, input_tokens: int, output_tokens: int, limits: RunLimits) -> None:
        """A model answered. Raises LimitExceeded when the run's tokens are used up beyond the limit."""
        used = self.models.setdefault(model, ModelUsage())
        used.requests += 1
        used.input_tokens += input_tokens
        used.output_tokens += output_tokens
        if limits.tokens is not None and self.tokens > limits.tokens:
            raise LimitExceeded("tokens", limits.tokens)

    def as_document(self) -> dict[str, object]:
        """The JSON value kept with the run."""
        return {
            "steps": self.steps,
            "replies": self.replies,
            "models": {
                name: {
                    "requests": used.requests,
                    "input_tokens": used.input_tokens,
                    "output_tokens": used.output_tokens,
                }
                for name, used in self.models.items()
            },
        }
