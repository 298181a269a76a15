"""The page of `thalweg view`, in a real browser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import browser
import numpy as np
import pytest
import thalweg
from browser import Browser, Page

PATH = browser.executable()
pytestmark = pytest.mark.skipif(
    PATH is None,
    reason="no Chromium on this machine (Debian's package chromium): the page itself is not tested",
)

NO_NUMBER = (28, 52, 110)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PATH is not None
    chromium = Browser(PATH, tmp_path_factory.mktemp("browser") / "profile")
    yield chromium
    chromium.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    page = chromium.page()
    yield page
    page.close()


class View:
    """A `thalweg view` of a topic."""

    def __init__(self, server: Any, topic: str) -> None:
        command = [thalweg.executable(), "view", topic, "--group-file", str(server.group_file)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()


@pytest.fixture
def view(shared_server: Any, topic: thalweg.Topic) -> Iterator[View]:
    view = View(shared_server, topic.name)
    yield view
    assert view.stop() == 0


def push(topic: thalweg.Topic, *arrays: np.ndarray) -> None:
    with topic.producer() as producer:
        for array in arrays:
            producer.push_array(array)


def whole_range(page: Page) -> None:
    """Black is the lowest value and white the highest."""
    page.evaluate("""for (const [id, value] of [["low", 0], ["high", 100]]) {
        const field = document.getElementById(id);
        field.value = value;
        field.dispatchEvent(new Event("input"));
    }""")


def pixels(page: Page) -> np.ndarray:
    """What is on the canvas, (rows, columns, 4)."""
    width, height, values = page.evaluate("""(() => {
        const {width, height} = document.getElementById("canvas");
        const copy = new OffscreenCanvas(width, height).getContext("2d");
        copy.drawImage(document.getElementById("canvas"), 0, 0);
        return [width, height, Array.from(copy.getImageData(0, 0, width, height).data)];
    })()""")
    return np.array(values, dtype=np.uint8).reshape(height, width, 4)


def shown(page: Page, event: int) -> None:
    """Waits until this event is the picture."""
    page.until(lambda: page.text("what").startswith(f"event {event} "), f"event {event}")


def test_pictures_have_the_pixels_of_the_arrays(
    view: View, topic: thalweg.Topic, page: Page
) -> None:
    page.open(view.url)
    page.until(lambda: "no event yet" in page.text("note"))
    whole_range(page)
    ramp = np.arange(255, dtype="<u2").reshape(15, 17) * 3 + 7
    push(topic, ramp)
    shown(page, 0)
    grey = np.round(np.arange(255) * 255 / 254).astype(np.uint8).reshape(15, 17)
    assert (pixels(page)[:, :, :3] == grey[:, :, None]).all()
    assert (pixels(page)[:, :, 3] == 255).all()
    assert "Black is 7, white is 769." in page.text("scale")
    assert "<u2 [15,17]" in page.text("what")

    # Another stretch of the same array, without another event.
    page.evaluate("document.getElementById('log').click()")
    page.until(lambda: "log scale" in page.text("scale"))
    assert pixels(page)[0, 1, 0] > grey[0, 1] and page.text("dropped") == "0"
    page.evaluate("document.getElementById('log').click()")

    push(topic, np.array([[0.0, np.nan], [1.0, 0.5]], dtype=">f4"))
    shown(page, 1)
    page.until(lambda: "log scale" not in page.text("scale"))
    found = pixels(page)[:, :, :3].tolist()
    assert found[0] == [[0, 0, 0], list(NO_NUMBER)]
    assert found[1][0] == [255] * 3 and found[1][1][0] in (127, 128)

    colours = np.arange(2 * 3 * 3, dtype="u1").reshape(2, 3, 3) * 10
    push(topic, np.asfortranarray(colours))
    shown(page, 2)
    assert (pixels(page)[:, :, :3] == colours).all()

    # A line from its lowest value, at the bottom, to its highest.
    push(topic, np.linspace(-1, 1, 64))
    shown(page, 3)
    line = pixels(page)[:, :, 3] > 0
    assert line.shape == (256, 64) and line.any(axis=0).all()
    assert line[250:, 0].any() and line[:6, 63].any() and not line[:128, 0].any()

    push(topic, np.arange(2050 * 3000, dtype="<u4").reshape(2050, 3000))
    shown(page, 4)
    assert pixels(page).shape == (684, 1000, 4)
    assert "1 in 3 rows and 1 in 3 columns" in page.text("what")

    with topic.producer() as producer:
        producer.push({"scan": "<b>done</b>"})
    page.until(lambda: "no array" in page.text("note"))
    assert '"<b>done</b>"' in page.text("metadata")
    assert pixels(page).shape == (684, 1000, 4), "the last picture stays"
    assert page.complaints() == []


def test_a_slow_page_asks_later_and_shows_the_newest(
    view: View, topic: thalweg.Topic, page: Page
) -> None:
    push(topic, np.zeros((2, 2), "u1"))
    page.open(view.url)
    shown(page, 0)
    # What the page asks for from now on does not leave the browser.
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/frame*"}])
    page.until(lambda: page.events("Fetch.requestPaused"), "a request")
    push(topic, *(np.full((2, 2), n, "u1") for n in range(20)))
    page.until(lambda: "No answer for" in page.text("trouble"), "a sentence about it")
    held = page.events("Fetch.requestPaused")
    assert len(held) == 1, "one request is under way at a time"
    page.call("Fetch.continueRequest", requestId=held[0]["requestId"])
    page.call("Fetch.disable")
    shown(page, 20)
    assert (page.text("dropped"), page.text("events")) == ("19", "21")
    page.until(lambda: page.text("trouble") == "")
    assert page.complaints() == []


def test_it_is_readable_on_a_screen_of_320_pixels(
    view: View, topic: thalweg.Topic, page: Page
) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=320, height=640, deviceScaleFactor=1, mobile=True)
    with topic.producer() as producer:
        producer.push_array(np.zeros((700, 1000), "<u2"), sample="x" * 300)
    page.open(view.url)
    shown(page, 0)
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [320, 320]
    left, right, top, bottom = page.evaluate("""(() => {
        const place = document.getElementById("canvas").getBoundingClientRect();
        return [place.left, place.right, place.top, place.bottom];
    })()""")
    assert 0 <= left < right <= 320 and 0 <= top < bottom <= 640
    sizes = page.evaluate("""Array.from(document.querySelectorAll("h1, dd, dt, label, p, pre"),
        one => parseFloat(getComputedStyle(one).fontSize))""")
    assert min(sizes) >= 12


def test_without_the_token_there_is_no_page(view: View, topic: thalweg.Topic, page: Page) -> None:
    push(topic, np.zeros((2, 2), "u1"))
    for url in (view.url.split("?")[0], view.url[:-1]):
        page.open(url)

        def answers(url: str = url) -> list[int]:
            responses = [one["response"] for one in page.events("Network.responseReceived")]
            return [one["status"] for one in responses if one["url"] == url]

        assert page.until(answers, url) == [403]
        assert page.evaluate("document.getElementById('canvas')") is None


def test_it_says_that_the_server_is_away_and_goes_on_behind_that(
    server: Any, page: Page
) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("scan")
        push(topic, np.zeros((2, 3), "u1"))
    view = View(server, "scan")
    try:
        goes_on_behind_an_outage(server, page, view)
    finally:
        assert view.stop() == 0
    # Without the command there is nobody to ask.
    page.until(lambda: "start it again" in page.text("trouble"), "a sentence about it")


def goes_on_behind_an_outage(server: Any, page: Page, view: View) -> None:
    page.open(view.url)
    shown(page, 0)
    server.kill()
    page.until(lambda: "What is shown is old" in page.text("trouble"), "a sentence about it")
    assert pixels(page).shape == (2, 3, 4)
    server.start()
    page.until(lambda: page.text("trouble") == "", "an end of the outage")
    with server.connect() as driver:
        push(driver.open_topic("scan"), np.zeros((4, 5), "u1"))
    shown(page, 1)
    assert pixels(page).shape == (4, 5, 4)
    assert page.complaints() == []
