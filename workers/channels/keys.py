"""Keys given in code, for tests, development and the lab; deployments read a `schemas.keys.KeyFile`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.signing import SigningKey, VerifyKey


@dataclass(frozen=True, slots=True)
class StaticKeys:
    """The same signing keys for as long as the process lives; each proves any account of the channel."""

    signing: tuple[SigningKey, ...]
    _verify: dict[str, tuple[VerifyKey, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def verify_keys(self, channel: str) -> Sequence[VerifyKey]:
        if channel not in self._verify:
            self._verify[channel] = tuple(key.verify_key(channel) for key in self.signing)
        return self._verify[channel]

    def signing_keys(self, channel: str) -> Sequence[SigningKey]:
        return self.signing
