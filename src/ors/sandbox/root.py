"""Root folders for sandboxes, made of packages of Debian and of PyPI, without a container engine."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ors.errors import SandboxUnavailable
from ors.sandbox.backends.tree import ACCOUNTS, HOSTS

ALWAYS = ("python3", "ca-certificates", "libstdc++6")
UNUSED = ("doc", "man", "locale", "info")
"""Folders of /usr/share that programs do not need."""
PACKAGES = "usr/lib/python3/dist-packages"
PLAIN_USER = "the package uidmap, and lines for your user in /etc/subuid and /etc/subgid; or to be root"


def make_root(
    folder: Path, suite: str, debian: Sequence[str], pypi: Sequence[str], copied: Sequence[Path]
) -> None:
    """Makes a folder for `SandboxSpec(rootfs=...)`; one that cannot be finished is removed.

    Packages of PyPI must come as wheels. Each folder of `copied` is in /opt, under its own name. What
    mmdebstrap and pip say goes to standard error.

    Raises:
        SandboxUnavailable: mmdebstrap is missing, or it or pip has failed.
        FileExistsError: the folder is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name a new folder")
    if shutil.which("mmdebstrap") is None:
        raise SandboxUnavailable("mmdebstrap is not installed. What helps: sudo apt-get install mmdebstrap")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _unpack_debian(folder, suite, (*ALWAYS, *debian))
        settle(folder)
        if pypi:
            _install(folder, pypi)
        for source in copied:
            shutil.copytree(source, folder / "opt" / source.name, symlinks=True)
        # For the users that sandboxes have under a server that is root, whatever the umask is.
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _unpack_debian(folder: Path, suite: str, packages: Sequence[str]) -> None:
    """Unpacks what mmdebstrap makes. As an archive, so that the files of a plain user are that user's own."""
    # What it mounts as root is gone with its processes, even if they are killed.
    own_mounts = ["unshare", "--mount"] if os.getuid() == 0 else []
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in UNUSED]
    options += ["--variant=essential", "--format=tar", "--dpkgopt=force-unsafe-io"]
    command = [*own_mounts, "mmdebstrap", *options, f"--include={','.join(packages)}", suite, "-"]
    making = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        extract = ["tar", "--extract", "--exclude=./dev/*", f"--directory={folder}"]
        unpacked = subprocess.run(extract, stdin=making.stdout, check=False)
    finally:
        assert making.stdout is not None
        making.stdout.close()
        failed = making.wait()
    if failed or unpacked.returncode:
        hint = f". A plain user needs {PLAIN_USER}" if os.getuid() else ""
        raise SandboxUnavailable(f"mmdebstrap could not make {folder}; its reason is above{hint}")


def settle(folder: Path) -> None:
    """Gives the root an account for programs, names of the loopback, and nothing of the machine around it.

    Nothing is read or written through a link: the root may come from an image that nobody trusts.
    """
    etc = folder / "etc"
    if etc.is_symlink() or (etc.exists() and not etc.is_dir()):
        return
    if not etc.exists():
        etc.mkdir()
        etc.chmod(0o755)
    for path, line in ACCOUNTS.items():
        file = folder / path[1:]
        known = file.read_text(errors="surrogateescape") if file.is_file() and not file.is_symlink() else ""
        if not re.search(f"^{line.partition(':')[0]}:", known, re.MULTILINE):
            _write(file, known + line)
    for name, text in (("hosts", HOSTS), ("hostname", "sandbox\n"), ("resolv.conf", "")):
        _write(etc / name, text)
    if not os.path.lexists(etc / "gitconfig"):
        # The files belong to the user who made the root, and git refuses to work in folders of others.
        _write(etc / "gitconfig", "[safe]\n\tdirectory = *\n")


def _write(file: Path, text: str) -> None:
    if not file.is_symlink() and file.is_dir():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)  # it may be a link
    file.write_text(text, errors="surrogateescape")
    file.chmod(0o644)


def _install(folder: Path, requirements: Sequence[str]) -> None:
    version = os.readlink(folder / "usr/bin/python3").removeprefix("python")
    command = [
        *(sys.executable, "-m", "pip", "install", "--only-binary=:all:", f"--python-version={version}"),
        *(f"--target={folder / PACKAGES}", "--no-compile", "--no-warn-script-location", *requirements),
    ]
    if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode:
        raise SandboxUnavailable("pip could not install the packages; its reason is above")
    for script in (folder / PACKAGES / "bin").glob("*"):
        _, _, rest = script.read_bytes().partition(b"\n")  # the first line names the Python of this machine
        script.write_bytes(b"#!/usr/bin/python3\n" + rest)
        script.rename(folder / "usr/local/bin" / script.name)
