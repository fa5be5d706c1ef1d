"""Keys of secrets: what one sealed only it opens, at its place."""

import pytest

from runlane.errors import Defect, Invalid, Unavailable
from runlane.keyring import Keyring, Sealed

OLD, NEW = "old " * 10, "new " * 10


def test_value_is_opened_by_the_key_that_sealed_it_whatever_came_after() -> None:
    sealed = Keyring.of([OLD]).seal("hunter2!", "here")

    both = Keyring.of([NEW, OLD])

    assert both.open(sealed, "here") == "hunter2!"
    assert both.newest != sealed.key_id
    assert both.seal("x", "here").key_id == both.newest == Keyring.of([NEW]).newest


def test_same_value_looks_different_each_time_and_nothing_of_it_shows() -> None:
    ring = Keyring.of([OLD])

    first, second = ring.seal("hunter2!", "here"), ring.seal("hunter2!", "here")

    assert first.nonce != second.nonce
    assert first.ciphertext != second.ciphertext
    assert b"hunter2!" not in first.ciphertext
    assert "old" not in repr(ring)


@pytest.mark.parametrize(
    ("sealed", "place"),
    [
        (lambda it: it, "elsewhere"),
        (lambda it: Sealed(it.key_id, it.nonce, it.ciphertext[:-1] + b"x"), "here"),
        (lambda it: Sealed(it.key_id, b"x" * 12, it.ciphertext), "here"),
    ],
)
def test_value_that_was_moved_or_changed_is_not_opened(sealed: object, place: str) -> None:
    ring = Keyring.of([OLD])
    changed = sealed(ring.seal("hunter2!", "here"))  # type: ignore[operator]  # a function of the case

    with pytest.raises(Defect, match="not what was stored"):
        ring.open(changed, place)


def test_missing_keys_are_the_operators_to_bring_back_and_short_ones_are_refused() -> None:
    sealed = Keyring.of([OLD]).seal("hunter2!", "here")

    for ring in (Keyring(), Keyring.of([NEW])):
        with pytest.raises(Unavailable) as refusal:
            ring.open(sealed, "here")
        assert refusal.value.code == "secret.no_key"
    with pytest.raises(Unavailable):
        Keyring().seal("hunter2!", "here")
    with pytest.raises(Invalid):
        Keyring.of(["short"])
