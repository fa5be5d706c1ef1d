"""What no line of the product may do, whoever writes it."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("runlane", "api", "lanes", "workflows", "activities", "migrations")


def _lines(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield f"{path.relative_to(ROOT)}:{number}", line


@pytest.mark.parametrize(
    "pattern",
    [
        # An archive names the places that it is unpacked to.
        r"\b(zipfile|tarfile|unpack_archive)\b",
        # A shell reads more than one word in what a target is called.
        r"shell=True|\bos\.system\(|create_subprocess_shell",
        # The time at which a transaction began is old in a long one: a lease would be born expired.
        r"(?<![\w.])now\(\)|CURRENT_TIMESTAMP|transaction_timestamp",
    ],
    ids=["archives", "shells", "transaction_time"],
)
def test_product_does_not_use(pattern: str) -> None:
    assert [place for place, line in _lines(*PRODUCT) if re.search(pattern, line)] == []


def test_every_module_is_in_a_layer_and_every_rule_in_the_pure_core() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    arrows, pure = document["tool"]["importlinter"]["contracts"][:2]
    layers = [set(layer.split(" | ")) for layer in arrows["layers"]]
    places = [place for place in (ROOT / "runlane").iterdir() if place.suffix == ".py" or place.is_dir()]
    modules = {f"runlane.{place.stem}" for place in places if not place.stem.startswith("__")}

    assert modules | {"api", "lanes", "workflows", "activities"} == set().union(*layers)
    adapters = next(number for number, layer in enumerate(layers) if "runlane.db" in layer)
    assert set(pure["source_modules"]) == set().union(*layers[adapters + 1 :])
