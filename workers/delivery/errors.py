"""What the delivery loops raise."""

from uuid import UUID

from schemas.errors import Transient


class SessionEnded(Transient):
    """The worker session was taken over or ended: this process must not claim under it again."""

    def __init__(self, session_id: UUID) -> None:
        super().__init__(session_id)
        self.session_id = session_id
