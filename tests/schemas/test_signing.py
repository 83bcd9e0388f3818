"""Standard Webhooks signatures."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.signing import MAX_SIGNATURES, MalformedKey, SigningKey, VerifyKey, sign, verify
from tests.schemas.samples import NOW, a_key, a_secret, golden

STAMP = int(NOW.timestamp())
HOSTILE = st.binary(max_size=80) | st.text(st.characters(exclude_categories=()), max_size=80) | st.none()


def check(
    header: Any, *, keys: Any = None, identifier: Any = "id", stamp: Any = str(STAMP), value: Any = b"{}"
) -> VerifyKey | None:
    return verify(keys or [a_key().verify_key()], identifier, stamp, header, value, NOW)


@pytest.mark.rule("EN-2")
@pytest.mark.parametrize("vector", golden("published"), ids=lambda vector: vector["name"])
def test_published_vectors_are_reproduced_and_verified(vector: dict[str, str]) -> None:
    key = SigningKey.parse("published", vector["key"])
    value = vector["value"].encode()
    now = datetime.fromtimestamp(int(vector["timestamp"]), UTC)

    assert sign([key], vector["webhook_id"], int(vector["timestamp"]), value) == vector["signature"]
    public = VerifyKey.parse("public", vector.get("public", vector["key"]))
    assert (
        verify([public], vector["webhook_id"], vector["timestamp"], vector["signature"], value, now) is public
    )


@pytest.mark.rule("EN-2")
@given(
    st.binary(max_size=200),
    st.sampled_from(["whsec_", "whsk_"]),
    st.text("abcABC123_-", min_size=1, max_size=20),
)
def test_what_was_signed_verifies_and_nothing_near_it(value: bytes, prefix: str, identifier: str) -> None:
    key = a_key("k", prefix)
    header = sign([key], identifier, STAMP, value)
    keys = [key.verify_key()]

    assert check(header, keys=keys, identifier=identifier, value=value) is keys[0]
    assert check(header, keys=keys, identifier=identifier, value=value + b" ") is None
    assert check(header, keys=keys, identifier=identifier + "x", value=value) is None
    assert check(header, keys=keys, identifier=identifier, value=value, stamp=str(STAMP + 1)) is None
    assert (
        check(header, keys=[a_key("other", prefix).verify_key()], identifier=identifier, value=value) is None
    )


@pytest.mark.rule("EN-2")
def test_several_signatures_and_keys_overlap_during_rotation() -> None:
    old, new, asymmetric = a_key("old"), a_key("new"), a_key("third", "whsk_")
    header = sign([old, asymmetric, new], "id", STAMP, b"{}")

    for key in (old, new, asymmetric):
        proof = check(header, keys=[a_key("unrelated").verify_key(), key.verify_key()])
        assert proof is not None
        assert proof.id == key.id


@pytest.mark.rule("EN-2")
def test_signatures_of_unknown_versions_are_skipped() -> None:
    known = sign([a_key()], "id", STAMP, b"{}")

    assert check(f"v2,AAAA {known} v9z,-_")
    assert check(known.replace("v1,", "v2,")) is None
    assert check(known.replace("v1,", "v1a,")) is None


@pytest.mark.rule("EN-2")
@pytest.mark.parametrize(
    "spoil",
    ["{} ", " {}", "v1  {}", "{}  {}", "nocomma {}", "{},x", "{}\n", "v1,é {}", "{}\x00", "{}=", "v1,"],
)
def test_a_header_off_the_grammar_proves_nothing(spoil: str) -> None:
    assert check(spoil.replace("{}", sign([a_key()], "id", STAMP, b"{}"))) is None


def test_the_number_of_signatures_is_bounded() -> None:
    good = sign([a_key()], "id", STAMP, b"{}")

    assert check(" ".join([good] * MAX_SIGNATURES))
    assert check(" ".join([good] * (MAX_SIGNATURES + 1))) is None


@pytest.mark.parametrize(
    "stamp",
    [
        f"{STAMP}.7",
        f" {STAMP}",
        f"{STAMP} ",
        f"+{STAMP}",
        f"0{STAMP}",
        "-1",
        "",
        "abc",
        "١٧",
        "9" * 13,
        f"{STAMP}\n",
    ],
)
def test_a_timestamp_is_plain_digits(stamp: str) -> None:
    header = sign([a_key()], "id", STAMP, b"{}")

    assert check(header, stamp=stamp) is None


def test_an_id_with_a_dot_cannot_shift_what_was_signed() -> None:
    header = sign([a_key()], "id", STAMP, b"5.{}")

    assert check(header, identifier=f"id.{STAMP}", stamp="5") is None
    with pytest.raises(ValueError, match=r"without '\.'"):
        sign([a_key()], "a.b", STAMP, b"")


def test_the_tolerance_holds_both_ways_and_can_be_left_to_the_caller() -> None:
    key = a_key().verify_key()
    header = sign([a_key()], "id", STAMP, b"{}")

    def at(seconds: int, tolerance: timedelta | None = timedelta(minutes=5)) -> VerifyKey | None:
        return verify([key], "id", str(STAMP), header, b"{}", NOW + timedelta(seconds=seconds), tolerance)

    assert at(300)
    assert at(-300)
    assert at(301) is None
    assert at(-301) is None
    assert at(10**8, tolerance=None)


@pytest.mark.rule("EN-2")
@given(
    HOSTILE,
    HOSTILE,
    HOSTILE,
    st.binary(max_size=40) | st.text(st.characters(exclude_categories=()), max_size=40),
)
@example("id", str(STAMP), "v1a,=", b"\xff")
@example("id", str(STAMP), "v1," + "é", b"")
@example("id", str(STAMP), "v1a,\ud800", "\ud800")
def test_no_input_makes_the_verifier_raise(identifier: Any, stamp: Any, header: Any, value: Any) -> None:
    keys = [a_key().verify_key(), a_key("third", "whsk_").verify_key()]

    for given_stamp in (stamp, str(STAMP)):
        for given_header in (header, f"v1a,{header}", f"v1,{header}"):
            assert (
                check(given_header, keys=keys, identifier=identifier, stamp=given_stamp, value=value) is None
            )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        "whsec_AAAA",
        "whsec_!!!!",
        "secret",
        "whpk_AAAA",
        "whsk_" + "A" * 60,
        "whsk_" + "A" * 86 + "==",
    ],
)
def test_a_malformed_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(MalformedKey) as refused:
        VerifyKey.parse("k", text)
    assert len(text) < 8 or text not in str(refused.value)


def test_a_private_key_may_carry_its_public_half() -> None:
    seed = base64.b64decode(a_secret("seed").removeprefix("whsec_"))
    short = SigningKey.parse("k", "whsk_" + base64.b64encode(seed).decode())
    public = short.signer.public_key().public_bytes_raw()  # type: ignore[union-attr]  # whsk_ is Ed25519
    long = SigningKey.parse("k", "whsk_" + base64.b64encode(seed + public).decode())

    assert sign([short], "id", 1, b"x") == sign([long], "id", 1, b"x")


def test_a_key_never_shows_its_secret() -> None:
    text = a_secret("one")

    assert text.removeprefix("whsec_") not in repr(a_key())
    assert "one......" not in repr(a_key().verify_key()) + repr(a_key())
