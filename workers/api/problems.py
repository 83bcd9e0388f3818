"""Every refusal is `application/problem+json` with a stable code, and says nothing that helps to guess.

Codes: unauthorized, no_session, forbidden_origin, not_found, method_not_allowed, request_timeout, too_large,
unsupported_media_type, invalid_request, too_many_requests, unavailable, internal; for operators, who are told more,
turn_active and refused as well.
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from schemas import jsonio

MEDIA_TYPE: Final = "application/problem+json"

_CODES: Final[Mapping[int, str]] = {
    400: "invalid_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    409: "refused",
    408: "request_timeout",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "too_many_requests",
    503: "unavailable",
}


class Problem(Exception):
    """Ends a request with `status`; `code` when the status's own is too coarse."""

    def __init__(
        self,
        status: int,
        code: str | None = None,
        retry_after_s: int | None = None,
        *,
        detail: str | None = None,
        members: Mapping[str, str] = MappingProxyType({}),
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`detail` is a sentence for a caller who has proven who it is; `members` stand beside it in the document."""
        super().__init__(status, code)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s
        self.detail = detail
        self.members = members
        self.headers = headers

    def response(self) -> Response:
        """The problem document."""
        code = self.code or _CODES.get(self.status, "internal" if self.status >= 500 else "invalid_request")
        document = {
            "type": f"urn:parley:{code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": code,
            **({} if self.detail is None else {"detail": self.detail}),
            **self.members,
        }
        headers = {"cache-control": "no-store", **self.headers}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        return Response(jsonio.dumps(document), self.status, headers, MEDIA_TYPE)


def answer_with_problems(app: FastAPI) -> None:
    """Turn every exception of a request into a problem document, without a word of the exception."""

    async def of_problem(_request: Request, problem: Exception) -> Response:
        assert isinstance(problem, Problem)
        return problem.response()

    async def of_routing(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Problem(error.status_code).response()

    async def of_surprise(_request: Request, _error: Exception) -> Response:
        return Problem(500).response()

    async def of_parameters(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        return Problem(422, detail=f"{first['loc'][-1]}: {first['msg']}").response()

    app.add_exception_handler(Problem, of_problem)
    app.add_exception_handler(RequestValidationError, of_parameters)
    app.add_exception_handler(HTTPException, of_routing)
    app.add_exception_handler(Exception, of_surprise)
