"""Questions to the DNS server that the platform names, or to the system's."""

from dataclasses import dataclass
from typing import Final

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdataclass
import dns.rdatatype
import dns.resolver

from runlane.tools.hosts import MalformedHost, normalise_name

QUESTION_S: Final = 6.0
"""Seconds for one question with its repetitions."""

_TRY_S: Final = 2.0


class NoVerdict(Exception):
    """The server did not say whether the name exists; asking again may help."""


@dataclass(frozen=True, slots=True)
class Resolver:
    """Asks about absolute names only: search domains never apply."""

    server: tuple[str, int] | None
    """Address and port; None is the system's configuration."""

    async def records(self, name: str, kind: str) -> tuple[str, ...] | None:
        """Records of a type that `name` itself has, in zone file notation, sorted; None without such a name.

        What the target of an alias has does not count.

        Raises:
            NoVerdict: see there.
        """
        question = dns.name.from_text(f"{name}.")
        answer = await self._ask(question, kind)
        if answer is None:
            return None
        response = answer.response
        rrset = response.get_rrset(
            response.answer, question, dns.rdataclass.IN, dns.rdatatype.RdataType.make(kind)
        )
        return tuple(sorted(rdata.to_text() for rdata in rrset)) if rrset else ()

    async def addresses(self, host: str) -> tuple[str, ...]:
        """Addresses that `host` leads to, through aliases; IPv4 first, each family sorted.

        Raises:
            NoVerdict: see there.
        """
        try:
            question = dns.name.from_text(f"{normalise_name(host, underscores=True)}.")
        except MalformedHost:
            return ()
        found: list[str] = []
        for kind in ("A", "AAAA"):
            answer = await self._ask(question, kind)
            found += sorted(rdata.to_text() for rdata in answer.rrset or ()) if answer else ()
        return tuple(found)

    async def _ask(self, question: dns.name.Name, kind: str) -> dns.resolver.Answer | None:
        try:
            return await self._client().resolve(question, kind, raise_on_no_answer=False, search=False)
        except (dns.resolver.NXDOMAIN, dns.resolver.YXDOMAIN):
            return None
        except (dns.exception.DNSException, OSError) as error:
            raise NoVerdict(f"{question} {kind}: {error}") from error

    def _client(self) -> dns.asyncresolver.Resolver:
        client = dns.asyncresolver.Resolver(configure=self.server is None)
        if self.server is not None:
            client.nameservers = [self.server[0]]
            client.port = self.server[1]
        client.timeout = _TRY_S
        client.lifetime = QUESTION_S
        return client
