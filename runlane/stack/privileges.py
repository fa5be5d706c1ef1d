"""How to run PostgreSQL, which refuses to run as root, whoever we are.

Three cases, in this order:

1. We are not root: run it.
2. We are root and the unprivileged user can reach the binaries and the data: run it as that user.
3. We are root and it cannot (a folder above is 0700): run it in a user namespace in which we are that user.
"""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runlane.stack.errors import StackError

UNPRIVILEGED_USER: Final = "nobody"
CHECK_TIMEOUT_S: Final = 20


@dataclass(frozen=True, slots=True)
class Identity:
    """How a program that refuses root is started."""

    user: int | None = None
    """User and group id to switch to."""
    prefix: tuple[str, ...] = ()
    """Programs in front of it that replace themselves by it."""

    def own(self, path: Path) -> None:
        """Gives a file or a whole folder to the user that the program will run as, unless it has it."""
        owner = os.geteuid() if self.user is None else self.user
        if path.stat().st_uid == owner:
            return
        for entry in (path, *path.rglob("*")):
            os.chown(entry, owner, owner, follow_symlinks=False)


def unprivileged_identity(program: Path, folder: Path) -> Identity:
    """Finds the first case in which `program --version` runs with `folder` as its working directory.

    Raises:
        StackError: we are root and neither way works; the message says what to do.
    """
    if os.geteuid() != 0:
        return Identity()
    account = pwd.getpwnam(UNPRIVILEGED_USER)
    as_user = Identity(user=account.pw_uid)
    # Looked at first: a child that starts inside a folder needs no right to enter it, until it names it.
    closed = next(
        (each for each in (folder, *folder.parents) if not each.stat().st_mode & stat.S_IXOTH), None
    )
    refusal = f"may not enter {closed}" if closed else _try(as_user, program, folder)
    if refusal is None:
        return as_user
    unshare = shutil.which("unshare")
    if unshare is None:
        raise StackError(
            f"{program} cannot run as {UNPRIVILEGED_USER} ({refusal}) and there is no `unshare` program"
        )
    # The account must exist inside the namespace too: PostgreSQL looks its own user id up.
    mapping = (f"--map-user={account.pw_uid}", f"--map-group={account.pw_gid}")
    in_namespace = Identity(prefix=(unshare, "--user", *mapping, "--"))
    second_refusal = _try(in_namespace, program, folder)
    if second_refusal is None:
        return in_namespace
    raise StackError(
        f"PostgreSQL refuses root. As {UNPRIVILEGED_USER}: {refusal}. In a user namespace: {second_refusal}. "
        "Run as an ordinary user, or move the checkout to a folder that everybody may enter"
    )


def _try(identity: Identity, program: Path, folder: Path) -> str | None:
    try:
        done = subprocess.run(
            [*identity.prefix, str(program), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT_S,
            check=False,
            user=identity.user,
            group=identity.user,
            extra_groups=None if identity.user is None else [],
            cwd=folder,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"
