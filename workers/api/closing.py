"""Long responses end when the server is about to stop, so that a stop does not wait for browsers."""

import asyncio

from fastapi import FastAPI


class Closing:
    """One for each application, kept in its state."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()

    @classmethod
    def of(cls, app: FastAPI) -> "Closing":
        """The application's own; made at the first asking."""
        closing = getattr(app.state, "closing", None)
        if not isinstance(closing, cls):
            closing = app.state.closing = cls()
        return closing

    def begin(self) -> None:
        """End long responses now."""
        self._begun.set()

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    async def wait(self) -> None:
        """Return when the stop begins."""
        await self._begun.wait()
