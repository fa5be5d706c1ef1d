"""Every setting of every process: `RUNLANE_*` in the environment, or a file of that name in a folder.

Read once at process start (`Settings.load()`), passed down as values. A secret may come from a file: with
`RUNLANE_SECRETS_DIR=/run/secrets`, `runlane_key_pepper` in that folder is `RUNLANE_KEY_PEPPER`.
"""

import os
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from runlane import names
from runlane.events.scrub import Redaction
from runlane.sweeps import Bounds, Retention

_PREFIX = "RUNLANE_"

LAUNCH_VARIABLES = frozenset(
    {"RUNLANE_SECRETS_DIR", "RUNLANE_PG_BIN", "RUNLANE_ATTEMPT", "RUNLANE_API_KEY", "RUNLANE_PROFILE"}
)
"""Variables with the prefix that are not settings: they belong to the stack, the launcher or the CLI."""


class Settings(BaseSettings):
    """All settings. Each description ends with the unit or the form where there is one."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="ignore")

    database_url: str = Field("", description="PostgreSQL as the owner role: migrations only (URL)")
    database_api_url: str = Field("", description="PostgreSQL as runlane_api: rows of one workspace (URL)")
    database_system_url: str = Field(
        "", description="PostgreSQL as runlane_system: core, results, lanes (URL)"
    )
    redis_url: str = Field("", description="Redis or Valkey with the event bus (URL)")
    s3_endpoint: str = Field("", description="S3 as our own processes reach it (URL)")
    s3_public_url: str = Field("", description="S3 as scan hosts reach it; empty: the same (URL)")
    s3_access_key: SecretStr = Field(SecretStr(""), description="S3 access key")
    s3_secret_key: SecretStr = Field(SecretStr(""), description="S3 secret key")
    s3_region: str = Field("us-east-1", description="S3 region")
    temporal_address: str = Field("", description="Temporal frontend (host:port)")
    temporal_namespace: str = Field(names.TEMPORAL_NAMESPACE, description="Temporal namespace")
    temporal_ui_url: str = Field("", description="Temporal Web UI, only printed for operators (URL)")
    scan_temporal_address: str = Field(
        "",
        description="the gateway as scan workers reach it; empty: where it listens (host:port, "
        "https://host:port behind TLS)",
    )
    gateway_host: str = Field("127.0.0.1", description="address that the gateway listens on")
    gateway_port: int = Field(7243, ge=1, le=65535, description="port that the gateway listens on")
    api_url: str = Field("", description="the API as workers and the command line reach it (URL)")
    api_host: str = Field("127.0.0.1", description="address that the API listens on")
    api_port: int = Field(8300, ge=1, le=65535, description="port that the API listens on")
    state_dir: Path = Field(
        Path(".runlane"), description="folder for local state: embedded stack, worker credential"
    )
    key_pepper: SecretStr = Field(
        SecretStr(""), description="pepper of API keys and worker tokens; at least 32 characters"
    )
    secret_keys: SecretStr = Field(
        SecretStr(""),
        description="keys that secrets are encrypted with, the newest first; at least 32 characters each "
        "(separated by commas or blanks)",
    )
    worker_enrolment_key: SecretStr = Field(
        SecretStr(""), description="API key with the scope worker:join, for the first start of a scan worker"
    )
    worker_name: str = Field("", description="name of this scan worker; empty: the host name")
    worker_toolsets: str = Field(
        "probe=8,projectdiscovery=2,nmap=2,browser=1,container=2",
        description="tool sets of this scan worker and batches at once (name=slots,...); "
        "a set whose programs are not on PATH is left out, `container` where no image is allowed",
    )
    scan_images: str = Field(
        "",
        description="digests of the images that connectors may run on this host; empty: none, no container "
        "mode (sha256:…,… or @file with one a line)",
    )
    scan_engine: str = Field(
        "",
        description="container engine of this scan worker; empty: DOCKER_HOST, else the usual socket "
        "(unix://… or tcp://…)",
    )
    scan_containers: int = Field(
        4, ge=1, le=256, description="containers at once on this host; others wait (containers)"
    )
    scan_network: str = Field(
        "bridge",
        pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="network of the engine for connectors that contact their targets; never the host's own",
    )
    scan_pull: bool = Field(
        False, description="whether an allowed image that is not on this host is fetched, by its digest"
    )
    stage_inline_bytes: int = Field(
        65_536,
        ge=0,
        le=1_000_000,
        description="staged results below this stay in PostgreSQL, 0: none (bytes)",
    )
    body_limit_bytes: int = Field(1_048_576, ge=1024, description="largest request body (bytes)")
    outbound_networks: str = Field(
        "",
        description="networks that integrations may send to besides public addresses, also by http; empty: "
        "none (CIDRs, separated by commas or blanks)",
    )
    outbound_ca_file: str = Field(
        "",
        description="certificates of authorities that receivers are trusted by, besides the system's (file)",
    )
    tail_share: int = Field(
        25, ge=1, le=100, description="live tails of one workspace at once, of 100 in one process of the API"
    )
    lanes_metrics_host: str = Field("127.0.0.1", description="address of the lanes' figures")
    lanes_metrics_port: int = Field(
        0, ge=0, le=65535, description="port on which the lanes serve their figures to a scraper, 0: none"
    )
    stream_cap: int = Field(100_000, ge=100, description="entries kept on the event stream (entries)")
    worker_heartbeat_s: float = Field(
        30.0, gt=0, description="a batch without a heartbeat this long is lost (seconds)"
    )
    worker_grace_s: float = Field(
        2.0, ge=0, description="a broken control stream may come back within this (seconds)"
    )
    worker_drain_s: float = Field(
        0.0,
        ge=0,
        description="how long a scan worker's batches may finish once it is told to stop; what is left is "
        "given back, 0: at once (seconds)",
    )
    worker_credential_days: int = Field(
        30, ge=0, description="a scan worker gets a new credential at this age, 0: only when asked (days)"
    )
    worker_poll_s: float = Field(
        60.0,
        gt=0,
        description="a scan worker that lets work wait this long which it could take is told to renew its "
        "polls, after as long again it is lost (seconds)",
    )
    dispatch_window: int = Field(16, ge=1, le=200, description="batches of one step in flight (batches)")
    dispatch_budget: int = Field(
        200, ge=1, le=1000, description="dispatches of one workflow, retries included"
    )
    dispatch_least_batch: int = Field(
        1, ge=1, le=100, description="members of a batch while as many are due: more for throughput (jobs)"
    )
    open_shards: int = Field(4, ge=1, le=50, description="shards of one step open at once")
    retention_jobs_days: int = Field(
        180, ge=1, description="jobs in a final state, with attempts and error logs (days)"
    )
    retention_results_days: int = Field(30, ge=1, description="staged results that nobody needs (days)")
    retention_audit_days: int = Field(
        90, ge=90, description="audit events, until they are archived in the bucket audit-archive (days)"
    )
    retention_commands_days: int = Field(7, ge=1, description="commands that Temporal was told (days)")
    retention_notifications_days: int = Field(30, ge=1, description="notifications, read or not (days)")
    retention_statistics_days: int = Field(800, ge=31, description="statistics by day (days)")
    redaction: Redaction = Field(
        Redaction.PRECISE,
        description="what is taken for a credential in events, errors and logs; strict also drops hashes and "
        "every field with such a word in its name (precise or strict)",
    )
    retention_deliveries_days: int = Field(
        30, ge=1, description="deliveries to integrations that have ended, with their attempts (days)"
    )
    log_format: str = Field("console", pattern="^(console|json)$", description="console or json")
    log_level: str = Field(
        "info", pattern="^(debug|info|warning|error)$", description="lowest level that is logged"
    )

    @classmethod
    def load(cls) -> Self:
        """Reads the environment and, if RUNLANE_SECRETS_DIR names a folder, the files in it."""
        folder = os.environ.get("RUNLANE_SECRETS_DIR")
        return cls(_secrets_dir=folder)  # type: ignore[call-arg]  # a keyword of BaseSettings, not a field

    @property
    def dispatch_limits(self) -> dict[str, int]:
        """How much one workflow dispatches, by the names of `workflows.dispatching.Limits`."""
        return {
            "window": self.dispatch_window,
            "budget": self.dispatch_budget,
            "open_shards": self.open_shards,
            "least_batch": self.dispatch_least_batch,
        }

    @property
    def gateway_address(self) -> str:
        """The gateway as scan workers reach it (host:port)."""
        return self.scan_temporal_address or f"{self.gateway_host}:{self.gateway_port}"

    @property
    def engine_url(self) -> str:
        """The container engine of this host (URL)."""
        return self.scan_engine or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"

    @property
    def sweep_bounds(self) -> Bounds:
        """What the sweeps keep for how long, and how patient they are."""
        return Bounds(self.retention, self.worker_poll_s)

    @property
    def retention(self) -> Retention:
        """For how long things are kept."""
        return Retention(
            jobs_days=self.retention_jobs_days,
            results_days=self.retention_results_days,
            audit_days=self.retention_audit_days,
            commands_days=self.retention_commands_days,
            deliveries_days=self.retention_deliveries_days,
            notifications_days=self.retention_notifications_days,
            statistics_days=self.retention_statistics_days,
        )

    @property
    def bucket(self) -> dict[str, str]:
        """Where the bucket is and who we are there, by the names of `runlane.storage.StorageConfig`."""
        return {
            "endpoint": self.s3_endpoint,
            "access_key": self.s3_access_key.get_secret_value(),
            "secret_key": self.s3_secret_key.get_secret_value(),
            "region": self.s3_region,
            "public_url": self.s3_public_url,
        }

    @property
    def reach(self) -> dict[str, str]:
        """Where endpoints of integrations may be, by the names of `runlane.outbound.reach.Reach.of`."""
        own = (
            *(self.database_url, self.database_api_url, self.database_system_url, self.redis_url),
            *(self.s3_endpoint, self.temporal_address, self.api_url, f"{self.api_host}:{self.api_port}"),
            f"{self.gateway_host}:{self.gateway_port}",
        )
        return {"networks": self.outbound_networks, "own_urls": " ".join(own)}

    @property
    def secret_key_texts(self) -> list[str]:
        """The keys of `secret_keys`, the newest first."""
        return self.secret_keys.get_secret_value().replace(",", " ").split()

    @property
    def worker_slots(self) -> dict[str, int]:
        """Slots by tool set, from `worker_toolsets`."""
        pairs = (part.partition("=") for part in self.worker_toolsets.split(",") if part.strip())
        return {name.strip(): int(slots or "1") for name, _, slots in pairs}


def unknown_variables(environment: dict[str, str] | None = None) -> list[str]:
    """RUNLANE_* variables that no setting reads: usually a typing error, reported at start."""
    known = {_PREFIX + name.upper() for name in Settings.model_fields} | LAUNCH_VARIABLES
    found = environment if environment is not None else dict(os.environ)
    return sorted(name for name in found if name.startswith(_PREFIX) and name not in known)


def example_environment() -> str:
    """Text of `.env.example`: one commented line per setting, generated from the descriptions."""
    lines = ["# Generated from runlane/settings.py by `runlane docs`; edit there.", ""]
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = "" if isinstance(default, SecretStr) else default
        lines += [f"# {field.description}", f"#{_PREFIX}{name.upper()}={shown}", ""]
    return "\n".join(lines)
