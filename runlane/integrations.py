"""Endpoints outside of the platform: their kinds, and what becomes of what is delivered to them.

Pure rules. Source: Event bridge, What leaves the platform.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What an endpoint is, as in `integrations.kind`."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    TELEGRAM = "telegram"
    GITHUB = "github"
    JIRA = "jira"
    LINEAR = "linear"
