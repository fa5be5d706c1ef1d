"""The contract of the event bus: catalog, payloads, policy, envelope and redaction. Pure."""

from runlane.events.argv import scrub_argv
from runlane.events.catalog import EVENT_CATALOG, EVENT_POLICY, LEAVES, Leaf, find_leaf, require_publishable
from runlane.events.envelope import Actor, Envelope, envelope
from runlane.events.payloads import EVENT_SCHEMA_VERSION
from runlane.events.policy import SUBSCRIPTIONS, Lane, Policy, Severity, is_subscribed
from runlane.events.redacted import scrub_data
from runlane.events.scrub import Redaction, scrub, scrub_text, use_redaction
from runlane.events.wire import BusEvent

__all__ = [
    "EVENT_CATALOG",
    "EVENT_POLICY",
    "EVENT_SCHEMA_VERSION",
    "LEAVES",
    "SUBSCRIPTIONS",
    "Actor",
    "BusEvent",
    "Envelope",
    "Lane",
    "Leaf",
    "Policy",
    "Redaction",
    "Severity",
    "envelope",
    "find_leaf",
    "is_subscribed",
    "require_publishable",
    "scrub",
    "scrub_argv",
    "scrub_data",
    "scrub_text",
    "use_redaction",
]
