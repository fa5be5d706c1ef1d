"""What comes from outside stays text in a message to people, whatever it is."""

import html
import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from runlane.outbound import slack, telegram
from runlane.outbound.exchange import MAX_RETRY_AFTER_S, excerpt, retry_after_s
from runlane.outbound.tickets import fenced
from runlane.outbound.wording import MAX_FACTS, MAX_TITLE, MAX_VALUE, Notice, plain

ANY = st.text(st.characters() | st.sampled_from("<>&`*_~@#|\\\r\n\u202e\ud800"), max_size=400)
LINES = ANY.map(lambda text: plain(text, MAX_VALUE))
NOTICES = st.builds(
    Notice,
    title=ANY.map(lambda text: plain(text, MAX_TITLE)),
    facts=st.lists(st.tuples(LINES, LINES), max_size=MAX_FACTS).map(tuple),
    footer=LINES,
)
TAG = re.compile(r"</?(b|i|code)>")


@given(ANY, st.integers(1, 500))
def test_plain_text_is_one_line_within_its_limit_and_the_same_again(text: str, limit: int) -> None:
    told = plain(text, limit)

    assert len(told) <= limit
    assert told == plain(told, limit)
    assert told.encode().decode() == told
    assert not re.search(r"[\x00-\x1f\x7f\u202e]", told)


@given(ANY, st.integers(10, 300))
def test_slack_gets_no_control_character_and_no_half_escape(text: str, limit: int) -> None:
    told = slack.escape(text, limit)

    assert len(told) <= limit
    assert "<" not in told
    assert ">" not in told
    assert text.startswith(html.unescape(told.removesuffix("…")).removesuffix("…")) or told == text
    assert not re.search(r"&(?!amp;|lt;|gt;)", told)


@given(ANY | st.from_regex(r"[A-Z][a-z]{2}, \d{1,2} Dec \d{1,5} \d\d:\d\d:\d\d [+-]\d{1,9}"))
def test_whatever_retry_after_says_is_a_bounded_wait_or_none(text: str) -> None:
    wait_s = retry_after_s(text, datetime(2026, 12, 1, tzinfo=UTC))

    assert wait_s is None or 0 <= wait_s <= MAX_RETRY_AFTER_S


@given(NOTICES)
def test_telegram_gets_closed_tags_of_ours_alone(notice: Notice) -> None:
    told = telegram.render(notice)

    assert len(told.encode("utf-16-le")) // 2 <= telegram.MAX_MESSAGE
    tags = TAG.findall(told)
    assert tags[::2] == tags[1::2]
    assert not re.search(r"[<>]", TAG.sub("", told))


@given(st.lists(LINES, min_size=1, max_size=5))
def test_no_line_ends_a_block_of_code(lines: list[str]) -> None:
    first, *inside, last = fenced(lines).splitlines()

    assert inside == [line for line in lines if line] or inside == lines
    assert first == f"{last}text"
    assert not any(line.lstrip().startswith(last) for line in inside)


@given(ANY, st.text("abcXYZ/-_0123", min_size=6, max_size=30), ANY)
def test_no_hidden_text_is_kept(before: str, secret: str, after: str) -> None:
    kept = excerpt(f"{before}{secret}{after}", (secret,))

    assert secret not in kept
    assert excerpt(kept, (secret,)) == kept
