"""Whose a URL is, for programs that are given the URLs of many services."""

from runlane.tools.adapters.adapter import ToolJob
from runlane.tools.adapters.jobs import web_url
from runlane.tools.records import MalformedRecord
from runlane.tools.urls import MalformedUrl, parse_url


def origin_of_job(job: ToolJob) -> str:
    """Scheme, host and port of the job's web service."""
    return parse_url(web_url(job)).origin


def origin_of(text: str) -> str:
    """Scheme, host and port of a URL.

    Raises:
        MalformedRecord: it is none.
    """
    try:
        return parse_url(text).origin
    except MalformedUrl as error:
        raise MalformedRecord(f"url: {error}") from error
