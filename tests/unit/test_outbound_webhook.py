"""Webhooks as a receiver sees them: signed by Standard Webhooks, bounded, and no secret in what is kept."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from runlane.errors import Invalid
from runlane.integrations import Kind
from runlane.outbound import exchange as exchanging
from runlane.outbound.exchange import retry_after_s
from runlane.outbound.reach import Reach
from runlane.outbound.signing import MalformedKey, key_bytes, new_key, signed_headers
from runlane.outbound.transport import MAX_ANSWER_BYTES, Endpoint, Message, Rejected, Sent, Unreachable
from runlane.outbound.webhook import WebhookTransport
from tests.receivers import LOOPBACK, Received, Reply, receiver, sender

EVENT = UUID("0192d3a0-0000-7000-8000-000000000002")
OLD, NEW = new_key(), new_key()
API_KEY = "a-key-of-the-receiver"
BODY = {"type": "job.failed", "payload": {"text": "ä \u2028 </script>"}, "resourceId": None}


def message(body: Mapping[str, object] = BODY) -> Message:
    return Message(EVENT, "job.failed", body, sequence=7)


def webhook(url: str, *signing: str, **headers: str) -> Endpoint:
    secrets = {f"header.{name.replace('_', '-')}": value for name, value in headers.items()}
    return Endpoint(Kind.WEBHOOK, {"url": url}, secrets, signing or (NEW,))


async def sent_to(endpoint: Endpoint) -> Sent:
    async with sender() as (client, _):
        return await WebhookTransport(LOOPBACK).send(client, endpoint, message(), datetime.now(UTC))


def ok(_request: Received) -> Reply:
    return Reply(200, b"ok")


async def test_a_receiver_verifies_by_the_old_key_and_the_new_one_while_they_are_exchanged() -> None:
    async with receiver(ok) as served:
        sent = await sent_to(webhook(f"{served.url}/hook?x=1", NEW, OLD, X_Api_Key=API_KEY))

    [request] = served.received
    assert sent.status == 200
    assert (request.method, request.target) == ("POST", "/hook?x=1")
    for key in (NEW, OLD):
        assert Webhook(key).verify(request.body, dict(request.headers)) == BODY
    with pytest.raises(WebhookVerificationError):
        Webhook(new_key()).verify(request.body, dict(request.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(request.body + b" ", dict(request.headers))
    assert request.headers["webhook-id"] == str(EVENT)
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-api-key"] == API_KEY
    assert request.headers["runlane-sequence"] == "7"


async def test_a_second_attempt_has_the_same_id_and_body_and_its_own_time() -> None:
    async with receiver(ok) as served, sender() as (client, _):
        for hour in (8, 9):
            at = datetime(2026, 12, 1, hour, tzinfo=UTC)
            await WebhookTransport(LOOPBACK).send(client, webhook(served.url), message(), at)

    first, second = served.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body == orjson.dumps(BODY)
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) == 3_600


def test_a_signature_is_the_published_one() -> None:
    """The example of the specification's own libraries."""
    key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    at = datetime.fromtimestamp(1_614_265_330, UTC)

    headers = signed_headers([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}')

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "key",
    ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_!!!!", f"whsec_{'A' * 88}"],
)
def test_a_text_that_is_no_signing_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(MalformedKey) as refused:
        key_bytes(key)

    assert not key.removeprefix("whsec_") or key.removeprefix("whsec_") not in str(refused.value)


async def test_a_webhook_without_a_key_is_not_sent() -> None:
    async with receiver(ok) as served:
        with pytest.raises(Rejected, match="no signing key"):
            await sent_to(Endpoint(Kind.WEBHOOK, {"url": served.url}))

    assert not served.received


def test_all_faults_of_a_configuration_are_told_at_once() -> None:
    secrets = {
        "header.Host": "a",
        "header.Webhook-Id": "b",
        "header.Content-Length": "1",
        "header.Transfer-Encoding": "chunked",
        "header.X-Split": "a\r\nX-Planted: hunter2",
        "token": "c",
    }

    with pytest.raises(Invalid) as refused:
        WebhookTransport(Reach()).validate({"url": "https://me:hunter2@127.1/", "extra": 1}, secrets)

    assert refused.value.code == "integration.config"
    assert refused.value.fields.keys() == {
        "config.url",
        "config.extra",
        *(f"secrets.{name}" for name in secrets),
    }
    assert "hunter2" not in f"{refused.value!r} {refused.value.fields} {refused.value.__cause__!r}"


def test_a_header_is_named_once() -> None:
    secrets = {"header.X-A": "1", "header.x-a": "2"}

    with pytest.raises(Invalid, match="secrets"):
        WebhookTransport(Reach()).validate({"url": "https://example.com/"}, secrets)


def test_stored_secrets_may_stay_as_they_are() -> None:
    WebhookTransport(Reach()).validate({"url": "https://example.com/"}, None)


async def test_what_is_kept_of_an_answer_is_short_and_shows_no_secret() -> None:
    def echoing(request: Received) -> Reply:
        told = f"{request.target} {request.headers} {NEW} \x1b[2J\x00".encode()
        return Reply(500, told + b"x" * 100_000)

    async with receiver(echoing) as served:
        sent = await sent_to(webhook(f"{served.url}/hooks/T0PS3CR3T?key=abcdef", X_Api_Key=API_KEY))

    assert sent.status == 500
    assert len(sent.excerpt) <= 2_048
    for secret in (API_KEY, NEW, "T0PS3CR3T", "abcdef", "\x1b", "\x00"):
        assert secret not in sent.excerpt


async def test_an_endless_answer_is_read_to_the_bound() -> None:
    def endless(_request: Received) -> Reply:
        return Reply(200, b"x" * (4 * MAX_ANSWER_BYTES), {"Content-Length": "1000000000"})

    async with receiver(endless) as served:
        sent = await sent_to(webhook(served.url))

    assert sent.status == 200


async def test_an_endpoint_that_does_not_answer_is_left_after_the_time_of_an_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchanging, "TOTAL_S", 0.2)

    async with receiver(lambda _request: None) as served:
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
            await sent_to(webhook(served.url))


async def test_no_log_line_or_error_shows_path_or_header(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async with receiver(ok) as served:
        await sent_to(webhook(f"{served.url}/hooks/T0PS3CR3T", X_Api_Key=API_KEY))
    with pytest.raises(Unreachable) as failed:
        await sent_to(webhook(f"{served.url}/hooks/T0PS3CR3T", X_Api_Key=API_KEY))

    told = f"{caplog.text} {_chain(failed.value)}"
    assert "receiver.test" in told
    assert API_KEY not in told
    assert "T0PS3CR3T" not in told


def _chain(error: BaseException | None) -> str:
    return "" if error is None else f"{error!r} {_chain(error.__cause__ or error.__context__)}"


NOW = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Tue, 01 Dec 2026 08:01:30 GMT", 90.0),
        ("Tue, 01 Dec 2026 07:00:00 GMT", 0.0),
        ("Tuesday, 01-Dec-26 08:00:10 GMT", 10.0),
        ("Tue Dec  1 08:00:20 2026", 20.0),
        ("999999999", 86_400.0),
        ("99999999999999999999", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("", None),
        ("Tue, 01 Dec 99999 08:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms(text: str, seconds: float | None) -> None:
    assert retry_after_s(text, NOW) == seconds


async def test_how_long_to_wait_comes_back_with_the_status() -> None:
    async with receiver(lambda _request: Reply(429, b"", {"Retry-After": "7"})) as served:
        sent = await sent_to(webhook(served.url))

    assert (sent.status, sent.retry_after_s) == (429, 7.0)


def test_nothing_of_an_endpoint_is_shown_by_its_repr() -> None:
    shown: Any = repr(webhook("https://example.com/", NEW, X_Api_Key=API_KEY))

    assert NEW not in shown
    assert API_KEY not in shown
