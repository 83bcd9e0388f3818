"""The chat page: three static files from the package, no other origin, no inline script."""

import html
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Request, Response

from workers.api.session import Sessions

_SECURITY: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


def page_routes(app_name: str, sessions: Sessions) -> APIRouter:
    """`/` with the visitor's cookie, and what the page loads."""
    router = APIRouter()
    page = _static("chat.html").replace("{{name}}", html.escape(app_name))
    style, script = _static("chat.css"), _static("chat.js")

    @router.get("/")
    async def chat(request: Request) -> Response:
        response = _file(page, "text/html", "no-store")
        sessions.renew(request, response)
        return response

    @router.get("/web/chat.css")
    async def chat_style() -> Response:
        return _file(style, "text/css", "no-cache")

    @router.get("/web/chat.js")
    async def chat_script() -> Response:
        return _file(script, "text/javascript", "no-cache")

    return router


def _static(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def _file(content: str, media_type: str, cache: str) -> Response:
    return Response(content, headers={**_SECURITY, "cache-control": cache}, media_type=media_type)
