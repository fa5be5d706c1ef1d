"""One transport for each kind of endpoint."""

from collections.abc import Mapping

from runlane.integrations import Kind
from runlane.outbound.github import github_transport
from runlane.outbound.jira import jira_transport
from runlane.outbound.linear import linear_transport
from runlane.outbound.reach import Reach
from runlane.outbound.slack import SlackTransport
from runlane.outbound.telegram import TelegramTransport
from runlane.outbound.transport import Transport
from runlane.outbound.webhook import WebhookTransport


def transports(reach: Reach) -> Mapping[Kind, Transport]:
    """All transports of a process, under its rules of where endpoints may be."""
    return {
        Kind.WEBHOOK: WebhookTransport(reach),
        Kind.SLACK: SlackTransport(reach),
        Kind.TELEGRAM: TelegramTransport(reach),
        Kind.GITHUB: github_transport(reach),
        Kind.JIRA: jira_transport(reach),
        Kind.LINEAR: linear_transport(reach),
    }
