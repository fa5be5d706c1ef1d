"""Which scan workers an API takes, by the protocol that both speak."""

import pytest

from runlane.protocol import Skew, skew_of


@pytest.mark.parametrize(
    ("worker", "skew"),
    [(7, Skew.NONE), (6, Skew.BEHIND), (5, Skew.TOO_OLD), (0, Skew.TOO_OLD), (8, Skew.TOO_NEW)],
)
def test_api_speaks_its_own_version_and_the_one_before(worker: int, skew: Skew) -> None:
    assert skew_of(worker, 7) is skew
