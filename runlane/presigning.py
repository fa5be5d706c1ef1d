"""Signature version 4 of S3 in the query of a URL, for a PUT of exactly so many bytes.

The client library signs the host alone, so that its URL takes a body of any size. Here `content-length` is
signed too: a request that says another length, or none, has another signature and is refused by every server.
Source: AWS, Authenticating Requests: Using Query Parameters (Signature Version 4).
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SIGNED: Final = "content-length;host"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNRESERVED: Final = "-_.~"


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signs, and for which server."""

    endpoint: str
    """http:// or https:// URL without a path."""
    access_key: str
    secret_key: str = field(repr=False)
    region: str

    def put_url(self, path: str, size_bytes: int, now: datetime, expiry: timedelta) -> str:
        """URL for a PUT of `size_bytes` to `/bucket/key`, good from `now` (UTC) until `expiry` is over."""
        day, moment = f"{now:%Y%m%d}", f"{now:%Y%m%dT%H%M%SZ}"
        scope = f"{day}/{self.region}/s3/aws4_request"
        query = _encoded(
            {
                "X-Amz-Algorithm": _ALGORITHM,
                "X-Amz-Credential": f"{self.access_key}/{scope}",
                "X-Amz-Date": moment,
                "X-Amz-Expires": str(int(expiry.total_seconds())),
                "X-Amz-SignedHeaders": _SIGNED,
            }
        )
        address = quote(path, safe=f"/{_UNRESERVED}")
        headers = f"content-length:{size_bytes}\nhost:{self._host}\n"
        request = "\n".join(("PUT", address, query, headers, _SIGNED, "UNSIGNED-PAYLOAD"))
        to_sign = "\n".join((_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
        signature = hmac.new(self._key(day), to_sign.encode(), hashlib.sha256).hexdigest()
        return f"{self.endpoint.rstrip('/')}{address}?{query}&X-Amz-Signature={signature}"

    @property
    def _host(self) -> str:
        """As a client writes it into its header: without the port that goes without saying."""
        parts = urlsplit(self.endpoint)
        is_usual = parts.port in (None, _DEFAULT_PORTS.get(parts.scheme))
        name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
        return name if is_usual else f"{name}:{parts.port}"

    def _key(self, day: str) -> bytes:
        key = f"AWS4{self.secret_key}".encode()
        for part in (day, self.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), hashlib.sha256)
        return key


def _encoded(parameters: dict[str, str]) -> str:
    return urlencode(sorted(parameters.items()), quote_via=quote, safe=_UNRESERVED)
