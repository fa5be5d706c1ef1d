"""Examines the gateway where scan workers reach it: it must be there, and it must not be Temporal itself."""

from typing import Final

from grpc import StatusCode, aio, ssl_channel_credentials

from runlane.settings import Settings
from runlane.stack.findings import ANSWER_TIMEOUT_S, Check, Level

_TLS: Final = "https://"
_QUESTION: Final = "/temporal.api.workflowservice.v1.WorkflowService/GetSystemInfo"
"""What Temporal tells everybody, and the gateway nobody without a credential."""


async def check_gateway(settings: Settings) -> list[Check]:
    """Asks as somebody without a credential."""
    address = settings.gateway_address
    code = await _answer_to_a_stranger(address)
    if code is StatusCode.UNAUTHENTICATED:
        return [Check("gateway", Level.OK, f"{address} lets no stranger in")]
    if code is StatusCode.OK:
        detail = f"{address} is Temporal itself: every scan worker can do anything there"
        return [Check("gateway", Level.FAIL, detail)]
    detail = f"{address} answers {code.name}: scan workers get no work; run `runlane gateway`"
    return [Check("gateway", Level.WARN, detail)]


async def _answer_to_a_stranger(address: str) -> StatusCode:
    async with _channel(address) as channel:
        ask: aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_QUESTION)
        try:
            await ask(b"", timeout=ANSWER_TIMEOUT_S)
        except aio.AioRpcError as error:
            return error.code()
        return StatusCode.OK


def _channel(address: str) -> aio.Channel:
    host = address.removeprefix(_TLS)
    if host == address:
        return aio.insecure_channel(host)
    return aio.secure_channel(host, ssl_channel_credentials())
