"""The console in a real Chromium, against three real brokers: what a person sees and does."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.client.core.admin.topics import NewTopic
from millstream.testing import start_kafka

pytestmark = pytest.mark.system

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HOSTILE = "<img src=x onerror=alert(1)>"
PAGES = {
    "": "Overview",
    "topics": "Topics",
    "topics/orders": "orders",
    "topics/orders/records": "orders",
    "topics/orders/settings": "orders",
    "topics/orders/replicas": "orders",
    "topics/orders/log": "orders",
    "groups": "Groups",
    "groups/readers": "readers",
    "transactions": "Transactions",
    "acls": "Access rules",
    "tables": "Loads and tables",
    "explained": "The log explained",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Any]:
    with start_kafka(brokers=3) as kafka:
        kafka.admin.create_topics([NewTopic("orders", 3, 3), NewTopic("quiet", 1, 3)]).get_all()
        with kafka.producer() as producer:
            for number in range(300):
                value = {"order": number, "status": 500 if number % 100 == 7 else 200}
                producer.send("orders", json.dumps(value), f"customer-{number}").result(30)
            producer.send("quiet", HOSTILE, HOSTILE).result(30)
        with kafka.consumer("orders", group_id="readers") as consumer:
            seen = 0
            while seen < 300:
                seen += len(consumer.poll(30))
            consumer.commit()
        yield kafka


@contextmanager
def running(bootstrap: str, *words: str) -> Iterator[str]:
    """Run the console's command; yield its address."""
    command = [sys.executable, "-m", "millstream.cli.main", "console", "--port", "0", *words]
    with subprocess.Popen(
        [*command, "--bootstrap-server", bootstrap], stdout=subprocess.PIPE, text=True
    ) as console:
        assert console.stdout is not None
        line = console.stdout.readline()
        try:
            yield line.partition(": ")[2].strip()
        finally:
            console.terminate()
            console.wait(30)


@pytest.fixture(scope="module")
def address(kafka: Any) -> Iterator[str]:
    with running(kafka.bootstrap, "--allow-writes") as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A tab, with everything that must not happen in it."""

    def __init__(self, browser: Any, address: str, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.address = address
        self.trouble: list[str] = []
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: self.trouble.append(f"dialog {dialog.message}"))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        # What the console refuses is logged by the browser, and explained by the page.
        if message.type in ("error", "warning") and "Failed to load" not in message.text:
            self.trouble.append(message.text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.trouble.append(f"asked {request.url}")

    def go(self, place: str) -> Any:
        self.page.goto(f"{self.address}#/{place}")
        return self.page


@pytest.fixture
def tab(browser: Any, address: str) -> Iterator[Watched]:
    watched = Watched(browser, address, viewport={"width": 1280, "height": 800})
    yield watched
    watched.context.close()
    assert watched.trouble == []


@pytest.mark.parametrize(
    "settings",
    [
        {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
        {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    ],
    ids=["dark", "narrow"],
)
def test_every_page_shows_itself_and_asks_nobody_else(
    browser: Any, address: str, settings: dict[str, Any]
) -> None:
    tab = Watched(browser, address, **settings)
    for place, heading in PAGES.items():
        page = tab.go(place)
        page.locator("h1", has_text=heading).wait_for()
        page.locator("main:not(:has(.wait))").wait_for()
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wider) <= 0, place
        assert page.evaluate("document.documentElement.dataset.theme") == settings["color_scheme"]
    tab.context.close()
    assert tab.trouble == []


def test_a_record_that_looks_like_a_page_is_shown_as_text(tab: Watched) -> None:
    page = tab.go("topics/quiet/records?open=1&from=oldest")
    page.locator(".look pre", has_text=HOSTILE).first.wait_for()
    assert page.locator("main img").count() == 0


def test_it_is_used_by_keyboard_alone(tab: Watched) -> None:
    page = tab.go("")
    page.get_by_role("grid", name="Brokers").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.get_by_role("grid", name="Topics").wait_for()
    page.get_by_role("row").filter(has_text="quiet").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("ord")
    page.get_by_text("1 of 2 topics").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator("h1", has_text="orders").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")


def test_records_are_filtered_opened_and_linked(tab: Watched) -> None:
    page = tab.go("topics/orders/records?from=oldest&filter=value.status%20%3D%3D%20500&open=1")
    page.get_by_text("3 records of 300 read").wait_for()
    page.locator(".look .tree", has_text="order: 7").wait_for()
    page.get_by_label("Only where").fill("value.status >>")
    page.keyboard.press("Enter")
    page.get_by_role("alert").filter(has_text="is not an expression").wait_for()


def test_a_record_that_is_produced_shows_in_the_live_view(tab: Watched) -> None:
    page = tab.go("topics/orders/records?live=1")
    page.get_by_role("button", name="Stop").wait_for()
    page.get_by_text("Waiting for records").wait_for()
    page.wait_for_timeout(1)
    page.get_by_role("button", name="Produce").click()
    found = page.get_by_role("gridcell").filter(has_text="hello from the page")
    for _ in range(10):  # a record that is sent before the live view has its ends is not in it
        page.get_by_role("textbox", name="Value").fill("hello from the page")
        page.get_by_role("button", name="Send").click()
        page.get_by_role("dialog").wait_for(state="detached")
        page.get_by_role("button", name="Produce").click()
        if found.count():
            break
        page.wait_for_timeout(500)
    assert found.count() > 0


def test_a_group_is_reset_after_its_plan_was_shown(tab: Watched, kafka: Any) -> None:
    page = tab.go("groups/readers")
    page.get_by_role("button", name="Reset offsets").click()
    assert page.get_by_role("button", name="Reset", exact=True).is_disabled()
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("dialog").get_by_text("3 partitions").wait_for()
    page.get_by_role("button", name="Reset", exact=True).click()
    page.get_by_role("dialog").wait_for(state="detached")
    committed = kafka.admin.list_group_offsets(["readers"])["readers"].get()
    assert {each.offset for each in committed.values()} == {0}


def test_a_look_up_is_stepped_through(tab: Watched) -> None:
    page = tab.go("explained")
    page.get_by_text("Step 1 of 12").wait_for()
    for _ in range(11):
        page.keyboard.press("n")
    page.locator(".story strong", has_text="Found").wait_for()
    assert page.get_by_role("button", name="Next step").is_disabled()


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A console that asks for the password of ann, a user of its cluster."""
    with start_kafka(security="SASL_PLAINTEXT", users={"ann": "a secret"}) as kafka:
        kafka.admin.create_topics([NewTopic("guarded", 1, 1)]).get_all()
        security = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
        with running(kafka.bootstrap, "--login", *security) as address:
            yield address


def test_who_logs_in_sees_the_cluster_until_the_log_out(browser: Any, guarded: str) -> None:
    tab = Watched(browser, guarded, viewport={"width": 390, "height": 844})
    page = tab.go("topics")
    page.get_by_label("User of the cluster").fill("ann")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_role("alert").filter(has_text="does not know").wait_for()
    page.get_by_label("Password").fill("a secret")
    page.keyboard.press("Enter")
    page.get_by_role("row").filter(has_text="guarded").wait_for()
    boxes = [
        each.bounding_box()
        for each in page.locator(".bar > *").all()
        if each.is_visible() and each.bounding_box()["width"] > 1
    ]
    for left, right in itertools.pairwise(sorted(boxes, key=lambda box: box["x"])):
        assert left["x"] + left["width"] <= right["x"] + 1
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Password").wait_for()
    assert page.get_by_role("row").count() == 0
    tab.context.close()
    assert tab.trouble == []


@pytest.mark.parametrize("first", ["late", "lost"])
def test_the_log_in_is_shown_though_the_first_answer_is(
    browser: Any, guarded: str, first: str
) -> None:
    """The page does not wait for who asks; where that is a log-in, it has to show itself then."""
    tab = Watched(browser, guarded)
    asked = []

    def hold(route: Any) -> None:
        asked.append(route)
        if len(asked) > 1:
            route.continue_()
        elif first == "lost":
            route.abort()

    tab.page.route("**/api/session", hold)
    page = tab.go("topics")
    page.get_by_role("alert").filter(has_text="Log in").wait_for()
    if first == "late":
        asked[0].continue_()
    page.get_by_label("User of the cluster").fill("ann")
    page.get_by_label("Password").fill("a secret")
    page.keyboard.press("Enter")
    page.get_by_role("row").filter(has_text="guarded").wait_for()
    tab.context.close()
    assert tab.trouble == []
