"""Names that people give to what is also found by its id: workspaces, networks, groups and so on."""

from uuid import UUID

from runlane.errors import Invalid


def check_given_name(name: str) -> None:
    """Passes unless the name could be taken for an id, or for `@last` or `@file` on the command line.

    What is called as another thing's id is would be meant where that one was.

    Raises:
        Invalid: `name.ambiguous`.
    """
    if name.startswith("@") or _is_id(name):
        detail = "a name is not spelt like an id, and does not begin with @"
        raise Invalid(detail, code="name.ambiguous", fields={"name": detail})


def _is_id(name: str) -> bool:
    try:
        UUID(name)
    except ValueError:
        return False
    return True
