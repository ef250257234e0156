"""The steps of a test with the live page in a browser."""

import base64
import io
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

#: Folder for screenshots; there are none without it.
FOLDER = os.environ.get("HEADGATE_SCREENSHOTS")
#: Seconds within which a page must show what it should.
PATIENCE = 300
#: The text that can be seen.
_ALL = "return document.body.innerText"
#: CSS pixels.
WIDTH = 1250


class Visitor:
    """One browser.

    Args:
        driver: of selenium.
    """

    def __init__(self, driver):
        self.driver = driver

    def scheme(self, name):
        """Prefer light or dark pages."""
        media = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def until(self, condition):
        """Wait until a function of this visitor returns something true, and return that."""
        try:
            return WebDriverWait(self.driver, PATIENCE, 0.2).until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"the page has: {self.run(_ALL)}") from None

    def run(self, script, *arguments):
        """Run JavaScript in the page; return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector):
        """Return the text of the first element, as HTML has it."""
        return self.run("return document.querySelector(arguments[0])?.textContent", selector)

    def texts(self, selector):
        """Return the texts of all elements."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)",
            selector,
        )

    def column(self, number):
        """Return the texts of a column of the table of tasks, from 1."""
        return self.texts(f"#tasks tbody td:nth-child({number})")

    def element(self, selector):
        """Return the first element."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def opened(self, page):
        """Open the link of a page, and wait until it shows a run."""
        self.driver.get(page.url)
        self.until(lambda: self.text("#connection") == "live" and self.column(1))

    def logs(self):
        """Return the errors on the console, and the hosts that were asked, since the last call."""
        errors = [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] in {"SEVERE", "WARNING"}
        ]
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        asked = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return errors, {urlsplit(url).hostname for url in asked} - {None}

    def shoot(self, name, height, width=WIDTH):
        """Write a picture of the page's top to the folder of screenshots, if there is one. Sizes are CSS pixels."""
        if FOLDER is None:
            return
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = {"format": "png", "clip": clip, "captureBeyondViewport": True}
        data = self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
        picture = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
        # The colour of a small sign counts as much as that of the ground.
        few = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE)
        few.save(Path(FOLDER) / f"{name}.png", optimize=True)
