"""One headless browser for all tests of this folder, and the session of Spark."""

import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from tests.kit import sessions
from tests.kit.masters import MASTER
from tests.soak.browser.visitor import Visitor

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--force-device-scale-factor=1",
    "--window-size=1250,1000",
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.fail("these tests need a browser: scripts/browser.sh tests/soak/browser")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(programs[1]))
    yield driver
    driver.quit()


@pytest.fixture
def spark(tmp_path):
    """A session with four slots. What it leaves is checked elsewhere: a browser's processes come and go."""
    session = sessions.builder(MASTER, "headgate in a browser", tmp_path).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def visitor(chromium):
    """A visitor without cookies, whose pages must log no error and ask no other host."""
    chromium.delete_all_cookies()
    visitor = Visitor(chromium)
    visitor.logs()
    visitor.scheme("light")
    yield visitor
    chromium.get("about:blank")
    errors, hosts = visitor.logs()
    assert errors == []
    assert hosts <= {"127.0.0.1"}
