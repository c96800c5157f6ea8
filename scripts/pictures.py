"""Takes screenshots of the inspector page for the documentation, from the demo: scripts/pictures.py, needs Chromium."""

import asyncio
import os
import shutil
import sys
import threading
from pathlib import Path

from cuebook import Cuebook
from cuebook.app.demo.run import demo_config, demo_folder, run_demo
from cuebook.server.app import Server, create_app, listen

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
#: Each picture with its view and its height in pixels. All have the width WIDTH.
VIEWS = {"live": ("/", 720), "turn": ("/page/conversations/mara/turns/150", 1010)}
WIDTH = 1160
PRICED_AS = "gpt-5-mini"


def main() -> None:
    """Replay the demo, serve its page, and take the screenshots."""
    chromium = os.environ.get("CUEBOOK_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium: scripts/browser installs it")
    with demo_folder() as folder:
        asyncio.run(run_demo(folder=folder, model=PRICED_AS))
        [socket] = listen("127.0.0.1", 0)
        port = socket.getsockname()[1]
        cue = Cuebook.open(demo_config(folder))
        server = Server(create_app(cue, host="127.0.0.1", port=port), stop_timeout_s=0.3)
        ready = threading.Event()
        server.when_started = ready.set
        serving = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[socket])))
        serving.start()
        ready.wait(30)
        try:
            shoot(chromium, f"http://127.0.0.1:{port}")
        finally:
            server.should_exit = True
            serving.join()


def shoot(chromium: str, address: str) -> None:
    """Write each picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, (view, height) in VIEWS.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": height})
            page.goto(address + view, wait_until="load")
            page.screenshot(path=FOLDER / f"page-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
