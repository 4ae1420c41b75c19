"""Draw the console's pictures for docs/console.md, of a real demo and real simulations: `make console-pictures`.

A demo of 16 clients and two simulations are run in a temporary folder, their consoles opened in Debian's Chromium, and
each view is kept as docs/assets/console-NAME.png, of 256 colours.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
ASSETS: Final = ROOT / "docs" / "assets"
SIZE: Final = {"width": 1280, "height": 860}
OPTIONS: Final = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
SIX: Final = ((0.6, 0.1), (0.4, 0.35), (0.3, 0.65), (0.4, 0.9), (0.62, 0.85), (0.65, 0.65), (0.5, 0.55), (0.34, 0.65))
COMMAND: Final = (sys.executable, "-m", "dag_acfl")
SETTLED_MS: Final = 1500


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[str]:
    """A command that serves until Ctrl-C; the address that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(  # noqa: S603 -- our own command
        [*COMMAND, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = (re.search(r"http://[\w.:]+", line) for line in process.stdout if re.search("served|serving on", line))
        yield next(address[0] for address in found if address)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def keep(page: Page, name: str) -> None:
    """The page as it is, in 256 colours."""
    page.wait_for_timeout(SETTLED_MS)
    with Image.open(BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
            ASSETS / f"console-{name}.png", optimize=True
        )


def show(page: Page, address: str, *, heading: str) -> None:
    """Open a view without loading the page anew."""
    page.evaluate(f"location.hash = '#/{address}'")
    expect(page.get_by_role("heading", level=1)).to_contain_text(heading)


def demo_pictures(page: Page, url: str, folder: Path) -> None:
    """All views of the demo's first server."""
    page.goto(f"{url}/ui/")
    expect(page.get_by_role("status").first).to_have_text("live")
    for name in ("overview", "updates", "clusters", "training", "clients", "servers", "costs"):
        show(page, "" if name == "overview" else name, heading=name.capitalize())
        keep(page, name)
    show(page, "updates", heading="Updates")
    newest = page.locator("tbody tr").first
    newest.get_by_role("link").first.click()
    expect(page.get_by_text("The client has signed it")).to_be_visible()
    keep(page, "update")
    page.locator("dd").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Client")
    keep(page, "client")
    take_part(page)
    operate(page, folder)


def take_part(page: Page) -> None:
    show(page, "take-part", heading="Take part")
    for _ in range(2):
        page.get_by_role("button", name="Train and publish once").click()
        expect(page.get_by_text("waiting for you")).to_be_visible(timeout=120_000)
    pad = page.get_by_role("application")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    assert box is not None, "it was scrolled to"
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in SIX]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=6)
    page.mouse.up()
    keep(page, "take-part")


def operate(page: Page, folder: Path) -> None:
    """Before a client is quarantined: what that withholds."""
    data = next(folder.rglob("server-1"))
    create = (*COMMAND, "tokens", "create", "pictures", "--scope", "operator", "--days", "1", "--data-dir", str(data))
    made = subprocess.run(create, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 -- likewise
    token = made.stdout.split()[-1]
    show(page, "clients", heading="Clients")
    page.locator("tbody tr").first.get_by_role("link").first.click()
    page.get_by_role("link", name="Quarantine it").click()
    page.get_by_label("Operator's token").fill(token)
    page.get_by_role("button", name="Go on").click()
    page.get_by_label("Why").fill("its camera was mounted upside down in May")
    page.get_by_role("button", name="See what it withholds").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    keep(page, "operate")


def simulate(folder: Path, out: str, *options: str) -> None:
    command = (*COMMAND, "simulate", str(ROOT / "experiments/digits.toml"), *options, "--out", out)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=environment, check=True)  # noqa: S603 -- likewise


def simulation_pictures(page: Page, folder: Path) -> None:
    """The runs of all methods, and a ledger of more updates than can be dots."""
    simulate(folder, "short", "--set", "run.rounds=20")
    with running("ledger", "view", "short/digits", folder=folder) as url:
        page.goto(f"{url}/ui/#/runs")
        expect(page.get_by_role("heading", level=1)).to_have_text("Runs of digits")
        keep(page, "runs")
    long = ("--only", "*dag-acfl*seed-0", "--set", "run.rounds=220", "--set", "run.evaluate_every=220")
    simulate(folder, "long", *long)
    with running("ledger", "view", "long/digits", folder=folder) as url:
        page.goto(f"{url}/ui/#/updates")
        expect(page.get_by_role("heading", level=1)).to_have_text("Updates")
        page.get_by_role("button", name="All").click()
        expect(page.get_by_text("the darker, the more")).to_be_visible()
        keep(page, "density")


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("error: install chromium")
    with tempfile.TemporaryDirectory(prefix="dag-acfl-pictures-") as temporary, sync_playwright() as playwright:
        folder = Path(temporary)
        browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        page = browser.new_page(viewport=SIZE)
        with running("demo", "--keep-serving", "--out", "demo", folder=folder) as url:
            demo_pictures(page, url, folder)
        simulation_pictures(page, folder)
        browser.close()
    for path in sorted(ASSETS.glob("console-*.png")):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
