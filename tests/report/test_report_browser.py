"""The page in a real browser: ``make test-browser`` (Chromium, its driver and the package selenium)."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_support import ENVS, HOSTILE, append, embedded, make_hostile_run, make_run

from gem_core.report import write_report

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="chromium and chromedriver are not installed"),
]
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",
)


class Browser:
    """A page and what a person does with it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, view: str = "", *, width: int = 1300, height: int = 900, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get("about:blank")
        self.errors()
        self.driver.get(f"{path.resolve().as_uri()}#{view}")
        self.until(lambda: self.js("return !document.getElementById('loading')"))

    def js(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def until(self, condition: Callable[[], Any], seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "the page did not get there"
            time.sleep(0.02)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        found = self.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)
        return [str(t) for t in found]

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def choose(self, label: str, text: str) -> None:
        """Sets a select or input by its label."""
        done = self.js(
            "const fields = [...document.querySelectorAll('label.field')];"
            "const box = fields.find((f) => f.textContent.startsWith(arguments[0])).querySelector('select, input');"
            "box.value = box.options ? [...box.options].find((o) => o.text === arguments[1]).value : arguments[1];"
            "box.dispatchEvent(new Event(box.options ? 'change' : 'input'));"
            "return true",
            label,
            text,
        )
        assert done

    def errors(self) -> list[str]:
        """What the console has said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def count(self) -> str:
        return self.texts(".count")[0]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two advantage estimators, two seeds of each."""
    folder = tmp_path_factory.mktemp("compared")
    runs = [make_run(folder / f"{a}-{s}", seed=s, advantage=a, points=11) for a in ("rebn", "grpo") for s in (0, 1)]
    return write_report(runs)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5,000 episodes of two environments, with thoughts of up to 12 words a turn."""
    run = make_run(tmp_path_factory.mktemp("large") / "run", points=179, batch=24, kept=24, envs=ENVS, think=12)
    path = write_report(run, max_episodes=6000)
    assert len(embedded(path.read_text())["episodes"]) >= 5000
    return path


@pytest.mark.parametrize("dark", [False, True])
def test_curves_legends_and_tables_are_drawn(browser: Browser, compared: Path, dark: bool) -> None:
    browser.open(compared, dark=dark)
    browser.until(lambda: len(browser.all(".plot svg")) == 3)
    assert browser.texts(".chart figcaption") == ["Success", "Return", "Turns an episode"]
    assert [t.split("=")[1] for t in browser.texts(".tile h2")] == ["rebn", "grpo"]
    assert len(browser.all(".chart:first-child .line")) == 4  # two groups, training and held out
    assert len(browser.all(".chart:first-child .band")) == 2
    browser.one(".toggles button").click()
    browser.until(lambda: len(browser.all(".chart:first-child .line")) == 2)
    browser.choose("Over", "wall clock")
    assert "of wall clock" in browser.texts(".plot .axis")[0]
    browser.one(".chart .numbers summary").click()
    browser.until(lambda: browser.all(".chart .numbers tbody tr"))
    assert "%" in browser.texts(".chart .numbers td")[0]
    assert "advantage" in browser.texts("tbody th")
    assert browser.errors() == []


def test_the_chart_reads_out_by_pointer_and_by_arrow_keys(browser: Browser, compared: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.open(compared)
    browser.until(lambda: browser.all(".plot svg"))
    plot = browser.one(".plot")
    ActionChains(browser.driver).move_to_element(plot).perform()
    assert browser.one(".readout").is_displayed()
    readout = browser.one(".readout").text
    assert readout.startswith("32 updates")
    assert "held out" in readout
    assert "at 40" in readout  # the nearest evaluation
    ActionChains(browser.driver).move_to_element(browser.one("h1")).perform()
    browser.js("arguments[0].focus()", plot)
    browser.press("\ue012")  # left: from the end
    assert browser.texts("#live")[0].startswith("80 updates")
    browser.press("\ue011")  # home
    data = embedded(compared.read_text())
    first = next(c for c in data["curves"] if c["group"] == 0 and c["split"] == "eval")["metrics"]["success"]["mean"][0]
    assert "0 updates" in browser.texts("#live")[0]
    assert f"held out {100 * first:.0f}" in browser.texts("#live")[0]
    assert browser.errors() == []


def test_other_metrics_can_be_shown(browser: Browser, compared: Path) -> None:
    browser.open(compared)
    browser.one(".pick summary").click()
    next(b for b in browser.all(".pick button") if b.text == "Loss").click()
    assert browser.texts(".chart figcaption")[-1] == "Loss"
    assert browser.errors() == []


def test_filters_agree_with_the_data(browser: Browser, compared: Path) -> None:
    browser.open(compared, "episodes")
    episodes = embedded(compared.read_text())["episodes"]
    total = f"{len(episodes)} episodes"
    assert browser.count() == total

    def matching(keep: Callable[[dict[str, Any]], bool]) -> str:
        return f"{sum(map(keep, episodes))} of {total}"

    browser.choose("Outcome", "not solved")
    assert browser.count() == matching(lambda e: e["success"] is False)
    browser.choose("Run", "grpo-1")
    assert browser.count() == matching(lambda e: e["success"] is False and e["run"] == 3)
    browser.one(".tools > button").click()
    assert browser.count() == total
    browser.choose("Split", "held out")
    browser.choose("From step", "40")
    assert browser.count() == matching(lambda e: e["split"] == "eval" and e["step"] >= 40)
    browser.choose("To step", "40")
    assert browser.count() == matching(lambda e: e["split"] == "eval" and e["step"] == 40)
    browser.one(".tools > button").click()
    browser.choose("Stopped by", "truncated")
    assert browser.count() == matching(lambda e: e["stop"] == "truncated")
    browser.one(".tools > button").click()
    browser.one("#search").send_keys("BOXED{7} higher")
    assert browser.count() == matching(
        lambda e: all(
            any(w in (t["obs"] + t["act"]).lower() for t in e["turns"]) or w in e["final"].lower()
            for w in ("boxed{7}", "higher")
        )
    )
    browser.one("#search").send_keys(" nowhere to be found")
    assert browser.texts(".list") == ["No episode matches."]
    browser.one(".tools > button").click()
    browser.choose("Sort", "most turns")
    first = max(len(e["turns"]) for e in episodes)
    assert f"{first} turns" in browser.texts(".list li")[0]
    assert browser.errors() == []


def test_an_episode_shows_texts_tokens_rewards_and_advantages(browser: Browser, compared: Path) -> None:
    from selenium.webdriver import ActionChains

    data = embedded(compared.read_text())
    index, episode = next(
        (i, e) for i, e in enumerate(data["episodes"]) if len(e["turns"]) > 3 and e["split"] == "train"
    )
    browser.open(compared, f"episodes/{index}")
    assert len(browser.all(".turn")) == len(episode["turns"])
    assert browser.texts(".turn .env .text") == [t["obs"] for t in episode["turns"]]
    vocabulary = data["runs"][episode["run"]]["vocabulary"]
    ids = episode["turns"][0]["ids"]
    chips = browser.texts(".turn:first-child .toks .tok")
    assert [c.replace("⏎", "\n").replace("␣", " ") for c in chips] == [vocabulary[str(i)] for i in ids]
    assert len(browser.all(".advantage.minus, .advantage.plus")) == len(episode["turns"])
    chip = browser.all(".turn:first-child .toks .tok")[-1]
    ActionChains(browser.driver).move_to_element(chip).perform()
    tip = browser.one("#tip")
    assert tip.is_displayed()
    assert all(part in tip.text for part in (f"id\n{ids[-1]}", "<|end|>", "log prob\n−", "mask\n1, sampled"))
    ActionChains(browser.driver).move_to_element(browser.one("h1")).perform()
    assert not tip.is_displayed()
    browser.js("document.querySelector('.toks').focus()")
    browser.press("\ue014", "\ue014")  # right, right
    assert browser.texts("#live")[0].startswith(f"id {ids[1]}, ")
    browser.js("document.querySelector('.legend button').click()")
    assert len(browser.all(".turn:first-child .env .mask0")) == episode["turns"][0]["ctx_n"]
    assert browser.errors() == []


def test_keys_move_through_what_the_filters_found(browser: Browser, compared: Path) -> None:
    browser.open(compared, "episodes")
    browser.choose("Outcome", "not solved")
    missed = [i for i, e in enumerate(embedded(compared.read_text())["episodes"]) if e["success"] is False]

    def selected() -> int:
        return int(browser.js("return location.hash.split('/')[1]"))

    browser.press("j")
    assert selected() == missed[0]
    browser.press("j", "j", "k")
    assert selected() == missed[1]
    assert browser.texts("#live")[0].startswith(f"Episode 2 of {len(missed)}, not solved")
    browser.js("document.querySelector('.list').focus()")
    browser.press("\ue015")  # down
    assert selected() == missed[2]
    browser.press("\ue010")  # end
    assert selected() == missed[-1]
    option = browser.one(".list [aria-selected='true']")
    assert browser.one(".list").get_attribute("aria-activedescendant") == option.get_attribute("id")
    browser.press("/")
    assert browser.js("return document.activeElement.id") == "search"
    browser.press("j")
    assert browser.one("#search").get_attribute("value") == "j"
    assert browser.js("return getComputedStyle(document.activeElement).outline").endswith("solid 2px")
    assert browser.errors() == []


def test_two_episodes_stand_side_by_side(browser: Browser, compared: Path) -> None:
    browser.open(compared, "episodes/0")
    browser.press("p", "j")
    assert [e.get_attribute("aria-label") for e in browser.all(".episode")] == ["Pinned", "Selected"]
    left, right = (e.rect for e in browser.all(".episode"))
    assert left["x"] + left["width"] <= right["x"]
    browser.one(".twins button").click()
    browser.until(lambda: browser.js("return location.hash") != "#episodes/1")
    seeds = browser.js(
        "return [...document.querySelectorAll('.facts')].map((f) => "
        "[...f.children].find((d) => d.textContent.startsWith('Seed')).textContent)"
    )
    assert len(seeds) == 2
    assert seeds[0] == seeds[1]
    assert browser.errors() == []


@pytest.mark.parametrize("view", ["learning", "episodes", "episodes/5"])
def test_a_phone_shows_everything_in_its_width(browser: Browser, compared: Path, view: str) -> None:
    browser.open(compared, view, width=360, height=740)
    time.sleep(0.2)
    wide = browser.js(
        "return [...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, .hidden, .list li, svg')"
        " && e.getBoundingClientRect().right > 361).map((e) => e.className || e.tagName)"
    )
    assert wide == []
    assert browser.js("return document.documentElement.scrollWidth") <= 360
    assert browser.js("return parseFloat(getComputedStyle(document.body).fontSize)") >= 15
    if view == "episodes":
        browser.one(".list li").click()
        browser.until(lambda: browser.all(".turn"))
        assert not browser.one(".list").is_displayed()
        browser.one(".back").click()
        browser.until(lambda: browser.one(".list").is_displayed())
    assert browser.errors() == []


def test_hostile_texts_do_nothing(browser: Browser, tmp_path: Path) -> None:
    path = write_report(make_hostile_run(tmp_path / "a"))
    browser.open(path)
    assert len(browser.all("script")) == 1
    for i, text in enumerate(HOSTILE):
        browser.open(path, f"episodes/{i}")
        assert browser.js("return window.hacked ?? null") is None
        assert len(browser.all("main script, main img, main body, main [onload], main [onerror]")) == 0
        if text.isascii() and text.isprintable():
            assert browser.texts(".turn .env .text") == [text]
    browser.open(path, "episodes/3")
    assert browser.texts(".turn .env .text") == ["␀␁␡ NUL and friends"]
    browser.open(path, "episodes/4")
    assert browser.texts(".turn .env .text")[0].startswith("‹U+202E›gnp.exe ‹U+2066›")
    browser.open(path, "episodes/8")
    browser.one(".turn .env .more").click()
    assert "characters left out" in browser.texts(".turn .env .text")[0]
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.errors() == []


def test_plain_data_a_crashed_run_and_an_empty_one_open_too(browser: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", points=2)
    append(run / "metrics.jsonl", '{"step": 24, "succ')
    browser.open(write_report(run, compress=False))
    assert "the run was cut short" in browser.texts(".notes")[0]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text("{}")
    empty = write_report(tmp_path / "b")
    browser.open(empty)
    assert "No metrics are recorded yet." in browser.texts("main")[0]
    browser.open(empty, "episodes")
    browser.press("j", "k", "p")
    assert browser.texts(".list") == ["No episodes are recorded yet."]
    append(tmp_path / "b" / "metrics.jsonl", '{"step": 0, "success": NaN, "return": NaN}\n')
    browser.open(write_report(tmp_path / "b"))
    assert browser.texts(".chart .empty") == ["No finite value was recorded."] * 2
    assert browser.errors() == []


def test_five_thousand_episodes_answer_within_a_tenth_of_a_second(browser: Browser, large: Path) -> None:
    browser.open(large, "episodes")
    browser.until(lambda: browser.js("return document.querySelectorAll('.list li').length") == 50)
    browser.press("j")
    timed = (
        "const fields = [...document.querySelectorAll('label.field')];"
        "const field = (name) => fields.find((f) => f.textContent.startsWith(name)).querySelector('select, input');"
        "const set = (box, value) => {"
        "  box.value = value; box.dispatchEvent(new Event(box.options ? 'change' : 'input')); };"
        "const key = (k) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true }));"
        "const search = document.getElementById('search');"
        "const from = performance.now(); {action}; document.body.getBoundingClientRect(); "
        "return performance.now() - from;"
    )
    actions = {
        "search": ["set(search, 'higher than 1')", "set(search, 'me try')", "set(search, 'zzz')", "set(search, '')"],
        "outcome": ["set(field('Outcome'), 'no')", "set(field('Outcome'), 'yes')", "set(field('Outcome'), '')"],
        "environment": [f"set(field('Environment'), '{e}')" for e in (*ENVS, "")],
        "steps": ["set(field('From step'), '400')", "set(field('From step'), '')"],
        "sort": ["set(field('Sort'), 'low')", "set(field('Sort'), 'long')", "set(field('Sort'), 'recorded')"],
        "page": ["document.querySelector('[aria-label=\"Next page\"]').click()"] * 3,
        "next episode": ["key('j')"] * 5,
        "comparison": ["key('p')", "key('j')", "key('k')"],
    }
    took = {name: [browser.js(timed.replace("{action}", a)) for a in steps] for name, steps in actions.items()}
    slow = {name: times for name, times in took.items() if statistics.median(times) >= 100}
    print({name: round(max(times), 1) for name, times in took.items()})
    assert not slow, took
    assert browser.errors() == []
