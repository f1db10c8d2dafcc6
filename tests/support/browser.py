"""A real Chromium without a window, driven as a person would drive it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

T = TypeVar("T")

PATIENCE = 20
MISSING = "Chromium and its driver are missing; on Debian: apt-get install chromium chromium-driver"
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium(profile: Path, width: int = 1280, height: int = 900) -> webdriver.Chrome:
    """A browser of its own, with a fresh profile."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.fail(MISSING, pytrace=False)
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def replace(control: WebElement, text: str) -> None:
    """Types over what stands in a control."""
    control.send_keys(Keys.CONTROL, "a")
    control.send_keys(text)


class Page:
    """The inspector in a tab. Whatever is looked for is waited for."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.url = ""

    def open(self, url: str, view: str = "environments") -> None:
        """Goes to a view of the server at `url`, as a new visitor."""
        self.url = url
        self.driver.get("about:blank")
        self.driver.get(f"{url}/-/#/{view}")

    def visit(self, address: str) -> str:
        """Opens an address that a command has printed; gives the server's URL, for other views of the tab."""
        self.driver.get("about:blank")
        self.driver.get(address)
        self.find("#server .address")
        return address.partition("/-/")[0]

    def go(self, view: str) -> None:
        """Goes to another view, within the page."""
        self.run("location.hash = arguments[0]", f"#/{view}")

    def run(self, script: str, *arguments: object) -> object:
        value: object = self.driver.execute_script(script, *arguments)
        return value

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """What `look` gives, once it gives something."""

        def looked(_: object) -> T | None:
            try:
                return look() or None
            except StaleElementReferenceException:
                return None  # redrawn while we looked

        wait = WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05)
        found = wait.until(looked, what)
        assert found is not None
        return found

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def find(self, css: str, text: str = "") -> WebElement:
        """The first visible element that has the text."""

        def look() -> WebElement | None:
            shown = (one for one in self.all(css) if one.is_displayed())
            return next((one for one in shown if text in one.text), None)

        return self.until(look, f"nothing at {css!r} shows {text!r}")

    def gone(self, css: str) -> None:
        self.until(lambda: not any(one.is_displayed() for one in self.all(css)), f"{css!r} is still there")

    def count(self, css: str, number: int) -> list[WebElement]:
        """All elements, once there are that many."""
        return self.until(
            lambda: found if len(found := self.all(css)) == number else None, f"not {number} of {css!r}"
        )

    def click(self, css: str, text: str = "") -> None:
        def click() -> bool:
            self.find(css, text).click()
            return True

        self.until(click, f"{css!r} cannot be clicked")

    def field(self, label: str) -> WebElement:
        """The control that a label names."""
        for kind in (".field label", ".labelled"):
            for one in self.all(kind):
                if one.is_displayed() and one.text.split("\n")[0] == label:
                    named = one.get_attribute("for")
                    if named:
                        return self.driver.find_element(By.ID, named)
                    return one.find_element(By.CSS_SELECTOR, "input, select, textarea")
        raise AssertionError(f"there is no field {label!r}")

    def type(self, label: str, text: str) -> None:
        control = self.field(label)
        if control.tag_name == "select":
            control.send_keys(text)
            return
        replace(control, text)

    def type_key(self, key: str) -> None:
        """Unlocks the page."""
        self.find(".key input[type=password]").send_keys(key, Keys.ENTER)

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def press_call(self) -> None:
        """Calls the tool from the keyboard."""
        self.press(Keys.CONTROL, Keys.ENTER)

    def play(self, task: str, url: str) -> None:
        """Opens a session on ENVIRONMENT/SPLIT/INDEX."""
        self.open(url, f"play/{task}")
        self.click("button", "Open the session")
        self.find(".tools .tab")

    def complaints(self) -> list[str]:
        """What the page's own code, or its security policy, complained about."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")  # type: ignore[no-untyped-call]
            if entry["source"] != "network" and entry["level"] in ("SEVERE", "WARNING")
        ]
