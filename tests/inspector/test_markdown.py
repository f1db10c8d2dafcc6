"""Markdown and images in the browser."""

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from ors import Server
from tests.support.browser import Page
from tests.support.hostile_environment import HOSTILE
from tests.support.live_server import serving
from tests.support.manual_environment import Manual

pytestmark = pytest.mark.xdist_group("browser")

RENDER = """
    const [text, done] = arguments;
    import("/-/page/widgets/markdown.js").then(({ markdown }) => {
        const made = markdown(text);
        document.querySelector("main").replaceChildren(made);
        done(made.outerHTML);
    });
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Server([Manual])) as url:
        yield url


@pytest.fixture
def open_page(page: Page, url: str) -> Page:
    page.open(url)
    page.find(".splits")
    return page


def rendered(page: Page, text: str) -> str:
    return str(page.driver.execute_async_script(RENDER, text))


def test_a_prompt_is_rendered_and_can_be_seen_as_it_is(page: Page, url: str) -> None:
    page.play("manual/train/0", url)
    page.find(".prompt h3", "The manual")
    assert page.find(".prompt strong").text == "all"
    assert page.find(".prompt a", "the rules").get_attribute("rel") == "noopener noreferrer"
    assert page.find(".prompt ol ul li").text == "inner"
    assert page.find(".prompt blockquote").text == "A word of warning."
    assert "# not a heading" in page.find(".prompt pre.text").text
    assert page.find(".prompt td").text == "up"
    assert "<b>not bold</b>" in page.find(".prompt").text
    assert [one.get_attribute("alt") for one in page.all(".prompt img")] == ["Image, image/png, 72 B"]
    page.click(".prompt button", "As text")
    assert "Read **all** of it" in page.find(".prompt pre.text").text
    page.click(".prompt button", "As Markdown")
    page.find(".prompt h3", "The manual")


def test_an_image_is_enlarged_and_closed_by_the_keyboard(page: Page, url: str) -> None:
    page.play("manual/train/1", url)
    page.run("document.querySelector('.enlarge').focus()")
    page.press(Keys.ENTER)
    large = page.find("dialog.large img")
    assert large.size["width"] > 500
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog.large"), "the image is still large")
    assert page.run("return document.activeElement.className") == "enlarge"


UNDERSTOOD = [
    ("a\n\n- x\n  - y\n- z", "<p>a</p><ul><li>x<ul><li>y</li></ul></li><li>z</li></ul>"),
    ("3. c\n4. d", '<ol start="3"><li>c</li><li>d</li></ol>'),
    ("## Two ##\ntext", "<h4>Two</h4><p>text</p>"),
    ("~~~\n<i>\n```\n~~~\nx", '<pre class="text">&lt;i&gt;\n```</pre><p>x</p>'),
    ("```\nnever closed", '<pre class="text">never closed</pre>'),
    ("2*3*4 and a_b_c and 5 * 6", "<p>2*3*4 and a_b_c and 5 * 6</p>"),
    ("$a_1 * b_2$ \\*no\\*", "<p>$a_1 * b_2$ *no*</p>"),
    ("***", "<hr>"),
    ("*日本語* **Größe** _ё_", "<p><em>日本語</em> <strong>Größe</strong> <em>ё</em></p>"),
    ("`` a`b ``", "<p><code>a`b</code></p>"),
    ("see https://x.example/a_b_c.", "<p>see <a "),
    ("", ""),
]
HOSTILE_TEXTS = [
    HOSTILE,
    "[click](javascript:window.hacked=1)",
    "[click](JaVaScRiPt:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>)",
    "[up](#/play) [file](file:///etc/passwd) [bare](//evil.example/x)",
    "![x](https://evil.example/spy.png) ![x](data:image/svg+xml;base64,PHN2Zy8+)",
    '[x](https://evil.example/" onmouseover="window.hacked=1)',
    "<https://evil.example/<script>window.hacked=1</script>>",
    f"# {HOSTILE}\n> {HOSTILE}\n\n- {HOSTILE}\n\n```{HOSTILE}\n{HOSTILE}",
    f"|{HOSTILE}|x|\n|-|-|\n|{HOSTILE}|y|",
    "`<script>window.hacked=1</script>`",
]


def test_markdown_is_understood(open_page: Page) -> None:
    for text, shown in UNDERSTOOD:
        assert rendered(open_page, text).startswith(f'<div class="markdown">{shown}')


def test_no_markup_gets_through(open_page: Page) -> None:
    bad = "script, img, iframe, svg, object, style, form, [onmouseover], [onerror], [style]"
    for text in HOSTILE_TEXTS:
        rendered(open_page, text)
        assert open_page.all(f".markdown :is({bad})") == [], text
        links = [one.get_attribute("href") or "" for one in open_page.all(".markdown a")]
        assert all(link.startswith("https://") for link in links), text


def test_texts_that_are_made_to_take_long_are_rendered(open_page: Page) -> None:
    size = 20_000
    for part in [
        "[",
        "*",
        "**a ",
        "_a_",
        "`",
        "` `` ",
        "> ",
        "- ",
        "  - a\n",
        "![",
        "[a](",
        "|",
        "|-",
        "$",
        "~~",
        "\\",
        "#",
        "<http://",
        "a*b_c`d",
    ]:
        text = (part * size)[:size]
        assert rendered(open_page, text).startswith('<div class="markdown">')
    nested = "\n".join("  " * n + "- x" for n in range(200)) + "\n" + "> " * 5000 + "deep"
    assert "deep" in rendered(open_page, nested)
