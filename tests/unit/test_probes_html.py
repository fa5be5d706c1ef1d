"""The reader of HTML: what browsers see, in time linear in the page."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.probes.html import MAX_ATTRIBUTES, MAX_MARKUP, MAX_TEXT, Tag, read_page


def tags(text: str) -> list[Tag]:
    return read_page(text).tags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<a href="/x">', {"href": "/x"}),
        ("<A HREF='/x' Class=y disabled>", {"href": "/x", "class": "y", "disabled": ""}),
        ("<a\n\thref = /x/>", {"href": "/x/"}),
        ('<a href="/x?a=1&amp;b=2">', {"href": "/x?a=1&b=2"}),
        ('<a href="/1" href="/2">', {"href": "/1"}),
        ('<a title=">" href="/x">', {"title": ">", "href": "/x"}),
        ('<a/href="/x"/>', {"href": "/x"}),
        ('<a href="/x', {"href": "/x"}),
        ("<a href", {"href": ""}),
        ("<a =x>", {"=x": ""}),
    ],
)
def test_attributes_are_read_as_browsers_do(text: str, expected: dict[str, str]) -> None:
    assert tags(text) == [Tag("a", expected)]


@pytest.mark.parametrize(
    "text",
    [
        "<!-- <a href=/x> -->",
        "<!-- <a href=/x>",
        "<script>'<a href=/x>'</script>",
        "<STYLE><a href=/x></sTyLe>",
        "<textarea><a href=/x>",
        "<!doctype html><a",
        "a < b <3 <>",
        "</a href=/x>",
        "<?php <a href=/x ?>",
    ],
)
def test_what_only_looks_like_a_tag_is_none(text: str) -> None:
    assert [tag for tag in tags(text) if tag.attributes] == []


def test_reading_goes_on_after_comments_and_scripts() -> None:
    text = "<!-- x --><script src=/s.js>if (a<b) '</b>'</script><p><a href=/x>"

    assert [tag.name for tag in tags(text)] == ["script", "p", "a"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("<title>A &amp; B</title>", "A & B"),
        ("<TITLE lang=en>\n A\t B \n</Title >", "A B"),
        ("<title>first</title><title>second</title>", "first"),
        ("<title><b>bold</b></title>", "<b>bold</b>"),
        ("<title>open", "open"),
        ("<title></title>", None),
        ("<p>none", None),
        ("<title>&#" + "9" * 10_000 + "</title>", "\ufffd"),
    ],
)
def test_title_is_text_of_the_first_title_element(text: str, title: str | None) -> None:
    assert read_page(text).title == title


@pytest.mark.parametrize(
    "pattern",
    [
        *("<", "<!", "</", "<![", "<?", "<!--", "<a", "<a ", "<a/", "<a b ", '<a x="', "<a =\"'"),
        *(
            "<a>",
            "</a>",
            "<!-->",
            "<a b>",
            "<a b=c d='e'>",
            "<script>",
            "<title>",
            "<script></script>",
            "&#1;",
        ),
    ],
)
def test_a_hostile_page_is_read_in_time_linear_in_its_length(pattern: str) -> None:
    def cost(length: int) -> float:
        started = time.process_time()
        page = read_page(pattern * (length // len(pattern)))
        assert len(page.tags) <= MAX_MARKUP
        return time.process_time() - started

    def growth() -> float:
        return cost(MAX_TEXT) / max(cost(MAX_TEXT // 8), 0.001)

    # 8 when linear, 64 when quadratic; a busy machine disturbs one measurement, not each of them
    assert any(growth() <= 24 for _ in range(5))


def test_a_tag_with_too_many_attributes_ends_where_it_ends() -> None:
    many = " ".join(f"a{number}=x" for number in range(1_000))

    first, second = tags(f"<p {many}><a href=/x>")

    assert len(first.attributes) == MAX_ATTRIBUTES
    assert second.attributes == {"href": "/x"}


@given(st.text(alphabet=st.sampled_from("<>/!-=\"' \nab&#;1"), max_size=60) | st.text())
def test_reading_never_fails(text: str) -> None:
    page = read_page(text)

    assert all(tag.name == tag.name.lower() and tag.name for tag in page.tags)
