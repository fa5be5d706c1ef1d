"""The networks a lab can stand up: `full` for the demo and whole runs, `small` for quick ones.

This is the only description; servers and manifest are both made from it. Ports are fixed and below the range
that systems hand out for outgoing connections, so that nothing else is found on them by chance.
"""

from collections.abc import Mapping

from runlane.errors import Invalid
from runlane.lab import sites
from runlane.lab.model import (
    APEX,
    WILDCARD,
    Certificate,
    Listener,
    Machine,
    Name,
    Scenario,
    Talk,
    Web,
    Zone,
)
from runlane.lab.network import SIX_HOST

_SSH = Talk("SSH-2.0-OpenSSH_9.6", "Invalid SSH identification string.")
_FTP = Talk("220 files.lab.test FTP server ready", "530 Please log in first.")
_SMTP = Talk("220 mail.lab.test ESMTP", "502 Command not implemented.")
_IMAP = Talk("* OK mail.lab.test IMAP4rev1 ready", "* BAD not understood.")
_SILENT = Talk(None, None)

# More than fits in 512 bytes: the answer is cut over UDP and must be asked for again over TCP.
_TEXTS = ("v=spf1 mx -all", *(f"site-verification-{n}={'0123456789abcdef' * 8}" for n in range(4)))

FULL = Scenario(
    name="full",
    zones=(
        Zone(
            "lab.test",
            nameserver="ns1.lab.test",
            mail="mail",
            texts=_TEXTS,
            transfer=True,
            names=(
                Name("ns1", host=1),
                Name(APEX, host=10),
                Name("www", alias=APEX),
                Name("app", host=11),
                Name("shop", alias="app"),
                Name("api", host=12),
                Name("files", host=13),
                Name("mail", host=14),
                Name("old", host=15),
                Name("blog", host=16),
                Name("status", host=17),
                Name("static", host=18),
                Name("six", host=SIX_HOST),
                Name("admin", alias="app"),  # a virtual host behind a login that was never changed
                Name("vault-7c2", host=20),  # in no word list: only the zone transfer tells it
            ),
        ),
        # A zone of its own, so a transfer of the parent does not show it; every name in it seems to exist.
        Zone("dev.lab.test", nameserver="ns1.lab.test", names=(Name(APEX, host=19), Name(WILDCARD, host=19))),
    ),
    machines=(
        Machine(SIX_HOST, (Listener(0, Web(sites.SIX)),)),  # its port depends on the base network
        Machine(
            10,
            (
                Listener(18080, Web(sites.TO_HTTPS)),
                Listener(18443, Web(sites.HOME), Certificate.TRUSTED),
            ),
        ),
        Machine(
            11,
            (
                Listener(
                    18080,
                    Web(
                        sites.UNKNOWN_HOST,
                        {
                            "app.lab.test": sites.APP,
                            "shop.lab.test": sites.SHOP,
                            "admin.lab.test": sites.ADMIN,
                        },
                    ),
                ),
                Listener(12222, _SSH),
            ),
        ),
        Machine(12, (Listener(18081, Web(sites.API)),)),
        Machine(13, (Listener(18082, Web(sites.FILES)), Listener(12121, _FTP))),
        Machine(
            14,
            (
                Listener(18443, Web(sites.WEBMAIL), Certificate.SELF_SIGNED),
                Listener(12525, _SMTP),
                Listener(11430, _IMAP),
            ),
        ),
        Machine(
            15,
            (
                Listener(18444, Web(sites.OLD), Certificate.EXPIRED),
                Listener(18083, Web(sites.CHAIN)),
            ),
        ),
        Machine(16, (Listener(18080, Web(sites.BLOG)),)),
        Machine(17, (Listener(18084, Web(sites.STATUS)),)),
        Machine(18, (Listener(18085, Web(sites.SOFT_404)),)),
        Machine(19, (Listener(18086, Web(sites.DEV)), Listener(12222, _SSH))),
        Machine(20, (Listener(19200, _SILENT),)),
    ),
)

SMALL = Scenario(
    name="small",
    zones=(
        Zone(
            "lab.test",
            nameserver="ns1.lab.test",
            names=(Name("ns1", host=1), Name("www", host=10), Name("mail", host=11)),
        ),
    ),
    machines=(
        Machine(10, (Listener(18080, Web(sites.SMALL)),)),
        Machine(11, (Listener(12525, _SMTP),)),
    ),
)
"""Two hosts with a service each; the zone refuses a transfer, so its names come from the word list."""

SCENARIOS: Mapping[str, Scenario] = {each.name: each for each in (FULL, SMALL)}


def find_scenario(name: str) -> Scenario:
    """The scenario called `name`.

    Raises:
        Invalid: there is none of that name.
    """
    if name not in SCENARIOS:
        raise Invalid(f"no lab scenario {name!r}; there are: {', '.join(SCENARIOS)}", code="lab.scenario")
    return SCENARIOS[name]
