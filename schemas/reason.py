"""Why a record was refused: the closed list that dead letters, metrics and logs share."""

from enum import StrEnum
from typing import ClassVar, Final

from schemas.errors import Rejected

MAX_DETAIL_CHARACTERS: Final = 200


class Reason(StrEnum):
    """A reason code; `replayable` says whether an operator may send the record in again."""

    TOO_LARGE = "too_large"
    UNDECODABLE = "undecodable"
    INVALID_JSON = "invalid_json"
    UNAUTHENTICATED = "unauthenticated"
    UNSUPPORTED_VERSION = "unsupported_version"
    INVALID_EVENT = "invalid_event"
    ENVELOPE_MISMATCH = "envelope_mismatch"
    TOO_OLD = "too_old"
    TOO_NEW = "too_new"
    PAYLOAD_MISMATCH = "payload_mismatch"
    POLICY_UNAVAILABLE = "policy_unavailable"
    UNHEALABLE = "unhealable"
    REFUSED_BY_STORE = "refused_by_store"

    @property
    def replayable(self) -> bool:
        """False where the value was never proven to come from its channel, or is not kept."""
        return self not in _NOT_REPLAYABLE


_NOT_REPLAYABLE = frozenset(
    {Reason.TOO_LARGE, Reason.UNDECODABLE, Reason.INVALID_JSON, Reason.UNAUTHENTICATED}
)


class RefusedRecord(Rejected):
    """A record that is wrong for good; every leaf names its `reason`."""

    reason: ClassVar[Reason]

    @property
    def detail(self) -> str:
        """What was wrong, in at most MAX_DETAIL_CHARACTERS; holds names of fields and channels, never a
        secret.
        """
        return ": ".join(str(part) for part in self.args if part != "")[:MAX_DETAIL_CHARACTERS]
