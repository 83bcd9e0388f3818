"""Standard Webhooks signatures over exact bytes: symmetric `v1` (HMAC-SHA256) and asymmetric `v1a` (Ed25519).

Signed is `id.timestamp.value`. The signature header is a list of `version,base64` entries with one space
between them; entries of versions not known here are skipped, anything else off this grammar voids the
header. A secret is written `whsec_` (16 to 64 bytes in base64; the specification asks for 24, some senders
issue 18), a public key `whpk_` (32 bytes), a private key `whsk_` (32 bytes, or 64 with the public half
behind). Verification answers with a key or None for every input, and compares in constant time.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from schemas.errors import Misconfigured

MAX_SIGNATURES: Final = 8
MAX_WEBHOOK_ID_BYTES: Final = 4096
MAX_SIGNATURE_HEADER_BYTES: Final = 4096

_ID = re.compile(rb"[!-\-/-~]{1,%d}" % MAX_WEBHOOK_ID_BYTES)
_TIMESTAMP = re.compile(rb"0|[1-9][0-9]{0,11}")
_SIGNATURES = re.compile(rb"[A-Za-z0-9_-]+,[!-+\--~]+(?: [A-Za-z0-9_-]+,[!-+\--~]+)*")


class MalformedKey(Misconfigured):
    """A key text is not one of the three forms; the text itself is never in the error."""


class _Verifier(Protocol):
    @property
    def version(self) -> bytes: ...

    def matches(self, message: bytes, signature: bytes) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Hmac:
    secret: bytes = field(repr=False)
    version: bytes = b"v1"

    def sign(self, message: bytes) -> bytes:
        return base64.b64encode(hmac.digest(self.secret, message, "sha256"))

    def matches(self, message: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(self.sign(message), signature)


@dataclass(frozen=True, slots=True)
class _Ed25519:
    public: Ed25519PublicKey = field(repr=False)
    version: bytes = b"v1a"

    def matches(self, message: bytes, signature: bytes) -> bool:
        try:
            self.public.verify(binascii.a2b_base64(signature, strict_mode=True), message)
        except (InvalidSignature, binascii.Error):
            return False
        return True


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """Proves signatures of one channel, or of one account on it; `channel` "" where no channel is
    concerned.
    """

    id: str
    verifier: _Verifier = field(repr=False)
    channel: str = ""
    account: str | None = None

    @classmethod
    def parse(cls, key_id: str, text: str, channel: str = "", account: str | None = None) -> "VerifyKey":
        """The key in `whsec_...`, `whpk_...` or `whsk_...`. Raises MalformedKey."""
        if text.startswith("whpk_"):
            raw = _decode(text, "whpk_", 32, 32)
            return cls(key_id, _Ed25519(Ed25519PublicKey.from_public_bytes(raw)), channel, account)
        return SigningKey.parse(key_id, text).verify_key(channel, account)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """Makes signatures; the secret half of a `VerifyKey`."""

    id: str
    signer: "_Hmac | Ed25519PrivateKey" = field(repr=False)

    @classmethod
    def parse(cls, key_id: str, text: str) -> "SigningKey":
        """The key in `whsec_...` or `whsk_...`. Raises MalformedKey."""
        if text.startswith("whsk_"):
            return cls(key_id, _private_key(_decode(text, "whsk_", 32, 64)))
        return cls(key_id, _Hmac(_decode(text, "whsec_", 16, 64)))

    def verify_key(self, channel: str = "", account: str | None = None) -> VerifyKey:
        """The key that proves what this one signs."""
        if isinstance(self.signer, _Hmac):
            return VerifyKey(self.id, self.signer, channel, account)
        return VerifyKey(self.id, _Ed25519(self.signer.public_key()), channel, account)

    def entry(self, message: bytes) -> str:
        """One `version,base64` entry of a signature header."""
        if isinstance(self.signer, _Hmac):
            return "v1," + self.signer.sign(message).decode()
        return "v1a," + base64.b64encode(self.signer.sign(message)).decode()


def sign(keys: Sequence[SigningKey], webhook_id: str, timestamp: int, value: bytes) -> str:
    """The signature header with one entry per key, over `webhook_id`, `timestamp` (epoch seconds) and
    `value`.
    """
    identifier, seconds = webhook_id.encode(), b"%d" % timestamp
    if not keys or len(keys) > MAX_SIGNATURES:
        raise ValueError(f"sign with 1 to {MAX_SIGNATURES} keys")
    if not _ID.fullmatch(identifier) or not _TIMESTAMP.fullmatch(seconds):
        raise ValueError("a webhook id is visible ASCII without '.', a timestamp is epoch seconds")
    message = b".".join((identifier, seconds, value))
    return " ".join(key.entry(message) for key in keys)


def verify(
    keys: Sequence[VerifyKey],
    webhook_id: bytes | str | None,
    timestamp: bytes | str | None,
    signature_header: bytes | str | None,
    value: bytes | str,
    now: datetime,
    tolerance: timedelta | None = timedelta(minutes=5),
) -> VerifyKey | None:
    """The first of `keys` that made one of the signatures, or None.

    `tolerance` bounds the distance between the timestamp and `now` both ways; None leaves age to the caller.
    """
    identifier, stamp, header = _bytes(webhook_id), _bytes(timestamp), _bytes(signature_header)
    if not _ID.fullmatch(identifier) or (seconds := signed_at(stamp)) is None:
        return None
    if tolerance is not None and abs(now.timestamp() - seconds) > tolerance.total_seconds():
        return None
    signatures = _signatures(header)
    if not signatures:
        return None
    message = b".".join((identifier, stamp, _bytes(value)))
    for key in keys:
        for version, signature in signatures:
            if version == key.verifier.version and key.verifier.matches(message, signature):
                return key
    return None


def signed_at(timestamp: bytes | str | None) -> int | None:
    """Epoch seconds in a `webhook-timestamp` header, or None when it is not 1 to 12 plain digits."""
    digits = _bytes(timestamp)
    return int(digits) if _TIMESTAMP.fullmatch(digits) else None


def _signatures(header: bytes) -> list[tuple[bytes, bytes]]:
    """The entries of a header as (version, signature), at most MAX_SIGNATURES; none when the header is
    malformed.
    """
    if len(header) > MAX_SIGNATURE_HEADER_BYTES or not _SIGNATURES.fullmatch(header):
        return []
    entries = header.split(b" ")
    if len(entries) > MAX_SIGNATURES:
        return []
    return [(version, signature) for version, _, signature in (entry.partition(b",") for entry in entries)]


def _bytes(part: bytes | str | None) -> bytes:
    """The UTF-8 bytes of `part`; a lone surrogate becomes a byte that no grammar here and no signature
    knows.
    """
    if isinstance(part, str):
        return part.encode("utf-8", "surrogatepass")
    return part if part is not None else b""


def _decode(text: str, prefix: str, least: int, most: int) -> bytes:
    if not text.startswith(prefix):
        raise MalformedKey("a key starts with whsec_, whpk_ or whsk_")
    try:
        raw = base64.b64decode(text.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        raise MalformedKey(f"the part after {prefix} is not base64") from None
    if not least <= len(raw) <= most:
        raise MalformedKey(f"a {prefix} key has {least} to {most} bytes, not {len(raw)}")
    return raw


def _private_key(raw: bytes) -> Ed25519PrivateKey:
    if len(raw) not in (32, 64):
        raise MalformedKey("a whsk_ key has 32 or 64 bytes")
    key = Ed25519PrivateKey.from_private_bytes(raw[:32])
    if len(raw) == 64 and key.public_key().public_bytes_raw() != raw[32:]:
        raise MalformedKey("the halves of the whsk_ key do not belong together")
    return key
