"""Text that every store and every model can hold: no U+0000, no lone surrogates.

Postgres refuses U+0000 and UTF-8 has no surrogates; both become U+FFFD, everything else stays as it came
(no Unicode normalization, no trimming).
"""

import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` with U+0000 and lone surrogates replaced by U+FFFD; the same object when there is nothing to
    do.
    """
    if "\x00" not in text:
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    return _UNSTORABLE.sub("\ufffd", text)


def clean_tree(value: Any) -> Any:
    """A JSON value with `clean` applied to every string in it, keys included; depth is bounded by the
    reader.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_tree(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean_tree(item) for key, item in value.items()}
    return value
