"""A small root file system with Python and a few programs, copied from this machine."""

import os
import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = (
    *("python3", "sh", "cat", "ls", "true", "sleep", "env", "echo", "ln", "mkdir", "mkfifo", "touch", "yes"),
    *("id", "test", "stat", "head", "pwd"),
)
LARGE = ("test", "tests", "idlelib", "ensurepip", "lib2to3", "distutils", "dist-packages", "__pycache__")


def build(folder: Path) -> None:
    """Copies programs, their libraries and Python's own modules."""
    for name in PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        assert found is not None, name
        binary = os.path.realpath(found)
        _copy(Path(binary), folder / "usr/bin" / name)
        for library in _libraries(binary):
            _copy(Path(os.path.realpath(library)), folder / library.lstrip("/"))
    version = Path(os.path.realpath("/usr/bin/python3")).name
    for module in Path(f"/usr/lib/{version}/lib-dynload").glob("_ctypes.*"):
        for library in _libraries(str(module)):
            _copy(Path(os.path.realpath(library)), folder / library.lstrip("/"))
    ignore = shutil.ignore_patterns(*LARGE)
    shutil.copytree(f"/usr/lib/{version}", folder / "usr/lib" / version, ignore=ignore, symlinks=True)
    (folder / "bin").mkdir(exist_ok=True)
    shutil.copy2(folder / "usr/bin/sh", folder / "bin/sh")
    for name in ("etc", "tmp", "home", "proc", "dev", "sys"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "tmp").chmod(0o1777)


def _libraries(binary: str) -> list[str]:
    text = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+)", text)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(source, target)
