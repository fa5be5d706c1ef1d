"""Reading what a program is to be told of a target: the last gate before an argument list."""

from collections.abc import Mapping

from runlane.tools.adapters.adapter import ToolJob
from runlane.tools.addresses import parse_address
from runlane.tools.hosts import MalformedHost, normalise_host
from runlane.tools.urls import MalformedUrl, parse_url


class BadTarget(ValueError):
    """The target is nothing that a program may be told; trying again gives the same."""


def read_job(job_id: str, spec: Mapping[str, object]) -> ToolJob:
    """Reads a job's target.

    Raises:
        BadTarget: a field is missing, is not of its grammar, or the URL is not of the target's own host.
    """
    host = _host(spec.get("host"))
    port, tls = spec.get("port"), spec.get("tls")
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535):
        raise BadTarget("target.port: whole number from 1 to 65535 expected")
    if tls is not None and not isinstance(tls, bool):
        raise BadTarget("target.tls: true, false or null expected")
    return ToolJob(
        job_id=job_id,
        host=host,
        address=_address(spec.get("address"), host),
        port=port,
        url=_url(spec.get("url"), host),
        tls=tls,
    )


def web_port(job: ToolJob) -> int:
    """The port of a job about a service.

    Raises:
        BadTarget: it has none.
    """
    if job.port is None:
        raise BadTarget("a port is needed")
    return job.port


def web_url(job: ToolJob) -> str:
    """The URL of a job about a web service.

    Raises:
        BadTarget: it has none.
    """
    if job.url is None:
        raise BadTarget("a URL is needed")
    return job.url


def _host(value: object) -> str:
    if not isinstance(value, str):
        raise BadTarget("target.host: text expected")
    try:
        return normalise_host(value)
    except MalformedHost as error:
        raise BadTarget(f"target.host: {error}") from error


def _address(value: object, host: str) -> str | None:
    if value is None:
        return host if parse_address(host) is not None else None
    if not isinstance(value, str) or parse_address(value) is None:
        raise BadTarget("target.address: address expected")
    return normalise_host(value)


def _url(value: object, host: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadTarget("target.url: text expected")
    try:
        url = parse_url(value)
    except MalformedUrl as error:
        raise BadTarget(f"target.url: {error}") from error
    if url.host != host:
        raise BadTarget("target.url: it is not of the target's host")
    return str(url)
