"""The one spelling of a URL, and its origin."""

import pytest

from runlane.tools.urls import MAX_URL, MalformedUrl, parse_url


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("HTTP://App.Lab.Test:80", "http://app.lab.test/"),
        ("https://app.lab.test:443/x", "https://app.lab.test/x"),
        ("http://app.lab.test:8080/a/./b/../c#frag", "http://app.lab.test:8080/a/c"),
        ("http://a.test/a/..", "http://a.test/"),
        ("http://a.test/../../x", "http://a.test/x"),
        ("http://a.test/%7euser/%2f%zz", "http://a.test/~user/%2F%25zz"),
        ("http://a.test/é?q=ü&r=[]", "http://a.test/%C3%A9?q=%C3%BC&r=%5B%5D"),
        ("http://a.test?", "http://a.test/"),
        ("http://a.test?x=1", "http://a.test/?x=1"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("http://[::FFFF:127.0.0.1]/", "http://127.0.0.1/"),
        ("http://bücher.example./", "http://xn--bcher-kva.example/"),
        ("http://a.test//b//", "http://a.test//b//"),
    ],
)
def test_url_is_normalised(text: str, normal: str) -> None:
    assert str(parse_url(text)) == normal
    assert str(parse_url(normal)) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/path",
        "ftp://a.test/",
        "javascript:alert(1)",
        "http://",
        "http:///x",
        "http://user:pw@a.test/",
        "http://a.test:99999/",
        "http://a.test:0/",
        "http://a.test:x/",
        "http://[::1/",
        "http://a test/",
        "http://a.test/\n",
        "http://127.1/",
        "http://a.test/" + "x" * MAX_URL,
        "http://a.test/" + "é" * (MAX_URL // 2),
    ],
)
def test_anything_else_is_malformed(text: str) -> None:
    with pytest.raises(MalformedUrl):
        parse_url(text)


def test_origin_ends_in_a_slash_and_keeps_an_unusual_port() -> None:
    assert parse_url("https://a.test:8443/x?y").origin == "https://a.test:8443/"
