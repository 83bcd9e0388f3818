"""Which database failures blame a row, which ask for another try, and which are neither.

Only a data error (SQLSTATE class 22, or a class 23 that the statement does not expect) can be a row's own fault.
Everything else that the server or the network says is the moment's fault: the batch is tried again whole, so an
outage never refuses a good row.
"""

import asyncpg

from schemas.errors import ParleyError

_DATA_CLASSES = ("22", "23")
# Class 42 is a defect of ours or an unmigrated schema; trying again forever would hide it.
_FINAL_CLASSES = ("42",)


class UnwritableRow(ParleyError):
    """A row of a batch holds a value that cannot be sent, such as text with a lone surrogate."""


def is_data_error(error: BaseException) -> bool:
    """True where one row of a batch may be at fault, so that splitting the batch can find it."""
    if isinstance(error, UnwritableRow):
        return True
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_DATA_CLASSES)
    # asyncpg refuses an argument that does not fit its type before it reaches the server, by an InterfaceError that
    # is a ValueError too and, though named so, no asyncpg.DataError.
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)


def is_retryable(error: BaseException) -> bool:
    """True where the same batch may well succeed later: conflicts, exhaustion, read-only, lost connections."""
    if is_data_error(error):
        return False
    if isinstance(error, asyncpg.PostgresError):
        return not (error.sqlstate or "").startswith(_FINAL_CLASSES)
    # InternalClientError is how asyncpg refuses a connection whose end the server has announced and not yet closed.
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError)
