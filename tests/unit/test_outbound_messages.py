"""Messages to people, as Slack and Telegram get them: within their limits, and no markup but ours."""

import logging
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from runlane.errors import Invalid
from runlane.integrations import Kind
from runlane.outbound.reach import Reach
from runlane.outbound.slack import SlackTransport
from runlane.outbound.telegram import TelegramTransport
from runlane.outbound.transport import Endpoint, Gone, Message, Rejected, Sent, Unreachable
from runlane.outbound.wording import notice_of
from tests.receivers import LOOPBACK, Receiver, Reply, receiver, reply, sender

EVENT = UUID("0192d3a0-0000-7000-8000-000000000002")
AT = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
TOKEN = "123456789:AAE-abcdefghijklmnopqrstuvwxyz0123456"
ENDLESS = b'{"ok": false, "error_code": 429, "parameters": {"retry_after": 1%s}}' % (b"0" * 30)
HOSTILE = "<!channel> <https://evil.test|click> *b* _i_ `c` @admin & </code><b>\u202e"


def message(count: int = 1, /, **payload: object) -> Message:
    body = {
        "occurredAt": "2026-12-01T08:00:00.000000Z",
        "outcome": "success",
        "resourceType": "vulnerability",
        "resourceId": "v-1",
        "payload": payload,
    }
    return Message(EVENT, "vulnerability.detected", body, digest_count=count)


async def to_slack(served: Receiver, sent: Message) -> Sent:
    endpoint = Endpoint(Kind.SLACK, {}, {"url": f"{served.url}/services/T000/B000/XXXX"})
    async with sender() as (client, _):
        return await SlackTransport(LOOPBACK).send(client, endpoint, sent, AT)


async def to_telegram(served: Receiver, sent: Message, **config: object) -> Sent:
    config = {"chat_id": -100123, "api_url": served.url, **config}
    async with sender() as (client, _):
        endpoint = Endpoint(Kind.TELEGRAM, config, {"token": TOKEN})
        return await TelegramTransport(LOOPBACK).send(client, endpoint, sent, AT)


class TestSlack:
    async def test_a_message_is_blocks_of_plain_text(self) -> None:
        async with receiver(lambda _: Reply(200, b"ok")) as served:
            sent = await to_slack(served, message(check_id="tls.expired", severity="high"))

        [request] = served.received
        assert sent.status == 200
        assert request.target == "/services/T000/B000/XXXX"
        assert request.json == {
            "text": "Vulnerability detected",
            "mrkdwn": False,
            "unfurl_links": False,
            "unfurl_media": False,
            "blocks": [
                {"type": "header", "text": plain("Vulnerability detected")},
                {
                    "type": "section",
                    "fields": [
                        plain("Check id\ntls.expired"),
                        plain("Severity\nhigh"),
                        plain("Resource\nvulnerability v-1"),
                    ],
                },
                {
                    "type": "context",
                    "elements": [
                        plain(f"vulnerability.detected · 2026-12-01T08:00:00.000000Z · {EVENT}"),
                    ],
                },
            ],
        }

    async def test_what_a_hostile_host_wrote_is_no_markup(self) -> None:
        async with receiver(lambda _: Reply(200, b"ok")) as served:
            await to_slack(served, message(url=HOSTILE, **{f"<!here> {HOSTILE}": HOSTILE}))

        [request] = served.received
        assert b"<" not in request.body
        assert b">" not in request.body
        fields = request.json["blocks"][1]["fields"]
        assert {field["type"] for field in fields} == {"plain_text"}
        assert "&lt;!channel&gt;" in fields[0]["text"]

    async def test_long_values_stay_within_the_limits(self) -> None:
        many = {f"field{at}": "&" * 5_000 for at in range(60)}
        async with receiver(lambda _: Reply(200, b"ok")) as served:
            await to_slack(served, message(1_000, **many))

        header, section, _ = served.received[0].json["blocks"]
        assert header["text"]["text"] == "1000 × Vulnerability detected"
        assert len(section["fields"]) == 10
        assert all(len(field["text"]) <= 2_000 for field in section["fields"])

    @pytest.mark.parametrize(
        ("status", "said", "error"),
        [
            (404, b"no_service", Gone),
            (410, b"channel_is_archived", Gone),
            (403, b"invalid_token", Gone),
            (400, b"invalid_blocks", Rejected),
            (403, b"action_prohibited", Rejected),
        ],
    )
    async def test_an_answer_that_will_not_change_ends_it(
        self, status: int, said: bytes, error: type[Exception]
    ) -> None:
        async with receiver(lambda _: Reply(status, said)) as served:
            with pytest.raises(error) as ended:
                await to_slack(served, message())

        assert "XXXX" not in str(ended.value)

    async def test_a_limit_says_how_long(self) -> None:
        async with receiver(lambda _: Reply(429, b"rate_limited", {"Retry-After": "30"})) as served:
            sent = await to_slack(served, message())

        assert (sent.status, sent.retry_after_s) == (429, 30.0)

    def test_the_address_is_the_credential(self) -> None:
        with pytest.raises(Invalid) as refused:
            SlackTransport(Reach()).validate({"channel": "#a"}, {"url": "http://10.0.0.1/T0PS3CR3T"})

        assert refused.value.fields.keys() == {"config.channel", "secrets.url"}
        assert "T0PS3CR3T" not in f"{refused.value!r} {refused.value.fields}"


class TestTelegram:
    async def test_a_message_is_html_without_a_preview(self) -> None:
        async with receiver(lambda _: reply({"ok": True, "result": {"message_id": 5}})) as served:
            sent = await to_telegram(served, message(check_id="a<b", ports=[80, 443]), thread_id=9)

        [request] = served.received
        assert sent.status == 200
        assert request.target == f"/bot{TOKEN}/sendMessage"
        assert request.json == {
            "chat_id": -100123,
            "message_thread_id": 9,
            "text": "<b>Vulnerability detected</b>\n<b>Check id:</b> <code>a&lt;b</code>\n"
            "<b>Ports:</b> <code>80, 443</code>\n<b>Resource:</b> <code>vulnerability v-1</code>\n"
            f"<i>vulnerability.detected · 2026-12-01T08:00:00.000000Z · {EVENT}</i>",
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
        }

    @pytest.mark.parametrize(
        ("status", "body", "error"),
        [
            (401, {"ok": False, "error_code": 401, "description": "Unauthorized"}, Gone),
            (403, {"ok": False, "error_code": 403, "description": "bot was kicked"}, Gone),
            (400, {"ok": False, "error_code": 400, "description": "chat not found"}, Rejected),
            (200, {"ok": False, "error_code": 400, "description": "chat not found"}, Rejected),
        ],
    )
    async def test_an_answer_that_will_not_change_ends_it(
        self, status: int, body: dict[str, Any], error: type[Exception]
    ) -> None:
        async with receiver(lambda _: reply(body, status)) as served:
            with pytest.raises(error) as ended:
                await to_telegram(served, message())

        assert body["description"] in str(ended.value)

    @pytest.mark.parametrize(
        ("answer", "status", "wait_s"),
        [
            (reply({"ok": False, "error_code": 429, "parameters": {"retry_after": 12}}, 429), 429, 12.0),
            (Reply(429, ENDLESS), 429, 86_400.0),
            (reply({"ok": False, "error_code": 500}, 500), 500, None),
            (Reply(200, b"<html>a portal</html>"), 502, None),
            (Reply(503, b""), 503, None),
        ],
    )
    async def test_an_answer_that_may_change_is_told(
        self, answer: Reply, status: int, wait_s: float | None
    ) -> None:
        async with receiver(lambda _: answer) as served:
            sent = await to_telegram(served, message())

        assert (sent.status, sent.retry_after_s) == (status, wait_s)

    async def test_the_token_is_in_no_error_excerpt_or_log_line(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        async with receiver(lambda request: Reply(500, request.target.encode())) as served:
            sent = await to_telegram(served, message())
        with pytest.raises(Unreachable) as failed:
            await to_telegram(served, message())

        secret = TOKEN.partition(":")[2]
        assert secret not in f"{sent} {failed.value!r} {failed.value.__cause__!r} {caplog.text}"
        assert "sendMessage" in sent.excerpt

    def test_all_faults_of_a_configuration_are_told_at_once(self) -> None:
        config = {"chat_id": "#a", "thread_id": 0, "api_url": "https://127.1", "more": 1}

        with pytest.raises(Invalid) as refused:
            TelegramTransport(Reach()).validate(config, {"token": "hunter2/../"})

        places = {path.split(".")[1] for path in refused.value.fields}
        assert places == {"chat_id", "thread_id", "api_url", "more", "token"}
        assert "hunter2" not in f"{refused.value!r} {refused.value.fields}"


def test_a_notice_names_what_there_is_and_nothing_else() -> None:
    told = message(url=None, note="", ports=list(range(9)), is_new=True, where={"asset": "a", "gone": None})

    assert notice_of(told).facts == (
        ("Ports", "0, 1, 2, 3, 4 and 4 more"),
        ("Is new", "yes"),
        ("Where asset", "a"),
        ("Resource", "vulnerability v-1"),
    )


def test_invisible_characters_do_not_disguise_a_value() -> None:
    assert notice_of(message(url="a\u202eb\r\n\x1b[2Jc\u200b")).facts[0] == ("Url", "a b [2Jc")


def plain(text: str) -> dict[str, object]:
    return {"type": "plain_text", "text": text, "emoji": False}
