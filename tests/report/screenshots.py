"""Renews the pictures of the documentation: ``python tests/report/screenshots.py RUN [RUN ...] -o docs/img``.

Writes ``report-learning.png`` and ``report-episode.png`` (of the episode with ``--episode``, else of the last solved
held-out one), with Chromium, its driver and the package selenium.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from gem_core.report import build_payload, read_run, write_report


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("runs", nargs="+")
    p.add_argument("-o", "--out", type=Path, default=Path("docs/img"))
    p.add_argument("--episode", type=int, help="its number in the report's address")
    p.add_argument("--width", type=int, default=1180)
    p.add_argument("--height", type=int, default=800)
    p.add_argument("--dark", action="store_true")
    cli = p.parse_args()
    cli.out.mkdir(parents=True, exist_ok=True)
    episodes = build_payload([read_run(r) for r in cli.runs])["episodes"]
    solved = [i for i, e in enumerate(episodes) if e["success"] and len(e["turns"]) >= 3]
    episode = cli.episode if cli.episode is not None else (solved or [0])[-1]
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(cli.runs, Path(folder) / "report.html")
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or "chromium"
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"):
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={folder}/profile")
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            size = {"width": cli.width, "height": cli.height, "deviceScaleFactor": 1, "mobile": cli.width < 600}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if cli.dark else "light"}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            for view, name in (("learning", "learning"), (f"episodes/{episode}", "episode")):
                driver.get("about:blank")
                driver.get(f"{page.as_uri()}#{view}")
                time.sleep(1)
                driver.save_screenshot(str(cli.out / f"report-{name}.png"))
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
