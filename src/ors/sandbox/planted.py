"""Targets of the attacks on the host: secrets, sockets and a process, all of them planted."""

import json
import os
import secrets
import socket
import subprocess
import tempfile
import threading
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from ors.sandbox import seccomp
from ors.sandbox.spec import Allow, SandboxSpec


class _Planted(BaseHTTPRequestHandler):
    """Says who was asked, or redirects to the URL that is the path."""

    def do_GET(self) -> None:
        body = f"port={self.server.server_port} host={self.headers['Host']}".encode()  # type: ignore[attr-defined]
        self.send_response(200 if self.path == "/" else 302)
        self.send_header("Location", self.path[1:])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class PlantedHost(ExitStack):
    """Planted targets on the host, for as long as a battery runs."""

    def __enter__(self) -> Self:
        self.mark, self.secret = f"ors-mark-{secrets.token_hex(6)}", secrets.token_hex(12)
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="ors-battery-")))
        self.folder.chmod(0o755)
        self.key = self.folder / "key"
        self.key.write_text(self.secret)
        self.key.chmod(0o600)
        (self.folder / "open").mkdir()
        (self.folder / "open").chmod(0o777)
        self.enter_context(open(self.folder / "open" / "held", "w"))
        self._plant_sockets()
        self._plant_victim()
        return self

    def _plant_victim(self) -> None:
        self.victim = subprocess.Popen(["sleep", "600"], env={"ORS_SECRET": self.secret})
        self.callback(self.victim.wait)
        self.callback(self.victim.kill)

    def _plant_sockets(self) -> None:
        self.tcp = self.enter_context(socket.create_server(("127.0.0.1", 0)))
        for address in (str(self.folder / "socket"), f"\0{self.mark}"):
            server = self.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address)
            server.listen()
        (self.folder / "socket").chmod(0o777)
        servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Planted) for _ in range(2)]
        self.ports = servers[0].server_port, servers[1].server_port
        """Of two servers: the first is on the allow-list, the second only by a name of the loopback."""
        self.allow = Allow(f"127.0.0.1:{self.ports[0]}", f"127.1:{self.ports[1]}")
        for each in servers:
            threading.Thread(target=each.serve_forever, daemon=True).start()
            self.callback(each.server_close)
            self.callback(each.shutdown)

    def targets(self, spec: SandboxSpec, work: str, neighbour_file: str) -> str:
        column, _ = seccomp.ARCHITECTURES[os.uname().machine]
        numbers = seccomp.DENIED | seccomp.ARGUED
        return json.dumps(
            {
                "key": str(self.key),
                "folder": str(self.folder / "open"),
                "unix": str(self.folder / "socket"),
                "port": self.tcp.getsockname()[1],
                "mark": self.mark,
                "secret": self.secret,
                "victim": self.victim.pid,
                "neighbour_file": neighbour_file,
                "disk": _disk(),
                "work": work,
                "processes": spec.processes,
                "memory": spec.memory,
                "size": max(spec.sizes.values()),
                "shadow": os.stat("/etc/shadow").st_ino if os.path.exists("/etc/shadow") else 0,
                "inodes": spec.inodes,
                "numbers": {name: each[column] for name, each in numbers.items()},
            }
        )

    def marks(self) -> list[str]:
        folders = [self.folder / "open", *map(Path, ("/usr", "/etc", "/", "/usr/local/bin", "/var/tmp"))]
        return [str(folder / self.mark) for folder in folders if (folder / self.mark).exists()]

    def running(self) -> list[int]:
        """Processes, of anybody, that have the mark in their command line."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def damage(self) -> dict[str, str]:
        """Damage that attacks from inside did to the host, by their names. It is mended."""
        found = {}
        if self.victim.poll() is not None:
            found["kill a process of the host"] = "the process is dead"
            self._plant_victim()
        if marks := self.marks():
            found["write outside"] = ", ".join(marks)
            for path in marks:
                os.unlink(path)
        return found


def _disk() -> tuple[str, int, int]:
    """A disk of the host, by name and number; an invented one where none is to be seen."""
    for entry in sorted(Path("/sys/block").glob("*")):
        if (Path("/dev") / entry.name).exists() and int((entry / "size").read_text()) > 0:
            major, minor = (entry / "dev").read_text().split(":")
            return f"/dev/{entry.name}", int(major), int(minor)
    return "/dev/sda", 8, 0
