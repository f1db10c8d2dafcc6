"""Attacks on an allow-list: requests to its proxy for more than what is on it."""

from ors.sandbox.battery.host import PlantedHost
from ors.sandbox.box import Sandbox
from ors.sandbox.spec import PROXY_PORT

ALLOWED = "egress: reach what is allowed"
CLIENT = f"""
import socket, sys
client = socket.create_connection(("127.0.0.1", {PROXY_PORT}), 5)
client.sendall(sys.stdin.buffer.read())
while data := client.recv(65536): sys.stdout.buffer.write(data); sys.stdout.flush()
"""
FOLLOW = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read())"
END = " HTTP/1.1\n\n"
GET = "GET / HTTP/1.1\nConnection: close\nHost: elsewhere\n\n"
SECRETLY = GET.replace("elsewhere", "here")
REQUESTS: dict[str, tuple[str, ...]] = {
    ALLOWED: (f"CONNECT {{here}}{END}{SECRETLY}", f"GET http://{{here}}/{END}"),
    "egress: another host": (f"CONNECT localhost:{{allowed}}{END}{GET}",),
    "egress: another port": (f"CONNECT {{there}}{END}{GET}",),
    "egress: an address in another form": tuple(
        f"CONNECT {form}:{{{port}}}{END}{GET}"
        for form in ("2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0", "127.0.0.1.")
        for port in ("other", "allowed")
    ),
    "egress: a name of the host's loopback": (f"CONNECT 127.1:{{other}}{END}{GET}",),
    "egress: a request behind another": (
        f"CONNECT {{here}}{END}CONNECT {{there}}{END}{SECRETLY}",
        f"GET http://{{here}}/{END}GET http://{{there}}/{END}",
        "GET http://{here}/ HTTP/1.1\nContent-Length: 0\nTransfer-Encoding: chunked\n\n0\n\n" + GET,
        "GET http://{here}/ HTTP/1.1\nContent-Length: 0\nContent-Length: 80\n\n" + GET,
    ),
    "egress: two places in one request": tuple(
        f"{start}{form}{END}{GET}"
        for start in ("CONNECT ", "GET http://")
        for form in (
            "{here}@{there}",
            "{there}#{here}",
            "{there}/{here}",
            "{there}\\@{here}",
            "{here},{there}",
        )
    ),
    "egress: a URL of another host": (
        f"GET http://{{there}}/{END}",
        f"GET HTTP://LOCALHOST:{{allowed}}/{END}",
    ),
    "egress: another Host header": tuple(
        f"GET http://{{here}}/ HTTP/1.1\n{lines}\n\n"
        for lines in (
            "Host: elsewhere",
            "Host: {here}\nHost: elsewhere",
            "Host : elsewhere",
            "A: b\r\tHost: elsewhere",
        )
    ),
    "egress: a redirect": (),
}
"""The lines that are sent. Planted servers answer with their port, and the host that they are asked for."""


async def attempt(box: Sandbox, host: PlantedHost, name: str) -> str:
    """Sends the requests of an attack, and says what came back from where nothing should."""
    ports = dict(zip(("allowed", "other"), host.ports, strict=True))
    here, there = (f"127.0.0.1:{port}" for port in host.ports)
    replies = []
    for text in REQUESTS[name]:
        request = text.format(here=here, there=there, **ports).replace("\n", "\r\n").encode()
        replies.append((await box.exec(["python3", "-c", CLIENT], stdin=request, timeout=10)).stdout.decode())
    if name == ALLOWED:
        return "reached" if all(f"port={ports['allowed']} host=" in reply for reply in replies) else ""
    if not replies:
        replies = [(await box.exec(["python3", "-c", FOLLOW, f"http://{here}/redirect"])).stdout.decode()]
    wanted = (f"port={ports['other']} host=", "host=elsewhere", "host=LOCALHOST", "host=localhost")
    return next((word for word in wanted for reply in replies if word in reply), "")
