"""Pictures of every view of the inspector, light and dark: `python -m scripts.screenshots FOLDER`."""

import argparse
import random
import shutil
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.__main__ import EXAMPLES
from ors import JSONObject, Server
from ors.client import ORS
from ors.errors import ORSError
from ors.inspector import RunsApi
from scripts.recorded_games import record_games
from tests.support.browser import Page, chromium
from tests.support.live_server import serving

WORDS = ["crane", "slate", "beach", "grape", "honey", "dance", "chair", "flame"]


def main() -> None:
    """Takes the pictures; those that stand in the README and in docs/ go to docs/ as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/screenshots"))
    parser.add_argument("--docs", type=Path, help="where those of the documents go")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, serving(recording(Path(folder))) as url, traffic(url):
        record_games(url, Path(folder) / "runs")
        page = Page(chromium(Path(folder) / "profile", 1280, 1000))
        try:
            for name, view in VIEWS.items():
                view(page, url)
                shoot(page, given.folder, name)
            if given.docs is not None:
                for name in ("play", "live", "runs"):
                    shutil.copy(given.folder / f"{name}-light.png", given.docs / f"inspector-{name}.png")
        finally:
            page.driver.quit()


def recording(folder: Path) -> Server:
    """The examples, on a server that shows the runs in a folder."""
    server = Server(EXAMPLES)
    (folder / "runs").mkdir()
    server.show_runs(RunsApi(folder / "runs"))
    return server


def shoot(page: Page, folder: Path, name: str) -> None:
    """One view: light, dark, and as on a phone."""
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page.driver.save_screenshot(str(folder / f"{name}-{scheme}.png"))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    page.driver.save_screenshot(str(folder / f"{name}-phone.png"))
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# ── The views ────────────────────────────────────────────────────────────────────────────────────


def environments(page: Page, url: str) -> None:
    page.open(url, "environments")
    page.find(".splits", "1,000,000 tasks")


def environment(page: Page, url: str) -> None:
    page.open(url, "environments/openbook")
    page.find(".tool")


def tasks(page: Page, url: str) -> None:
    page.open(url, "tasks/countdown/train/500003")
    page.find(".detail-pane h2", "500,003")
    page.find("tr.chosen")


def opening(page: Page, url: str) -> None:
    page.open(url, "play/mathqa/train/0")
    page.find("button", "Open the session")


def play(page: Page, url: str) -> None:
    page.play("wordhunt/train/6", url)
    page.click(".tab", "guess")
    for number, word in enumerate(["crane", "drape", "drape", "shape"], 1):
        page.type("word", word)
        page.press_call()
        page.find(f'.step[data-step="{number}"]:not(.running)')
    page.type("word", "grape")
    page.run("window.scrollTo(0, 0)")


def maze(page: Page, url: str) -> None:
    page.play("maze/train/0", url)
    page.type("direction", "right")
    page.type("steps", "2")
    page.press_call()
    page.find(".step.ok img")
    page.run("window.scrollTo(0, 0)")


def live(page: Page, url: str) -> None:
    page.open(url, "live")
    page.until(
        lambda: page.run(
            "return (document.querySelector('[aria-label^=Sessions] .line')?.points.length ?? 0) > 20"
        ),
        "no traffic to be seen",
    )


def session(page: Page, url: str) -> None:
    page.click(".sessions.ended tr:has(.badge.plus) a")
    page.find(".step.ok")


def wire(page: Page, url: str) -> None:
    play(page, url)
    page.click('.step[data-step="2"] a', "Wire")
    page.find(".wire-detail .badge")


def run_list(page: Page, url: str) -> None:
    page.open(url, "runs")
    page.click('tr[data-run="baseline"] input')
    page.click('tr[data-run="step-400"] input')
    page.find("a.primary", "Compare")


def runs(page: Page, url: str) -> None:
    page.open(url, "runs/step-400")
    page.find(".grid a")


def rollout(page: Page, url: str) -> None:
    page.open(url, "runs/step-400?sort=-calls")
    page.click(".grid a")
    page.find(".step.ok")


def compare(page: Page, url: str) -> None:
    page.open(url, "compare/baseline/step-400")
    page.find(".grid a")


def pair(page: Page, url: str) -> None:
    page.click(".grid a")
    page.find('[aria-label="Run B"] .step')


VIEWS: dict[str, Callable[[Page, str], None]] = {
    "environments": environments,
    "environment": environment,
    "tasks": tasks,
    "opening": opening,
    "play": play,
    "maze": maze,
    "wire": wire,
    "live": live,
    "session": session,
    "run-list": run_list,
    "runs": runs,
    "rollout": rollout,
    "compare": compare,
    "pair": pair,
}


# ── Something to look at ─────────────────────────────────────────────────────────────────────────


@contextmanager
def traffic(url: str) -> Iterator[None]:
    """Clients that play while the pictures are taken."""
    over = threading.Event()
    # Someone has to look, or the server remembers no traffic.
    looking = urllib.request.urlopen(f"{url}/-/api/live")
    players = [threading.Thread(target=playing, args=(url, number, over)) for number in range(8)]
    for player in players:
        player.start()
    try:
        yield
    finally:
        looking.close()
        over.set()
        for player in players:
            player.join()


def playing(url: str, number: int, over: threading.Event) -> None:
    """Plays one episode after the other, more or less well."""
    chance = random.Random(number)
    with ORS(url) as client:
        while not over.is_set():
            name = chance.choice(["wordhunt", "countdown", "openbook", "mathqa"])
            environment = client.environment(name)
            with environment.session(split="train", index=chance.randrange(3)) as session:
                for _ in range(chance.randrange(3, 12)):
                    try:
                        session.call_tool(*move(name, chance))
                    except ORSError:
                        continue
                    finally:
                        over.wait(chance.expovariate(4))


def move(name: str, chance: random.Random) -> tuple[str, JSONObject]:
    """A call that fits the environment, or nearly."""
    if name == "wordhunt":
        return "guess", {"word": chance.choice(WORDS)}
    if name == "openbook":
        return "search", {"word": chance.choice(["lamp", "oil", "keeper"])}
    if name == "countdown":
        return "submit", {"expression": chance.choice(["1+1", "(2+3)*4", "7"])}
    return "submit", {"answer": chance.randrange(50)}


if __name__ == "__main__":
    main()
