"""What is done to a job before a foreign program is told of it: its target is read, resolved and judged."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runlane.jobs import Outcome
from runlane.probes.egress import Egress
from runlane.probes.job import BadInput
from runlane.probes.job import Options as ProbeOptions
from runlane.probes.resolver import NoVerdict
from runlane.scan.wire import ClaimedJob
from runlane.tools.adapters.adapter import Adapter, ToolJob
from runlane.tools.adapters.jobs import BadTarget, read_job
from runlane.tools.adapters.options import Options
from runlane.tools.exclusions import read_denied


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no program is started for a job."""

    outcome: Outcome
    error: str


async def pin(job: ClaimedJob, adapter: Adapter, options: Options) -> ToolJob | Refusal:
    """The job with the one address that may be contacted, or why there is none.

    A host without an address is no error: its result is empty.
    """
    try:
        tool_job = read_job(job.job_id, job.target)
        options = options_of(options, job)
        egress = Egress(
            ProbeOptions(
                1,
                allow=options.allow,
                deny=options.deny,
                resolver=_resolver(options.values),
                is_bound=options.is_bound,
            )
        )
        egress.permit_place(tool_job.host, tool_job.port)
        if not adapter.needs_address:
            return tool_job
        if tool_job.address is not None:
            return replace(tool_job, address=egress.permit(tool_job.address))
        addresses = await egress.resolve(tool_job.host)
    except (BadTarget, BadInput) as error:
        return Refusal(Outcome.FATAL, str(error))
    except NoVerdict as error:
        return Refusal(Outcome.TOOL_FAILED, str(error))
    if not addresses:
        return Refusal(Outcome.COMPLETED, f"{tool_job.host} has no address")
    return replace(tool_job, address=addresses[0])


def options_of(options: Options, job: ClaimedJob) -> Options:
    """The options of one job: what is excluded for its target alone comes on top, and its share of a rate.

    Raises:
        BadInput: that is no list of exclusions.
    """
    try:
        deny = (*options.deny, *read_denied(job.target.get("deny")))
        return replace(options, deny=deny, rate_per_s=share_of(job))
    except ValueError as error:
        raise BadInput(f"target.deny: {error}") from error


def share_of(job: ClaimedJob) -> int | None:
    """What a job may send a second; None: it has no rate."""
    share = job.target.get("rate_per_s")
    return share if isinstance(share, int) and share > 0 else None


def _resolver(values: Mapping[str, object]) -> tuple[str, int] | None:
    value = values.get("resolver")
    if not isinstance(value, str):
        return None
    host, _, port = value.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
