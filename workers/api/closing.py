"""Long responses end when the server is about to stop, so that a stop does not wait for browsers."""

from collections.abc import Callable

from fastapi import FastAPI


class Closing:
    """One for each application, kept in its state."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    @classmethod
    def of(cls, app: FastAPI) -> "Closing":
        """The application's own; made at the first asking."""
        closing = getattr(app.state, "closing", None)
        if not isinstance(closing, cls):
            closing = app.state.closing = cls()
        return closing

    def then(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the stop begins."""
        self._callbacks.append(callback)

    def begin(self) -> None:
        """The stop begins."""
        for callback in self._callbacks:
            callback()
