"""The join: how a process becomes a scan worker, at its first start and at every later one."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from typing import Final

import structlog

from runlane import names
from runlane.errors import Conflict, Refused, Unauthenticated, Unavailable
from runlane.scan.client import WorkerApi, new_backoff
from runlane.scan.config import ScanSettings
from runlane.scan.credential import Credential, forget_credential, load_credential, save_credential
from runlane.scan.wire import Joined, JoinRequest

log = structlog.get_logger(__name__)

_MOST_PAUSE: Final = timedelta(seconds=2)


class JoinFailed(Exception):
    """The API does not take this process as a worker, and trying again alone will not help."""


async def join(api: WorkerApi, settings: ScanSettings, incarnation: str) -> Joined:
    """Joins with the credential in the state folder, or enrols with the enrolment key and keeps what it gets.

    The answer has the worker's token, also when the API did not have to say it.
    Tries again for ever while the API is away, and while an earlier life of this worker counts as alive.

    Raises:
        JoinFailed: the API refused.
    """
    backoff = new_backoff(_MOST_PAUSE)
    while True:
        credential = load_credential(settings.state_dir)
        secret = credential.token if credential is not None else settings.enrolment_key
        if not secret:
            raise JoinFailed("the worker has neither a credential nor an enrolment key")
        try:
            joined = await api.join(_request(settings, incarnation), secret)
        except Unavailable as error:
            log.warning("join_not_answered", api=settings.api_url, detail=error.detail)
        except Refused as error:
            _judge(error, settings, is_enrolled=credential is not None)
        else:
            if joined.api_protocol > names.WORKER_PROTOCOL:
                log.warning("worker_outdated", detail="upgrade it before the API is upgraded again")
            if joined.token is not None:
                save_credential(settings.state_dir, Credential(joined.worker_id, joined.token))
            return replace(joined, token=joined.token or secret)
        await asyncio.sleep(backoff.next().total_seconds())


def _judge(error: Refused, settings: ScanSettings, *, is_enrolled: bool) -> None:
    """Returns if another try makes sense."""
    if isinstance(error, Conflict) and error.code == names.IDENTITY_CONFLICT_CODE:
        log.warning("join_identity_conflict", detail=error.detail)
    elif (
        isinstance(error, Unauthenticated)
        and error.code == names.WORKER_TOKEN_CODE
        and is_enrolled
        and settings.enrolment_key
    ):
        log.warning("credential_unknown", detail="the installation does not know it: enrolling anew")
        forget_credential(settings.state_dir)
    else:
        raise JoinFailed(f"{error.detail} ({error.code})") from error


def _request(settings: ScanSettings, incarnation: str) -> JoinRequest:
    return JoinRequest(
        name=settings.name,
        toolsets=tuple(settings.toolsets),
        slots=settings.toolsets,
        tools=settings.tools,
        version=version("runlane"),
        protocol=names.WORKER_PROTOCOL,
        incarnation=incarnation,
    )
