"""A leaf of the catalog: one kind of event with its payload, policy and producer."""

import re
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from runlane.events.payloads import Payload
from runlane.events.policy import Policy, Severity

PayloadT = TypeVar("PayloadT", bound=Payload)

RESERVED: Final = ""
"""Producer of a leaf that nothing publishes yet."""

NAME: Final = re.compile(r"[a-z_]+(?:\.[a-z_]+){1,2}")
"""Grammar of event names (full match)."""


@dataclass(frozen=True, slots=True)
class Leaf(Generic[PayloadT]):
    """One kind of event. `producer` is the module that publishes it.

    `is_outbound`: integrations may deliver it to systems outside. `is_batchable`: it comes in large numbers
    for one cause, so that sinks tell of many in one.
    """

    name: str
    payload: type[PayloadT]
    policy: Policy
    producer: str
    is_outbound: bool = False
    is_batchable: bool = False

    @property
    def is_reserved(self) -> bool:
        """Whether publishing it is refused for now."""
        return self.producer == RESERVED


def audited(
    name: str,
    payload: type[PayloadT],
    severity: Severity,
    producer: str = RESERVED,
    *,
    is_outbound: bool = False,
    is_batchable: bool = False,
) -> Leaf[PayloadT]:
    """A leaf that the audit trail keeps."""
    policy = Policy(persist=True, severity=severity)
    return Leaf(name, payload, policy, producer, is_outbound, is_batchable)


def transient(
    name: str,
    payload: type[PayloadT],
    severity: Severity,
    producer: str = RESERVED,
    *,
    is_outbound: bool = False,
    is_batchable: bool = False,
) -> Leaf[PayloadT]:
    """A leaf that the audit trail does not keep."""
    policy = Policy(persist=False, severity=severity)
    return Leaf(name, payload, policy, producer, is_outbound, is_batchable)
