"""Makes the image of a connector out of files of this machine: nothing is fetched, and nothing else gets in.

`python connectors/build.py connectors/ports_scanner/nmap` prints the id of the image, which is what a host
allows and what the manifest is given as its digest. `root.txt` beside the manifest lists what goes in:

    program /usr/bin/busybox /bin/busybox  a program, here under another name, and the libraries that it needs
    file    ./echo.sh /bin/echo-job        a file; one that begins with ./ is beside the manifest
    tree    /usr/share/nmap                a folder with all that is in it
    link    /bin/sh busybox                a symbolic link
"""

import argparse
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import docker

DEFAULT_ENGINE: Final = "unix:///var/run/docker.sock"

_FOLDERS: Final = ("tmp", "proc", "dev", "sys", "etc")


def build(folder: Path, engine_url: str) -> str:
    """Builds the image of one connector; answers its id.

    Raises:
        FileNotFoundError: something that `root.txt` lists is not on this machine.
    """
    client = docker.APIClient(base_url=engine_url, timeout=600)
    try:
        context = _archive({"Dockerfile": (folder / "Dockerfile").read_bytes(), "root.tar": _root(folder)})
        tag = f"runlane-connector/{folder.name}:built"
        said = client.build(
            fileobj=io.BytesIO(context), custom_context=True, tag=tag, rm=True, forcerm=True, decode=True
        )
        for line in said:
            if "error" in line:
                raise RuntimeError(line["error"])
        image_id: str = client.inspect_image(tag)["Id"]
        return image_id
    finally:
        client.close()


def _root(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        seen: set[str] = set()
        for line in (folder / "root.txt").read_text().splitlines():
            words = line.split("#")[0].split()
            for source, name in _entries(folder, words) if words else ():
                if name not in seen:
                    seen.add(name)
                    _add(archive, source, name)
    return content.getvalue()


def _entries(folder: Path, words: list[str]) -> Iterator[tuple[Path | str, str]]:
    """What a line stands for: a file of this machine, or the text of a link, and its name in the image."""
    match words:
        case ["file", source]:
            yield Path(source), source
        case ["file", source, name]:
            yield folder / source, name
        case ["link", name, target]:
            yield target, name
        case ["tree", source]:
            yield from ((path, str(path)) for path in sorted(Path(source).rglob("*")) if path.is_file())
        case ["program", source, *names]:
            yield Path(source), names[0] if names else source
            yield from ((Path(library), library) for library in _libraries(source))
        case _:
            raise ValueError(f"root.txt: {' '.join(words)}")


def _libraries(program: str) -> list[str]:
    ldd = shutil.which("ldd") or "/usr/bin/ldd"
    # it answers with an error about a static program, which needs none
    said = subprocess.run([ldd, program], check=False, capture_output=True, text=True).stdout
    return [word for line in said.splitlines() for word in line.split() if word.startswith("/")]


def _add(archive: tarfile.TarFile, source: Path | str, name: str) -> None:
    entry = tarfile.TarInfo(name.lstrip("/"))
    if isinstance(source, str):
        entry.type, entry.linkname = tarfile.SYMTYPE, source
        archive.addfile(entry)
        return
    content = source.read_bytes()  # a link of this machine becomes the file that it leads to
    entry.size = len(content)
    entry.mode = 0o755 if os.access(source, os.X_OK) else 0o644
    archive.addfile(entry, io.BytesIO(content))


def _archive(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    return content.getvalue()


def main() -> None:
    """Builds the connectors that are named and prints an id for each."""
    parser = argparse.ArgumentParser(description="Build images of connectors out of files of this machine.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--engine", default=os.environ.get("DOCKER_HOST", DEFAULT_ENGINE))
    arguments = parser.parse_args()
    for folder in arguments.folders:
        print(f"{folder.name} {build(folder, arguments.engine)}")


if __name__ == "__main__":
    main()
