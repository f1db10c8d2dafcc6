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
NUMBERS = "2130706433:OTHER 0x7f.1:OTHER 0:OTHER [::ffff:127.0.0.1]:OTHER 0x7f.1:PORT 127.0.0.1.:PORT"
PAIRS = "HERE@THERE THERE#HERE THERE/HERE THERE\\@HERE HERE,THERE"
HOSTS = ("Host: elsewhere", "Host: HERE\nHost: elsewhere", "Host : elsewhere", "A: b\r\tHost: elsewhere")
REQUESTS = {
    ALLOWED: [f"CONNECT HERE{END}{SECRETLY}", f"GET http://HERE/{END}"],
    "egress: another host": [f"CONNECT localhost:PORT{END}{GET}"],
    "egress: another port": [f"CONNECT THERE{END}{GET}"],
    "egress: an address in another form": [f"CONNECT {each}{END}{GET}" for each in NUMBERS.split()],
    "egress: a name of the host's loopback": [f"CONNECT 127.1:OTHER{END}{GET}"],
    "egress: a request behind another": [
        f"CONNECT HERE{END}CONNECT THERE{END}{SECRETLY}",
        f"GET http://HERE/{END}GET http://THERE/{END}",
        f"GET http://HERE/ HTTP/1.1\nContent-Length: 0\nTransfer-Encoding: chunked\n\n0\n\n{GET}",
        f"GET http://HERE/ HTTP/1.1\nContent-Length: 0\nContent-Length: 80\n\n{GET}",
    ],
    "egress: two places in one request": [
        f"{start}{each}{END}{GET}" for start in ("CONNECT ", "GET http://") for each in PAIRS.split()
    ],
    "egress: a URL of another host": [f"GET http://THERE/{END}", f"GET HTTP://localhost:PORT/{END}"],
    "egress: another Host header": [f"GET http://HERE/ HTTP/1.1\n{each}\n\n" for each in HOSTS],
    "egress: a redirect": [],
}
"""The lines that are sent. Planted servers answer with their port, and the host that they are asked for."""


async def attempt(box: Sandbox, host: PlantedHost, name: str) -> str:
    """Sends the requests of an attack, and says what came back from where nothing should."""
    port, other = map(str, host.ports)
    words = {"HERE": f"127.0.0.1:{port}", "THERE": f"127.0.0.1:{other}", "PORT": port, "OTHER": other}
    commands = [(["python3", "-c", FOLLOW, "http://{HERE}/http://{THERE}/".format(**words)], "")] * (
        not REQUESTS[name]
    )
    commands += [(["python3", "-c", CLIENT], request) for request in REQUESTS[name]]
    replies = []
    for argv, text in commands:
        for word, meaning in {"\n": "\r\n", "THERE": words["THERE"], **words}.items():
            text = text.replace(word, meaning)
        replies.append((await box.exec(argv, stdin=text.encode(), timeout=10)).stdout.decode())
    if name == ALLOWED:
        return "reached" if all(f"port={port} host=" in reply for reply in replies) else ""
    wanted = (f"port={other} host=", "host=elsewhere", "host=localhost")
    return next((word for word in wanted for reply in replies if word in reply), "")
