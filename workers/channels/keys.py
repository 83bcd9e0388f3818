"""Keys given in code, for tests, development and the lab; deployments read a `schemas.keys.KeyFile`."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.signing import SigningKey, VerifyKey


@dataclass(frozen=True, slots=True)
class StaticKeys:
    """The same signing keys for as long as the process lives; each proves any account of the channel."""

    signing: tuple[SigningKey, ...]

    def verify_keys(self, channel: str) -> Sequence[VerifyKey]:
        return tuple(key.verify_key(channel) for key in self.signing)

    def signing_keys(self, channel: str) -> Sequence[SigningKey]:
        return self.signing
