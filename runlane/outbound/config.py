"""Configurations of endpoints, read into models: every fault is told at once, none shows what was given."""

from collections.abc import Mapping
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError, ValidationInfo

from runlane.errors import Invalid
from runlane.outbound.reach import Reach
from runlane.outbound.transport import Rejected

CONFIG_FAULT: Final = "integration.config"


class Form(BaseModel):
    """Base of configurations and secrets: frozen, unknown names refused, values never shown."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


FormT = TypeVar("FormT", bound=BaseModel)


def _judged(url: str, info: ValidationInfo) -> str:
    if isinstance(info.context, Reach):
        info.context.judge(url)
    return url


EndpointUrl = Annotated[str, AfterValidator(_judged)]
"""An address that may be sent to, as far as it says itself."""


def _base(url: str) -> str:
    if "?" in url:
        raise ValueError("paths are put behind it, so it has no query")
    return url.rstrip("/")


BaseUrl = Annotated[EndpointUrl, AfterValidator(_base)]
"""As `EndpointUrl`, what paths are put behind."""

Credential = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=1_024)]
"""A token as it stands in a header: printable ASCII without blanks."""


def check(
    reach: Reach,
    config: tuple[type[BaseModel], Mapping[str, object]],
    secrets: tuple[type[BaseModel], Mapping[str, str] | None],
) -> None:
    """Passes if both can be read by their models; secrets that are None are not looked at.

    Raises:
        Invalid: `integration.config`, with every fault by its path.
    """
    faults: dict[str, str] = {}
    for place, model, values in (("config", *config), ("secrets", *secrets)):
        if values is not None:
            faults |= _faults(place, model, values, reach)
    if faults:
        detail = f"the integration cannot be made so: {', '.join(sorted(faults))}"
        raise Invalid(detail, code=CONFIG_FAULT, fields=faults)


def stored(model: type[FormT], values: Mapping[str, object], reach: Reach) -> FormT:
    """What was checked when it was saved; the rules of today apply.

    Raises:
        Rejected: it would not be saved today.
    """
    faults = _faults("", model, values, reach)
    if faults:
        told = "; ".join(f"{path}: {fault}" for path, fault in faults.items())
        raise Rejected(f"the integration cannot be used as it is: {told}")
    return model.model_validate(dict(values), context=reach)


def _faults(place: str, model: type[BaseModel], values: Mapping[str, object], reach: Reach) -> dict[str, str]:
    try:
        model.model_validate(dict(values), context=reach)
    except ValidationError as error:
        told = error.errors(include_url=False, include_input=False, include_context=False)
        return {_path(place, fault["loc"]): fault["msg"].removeprefix("Value error, ") for fault in told}
    return {}


def _path(place: str, parts: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in (place, *parts) if part not in {"", "[key]"})
