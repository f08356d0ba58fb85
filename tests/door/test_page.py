"""The status page, in a browser: Debian's Chromium, driven by chromedriver."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from pool import Client
from pool.door.tokens import new
from support.doors import RunningDoor, start_door
from support.pools import RunningPool, StartPool, row, until

pytestmark = pytest.mark.door

BINARIES = [shutil.which(name) for name in ("chromium", "chromedriver")]
needs_browser = pytest.mark.skipif(None in BINARIES, reason="needs Debian's chromium and chromium-driver")


def test_the_page_loads_nothing_and_its_policy_lets_it_do_little(door: RunningDoor) -> None:
    answer = httpx.get(door.url)
    assert re.findall(r'(?:src|href|action)="(.*?)"', answer.text) == ["data:,"]
    assert not re.search(r"(inner|outer)HTML|insertAdjacentHTML|document\.write|eval\(| style=| on\w+=", answer.text)
    policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
    assert all(re.fullmatch("'sha256-[^' ]+'", policy[name]) for name in ("script-src", "style-src"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert answer.headers["x-frame-options"] == "DENY"


class Page:
    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """As a person sees it."""
        return str(self.driver.execute_script(f"return document.querySelector('{selector}').innerText"))

    def rows(self, table: str) -> list[list[str]]:
        cells = (
            f"[...document.querySelectorAll('#{table} tbody tr')].map(row => [...row.cells].map(it => it.innerText))"
        )
        return list(self.driver.execute_script(f"return {cells}"))

    def complaints(self) -> list[str]:
        """Errors in the console, what the policy has refused among them."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]


@contextmanager
def browser(url: str, width: int = 1200, scheme: str = "light") -> Iterator[Page]:
    options = webdriver.ChromeOptions()
    options.binary_location = BINARIES[0] or ""
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(BINARIES[1])) as driver:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        driver.get(url)
        yield Page(driver)


@needs_browser
def test_it_shows_slots_models_and_what_goes_wrong(start_pool: StartPool) -> None:
    broken = '[[model]]\nname = "<b>broken</b>"\npath = "stub:double?load=fail"\n'
    double = '[[model]]\nname = "double"\npath = "stub:double"\n'
    pool = start_pool(f'[pool]\ndevices = ["cpu", "cpu"]\n{double}{broken}')
    with start_door(pool) as door, browser(door.url) as page, Client(pool.endpoint) as client:
        until(lambda: page.text("#state") == "DEGRADED", "the pool's state")
        shown = [each[:5] for each in page.rows("slots")]
        assert shown == [[str(slot), f"cpu:{slot}", "READY", "double", "idle"] for slot in (0, 1)]
        assert "is told to fail" in page.text("#troubles")
        assert {each[0]: each[1] for each in page.rows("models")} == {"double": "READY", "<b>broken</b>": "FAILED"}
        client.run("double", row())
        until(lambda: page.rows("models")[0][8] == "1", "the job")
        until(lambda: "M" in (page.find("path.curve").get_attribute("d") or ""), "the chart")
        os.kill(pool.workers()[0], signal.SIGKILL)
        until(lambda: re.search(r"ago, slot \d: SIGKILL", page.text("#deaths")), "the death")
        assert page.complaints() == []
        pool.stop()
        until(lambda: page.text("#state") == "away", "that the pool is away")


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (360, "light")])
def test_it_fits_a_phone_and_follows_the_scheme(door: RunningDoor, width: int, scheme: str) -> None:
    with browser(door.url, width, scheme) as page:
        until(lambda: page.rows("models"), "the models")
        assert page.driver.execute_script("return document.documentElement.scrollWidth") <= width
        ground = page.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (int(re.findall(r"\d+", ground)[0]) < 128) == (scheme == "dark")
        assert page.complaints() == []


@needs_browser
def test_it_asks_for_the_token_and_keeps_it_in_the_tab(running: RunningPool) -> None:
    token = new(running.folder / "tokens", "browser")
    with start_door(running, f'tokens = "{running.folder}/tokens"') as door, browser(door.url) as page:
        for path in ("/page/status", "/page/history", "/page/model?name=double", "/metrics"):
            assert httpx.get(door.url + path).status_code == 401
        for given, state in (("wrong", "token needed"), (token, "READY")):
            until(lambda: page.find("#token").is_displayed(), "that it asks")
            assert not page.find("main").is_displayed()
            page.find("#token input").send_keys(given)
            page.find("#token button").click()
            until(lambda wanted=state: page.text("#state") == wanted, state)
        page.driver.refresh()
        until(lambda: page.text("#state") == "READY", "it again")
        assert page.driver.execute_script("return [localStorage.length, document.cookie]") == [0, ""]


@needs_browser
def test_the_form_runs_a_job_from_the_signature_of_a_model(door: RunningDoor) -> None:
    def answer_to(model: str, given: str) -> Any:
        Select(page.find("#try select[name=model]")).select_by_visible_text(model)
        until(page.find("#try button").is_enabled, "its signatures")
        page.find("#inputs textarea").clear()
        page.find("#inputs textarea").send_keys(given)
        page.find("#try button").click()
        return until(lambda: (text := page.text("#answer")) not in ("", "running") and text, "the answer")

    with browser(door.url) as page:
        until(lambda: page.rows("models"), "the models")
        assert "y: FP32 [2,1]\n6.0, 8.0" in answer_to("double", "[[3], [4]]")
        assert "y: FP32 [1,1]\n7.0" in answer_to("double", "3.5")
        assert "y: BYTES [1]\n<i>é</i>" in answer_to("string", "<i>é</i>")
        assert "is no JSON" in answer_to("double", "three")
        assert page.complaints() == []
        assert "a row that the model does not bear" in answer_to("double", "-1")
