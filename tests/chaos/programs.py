"""Programs under the names of foreign tools, of which one process never ends by itself.

They stand in for what cannot be installed everywhere. How soon they die does not depend on what they do.
"""

import os
from pathlib import Path
from typing import Final

TOOLSETS: Final = "projectdiscovery=4,nmap=4"
"""Tool sets that they make up."""

_NAMES: Final = ("subfinder", "dnsx", "naabu", "httpx", "nuclei", "katana")

_MANY: Final = """#!/bin/sh
case " $* " in *" -version "*) echo "[INF] Current Version: v9.8.7" >&2; exit 0;; esac
while sleep 2; do :; done
"""

_EACH: Final = """#!/bin/sh
case " $* " in *" --version "*) echo "Nmap version 9.8.7"; exit 0;; esac
echo "<nmaprun>"
while sleep 2; do echo; done
"""


def write_programs(folder: Path) -> str:
    """Writes them into a folder; answers a PATH on which they come first."""
    folder.mkdir()
    for name in (*_NAMES, "nmap"):
        path = folder / name
        path.write_text(_EACH if name == "nmap" else _MANY)
        path.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
