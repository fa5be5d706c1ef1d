"""The web sites of the lab: ordinary ones, ones with planted findings, and decoys that only look guilty."""

from runlane.lab.model import SECURITY_HEADERS, Page, Plant, Site

_NGINX = "nginx/1.24.0"
_APACHE = "Apache/2.4.58 (Debian)"
_GIT_HEAD = Page(
    "/.git/HEAD", text="ref: refs/heads/main\n", content_type="text/plain", plant=Plant.EXPOSED_GIT
)
_SCRIPT = "text/javascript"


def _env_file(*lines: str) -> Page:
    return Page("/.env", text="\n".join(lines) + "\n", content_type="text/plain", plant=Plant.EXPOSED_ENV)


def _icon(number: int) -> bytes:
    """A picture of one grey pixel; each number has its own hash."""
    size, pixel = b"\x01\x00\x01\x00", bytes((number, number, number, 255))
    head = (
        b"\x00\x00\x01\x00\x01\x00\x01\x01\x00\x00" + size[:2] + b"\x20\x00\x30\x00\x00\x00\x16\x00\x00\x00"
    )
    return head + pixel


UNKNOWN_HOST = Site(
    server=_NGINX,
    pages=(),
    headers=SECURITY_HEADERS,
    catch_all=Page("/", title="Unknown site", text="No site of this name lives here.", status=404),
)
"""What a server with named sites says to any other name."""

TO_HTTPS = Site(
    server=_NGINX,
    pages=(),
    catch_all=Page("/", title="301 Moved Permanently", status=301, location="https://{host}:18443/"),
)

HOME = Site(
    server=_NGINX,
    icon=_icon(1),
    headers=SECURITY_HEADERS,
    generator="Hugo 0.128.0",
    disallow=("/drafts/", "/internal/report"),
    sitemap=("/", "/about", "/press/2025"),
    pages=(
        Page("/", title="Lab home", links=("/about", "/team#people", "news/"), scripts=("/js/site.js",)),
        Page("/about", title="About the lab", links=("/", "./team", "https://elsewhere.example/")),
        Page("/team", title="The team", links=("/about", "/contact", "/team/gone")),
        Page("/contact", title="Contact", forms=("/contact/send",)),
        Page("/news/", title="News", links=("first", "second?full=1", "../about")),
        Page("/news/first", title="First news", links=("second",)),
        Page("/news/second", title="Second news", links=("first",)),
        Page("/press/2025", title="Press 2025", text="Found by the sitemap alone."),
        Page("/drafts/", title="Drafts", text="Found by robots.txt alone."),
        Page("/js/site.js", text="document.title += '';", content_type=_SCRIPT),
    ),
)
"""Everything in order: complete headers, links of every kind, a linked page that is gone."""

APP = Site(
    server=_APACHE,
    headers={"X-Powered-By": "PHP/8.2.7"},
    pages=(
        Page(
            "/",
            title="Lab app",
            links=("/login", "/calendar?month=1", "/go", "mailto:nobody@lab.test", "javascript:void(0)"),
            forms=("/search",),
            scripts=("/assets/app.js", "/assets/vendor.js"),
        ),
        Page("/login", title="Log in", links=("/reset",), forms=("/session",)),
        Page("/reset", title="Reset", links=("/login", "/")),
        Page("/search", title="Search", links=("/search?page=2", "/")),
        Page("/calendar?month=1", title="January", links=("/calendar?month=2",)),
        Page("/calendar?month=2", title="February", links=("/calendar?month=3", "/calendar?month=1")),
        Page("/calendar?month=3", title="March", links=("/calendar?month=4",)),
        Page("/calendar?month=4", title="April", text="One link further than a crawl goes."),
        Page("/go", status=302, location="/landing", title="302 Found"),
        Page("/landing", title="Landing", links=("/login",)),
        Page("/assets/app.js", text="void 0;", content_type=_SCRIPT),
        Page("/assets/vendor.js", text="void 1;", content_type=_SCRIPT),
        _GIT_HEAD,
    ),
)
"""Its repository is open, and it sends none of the security headers."""

SHOP = Site(
    server=_APACHE,
    icon=_icon(2),
    headers=SECURITY_HEADERS,
    generator="WordPress 6.5.2",
    pages=(
        Page("/", title="Lab shop", links=("/item/1", "/item/2", "/cart"), scripts=("/cart.js",)),
        Page("/item/1", title="Item 1", links=("/item/2", "/cart")),
        Page("/item/2", title="Item 2", links=("/item/1", "/item/3")),
        Page("/item/3", title="Item 3", links=("/",)),
        Page("/cart", title="Cart", forms=("/checkout",)),
        Page("/cart.js", text="void 2;", content_type=_SCRIPT),
        _env_file("APP_KEY=lab-not-a-key", "DB_PASSWORD=lab-not-a-password", "DEBUG=false"),
    ),
)

API = Site(
    server="uvicorn",
    pages=(
        Page("/", text='{"service":"lab api","docs":"/docs"}', content_type="application/json"),
        _env_file("# deployment", "SMTP_HOST=mail.lab.test", "SMTP_PASSWORD=lab-not-a-password"),
    ),
)
"""Answers no HTML, so that header policies of browsers do not apply to it."""

FILES = Site(
    server=_NGINX,
    headers=SECURITY_HEADERS,
    pages=(
        Page("/", title="Index of /", links=("archive/", "report.txt"), plant=Plant.DIRECTORY_LISTING),
        Page("/archive/", title="Archive", text="An index page stands in front of these files."),
        Page("/report.txt", text="Nothing to report.\n", content_type="text/plain"),
    ),
)

WEBMAIL = Site(
    server=_APACHE,
    headers=SECURITY_HEADERS,
    pages=(
        Page("/", title="Lab mail", forms=("/login",)),
        Page("/login", title="Log in", links=("/",)),
    ),
)

OLD = Site(
    server="Apache/2.2.22 (Debian)",
    pages=(
        Page("/", title="It still works", links=("/manual",)),
        Page("/manual", title="Manual", links=("/",)),
    ),
)
"""A forgotten server: no headers; its certificate has expired."""

CHAIN = Site(
    server=_NGINX,
    headers=SECURITY_HEADERS,
    pages=(
        Page("/", status=302, location="/step-1", title="302 Found"),
        Page("/step-1", status=307, location="/step-2", title="307 Temporary Redirect"),
        Page("/step-2", status=301, location="/end", title="301 Moved Permanently"),
        Page("/end", title="End of the chain"),
    ),
)

BLOG = Site(
    server=_NGINX,
    headers=SECURITY_HEADERS,
    pages=(
        Page(
            "/",
            title="Index of /thoughts, a blog",
            text="How .git/HEAD with ref: refs/heads/main, .env with KEY=VALUE and Index of / get exposed.",
            links=("/posts/git", "/posts/index-of"),
        ),
        Page("/posts/git", title="What .git/HEAD tells", links=("/", "/posts/index-of")),
        Page("/posts/index-of", title="Index of /", text="Parent Directory: a story.", links=("/posts/git",)),
        Page("/.git/HEAD", title="Not here", text="You looked for .git/HEAD. Nice try.", status=403),
    ),
)
"""A decoy: it writes about every finding and has none."""

STATUS = Site(
    server="Caddy",
    headers=SECURITY_HEADERS,
    delay_ms=400,
    pages=(
        Page("/", title="Lab status", links=("/history",)),
        Page("/history", title="History", links=("/",)),
    ),
)
"""Slow: every answer takes a while."""

SOFT_404 = Site(
    server=_NGINX,
    headers=SECURITY_HEADERS,
    pages=(Page("/", title="Welcome", links=("/welcome",)),),
    catch_all=Page(
        "/", title="Welcome", text="ref: refs/heads/main KEY=VALUE is what you asked for, surely."
    ),
)
"""A decoy: every path exists, with status 200."""

DEV = Site(
    server="Werkzeug/3.0.1 Python/3.11.7",
    headers={"X-Content-Type-Options": "nosniff"},  # one of many is not enough
    pages=(
        Page("/", title="Dev box", links=("/debug",), scripts=("/dev.js",)),
        Page("/debug", title="Debug", links=("/",)),
        Page("/dev.js", text="void 3;", content_type=_SCRIPT),
        _GIT_HEAD,
        _env_file("export STRIPE_SECRET_KEY=lab-not-a-key", "PORT=8000"),
    ),
)

SMALL = Site(
    server=_NGINX,
    pages=(
        Page("/", title="Small lab", links=("/one",)),
        Page("/one", title="One", links=("/", "/two")),
        Page("/two", title="Two"),
        _GIT_HEAD,
    ),
)

ADMIN = Site(
    server=_APACHE,
    headers=SECURITY_HEADERS,
    login=("admin", "admin"),
    icon=_icon(3),
    pages=(Page("/", title="Lab admin", links=("/users",)), Page("/users", title="Users")),
)
"""Behind a login that everybody can guess: without it there is nothing to see."""

SIX = Site(
    server="Caddy",
    headers=SECURITY_HEADERS,
    pages=(Page("/", title="Lab over IPv6", links=("/hello",)), Page("/hello", title="Hello")),
)
"""At an IPv6 address alone."""
