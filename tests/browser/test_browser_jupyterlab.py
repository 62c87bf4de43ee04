"""The notebooks as people meet them: JupyterLab in a real browser, Run All, a slider moved."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from runbook.publish import document
from runbook.publish.outline import OUTLINE

ROOT = Path(__file__).parents[2]
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CHROMIUM = shutil.which("chromium")

#: No news, no extensions from outside, and every output in the page, also far below.
OPTIONS = (
    "--no-browser",
    "--ip=127.0.0.1",
    "--ServerApp.allow_root=True",
    "--ServerApp.port_retries=0",
    "--LabApp.news_url=None",
    "--LabApp.extension_manager=readonly",
)
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}

#: 02 measures live, on a machine that may be busy.
ENDS_MS = 240_000
#: The output that holds the verdict, or the first error or word on stderr (JupyterLab shows the
#: traceback of an error as such).
ENDED = """[...document.querySelectorAll('.jp-OutputArea-output')].find(
    e => e.innerText.includes('VERDICT')
        || e.matches('[data-mime-type="application/vnd.jupyter.error"]')
        || e.matches('[data-mime-type="application/vnd.jupyter.stderr"]')
)"""
#: Whether any cell was begun: JupyterLab drops an order that comes before its kernel is connected.
BEGUN = """[...document.querySelectorAll('.jp-InputPrompt')].some(
    e => /\\[(\\*|\\d+)\\]/.test(e.innerText)
)"""
IDLE = """document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')
    && document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset?.status === 'idle'"""
#: Whether the answer to the sliders is this one; every slider that moves asks anew.
SAYS = """said => [...document.querySelectorAll('.widget-html-content')].some(
    one => one.innerText === said
)"""
ERRORS = '[data-mime-type="application/vnd.jupyter.error"]'
STDERR = '[data-mime-type="application/vnd.jupyter.stderr"]'


def missing(what):
    """Skip where the browser is missing; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"no {what} here: make needs-test")
    pytest.skip(f"no {what} here: make needs-test")


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    """Where screenshots go: $RUNBOOK_SCREENSHOTS, else a folder of the test run."""
    folder = os.environ.get("RUNBOOK_SCREENSHOTS")
    return Path(folder) if folder else tmp_path_factory.mktemp("screenshots")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        missing("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """JupyterLab over a copy of the notebooks: its address, with the token it was started with."""
    home = tmp_path_factory.mktemp("lab")
    (home / "notebooks").mkdir()
    for path in BOOKS:
        shutil.copy(path, home / "notebooks")
    for name, value in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    token = secrets.token_hex(16)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")},
        "JUPYTER_TOKEN": token,
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        **{f"JUPYTER_{kind}_DIR": str(home / kind) for kind in ("CONFIG", "DATA", "RUNTIME")},
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "jupyterlab", *OPTIONS, f"--port={port}"]
    words.append(f"--ServerApp.root_dir={home / 'notebooks'}")
    with (home / "lab.log").open("wb") as log:
        server = subprocess.Popen(words, env=environment, stdout=log, stderr=log, cwd=home)
    try:
        wait_for(server, f"http://127.0.0.1:{port}/api", home / "lab.log")
        yield f"http://127.0.0.1:{port}", token
    finally:
        server.terminate()
        server.wait(30)


def wait_for(server, url, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text())


def run_all(page, lab, name):
    """Open a notebook, run all its cells, wait for the verdict line; returns it."""
    address, token = lab
    page.goto(f"{address}/lab/tree/{name}?reset&token={token}")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
    page.wait_for_function(IDLE, timeout=60_000)
    page.locator(".jp-Notebook .jp-Cell").first.click()
    for tenth in range(600):
        if page.evaluate(BEGUN):
            break
        if tenth % 100 == 0:
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_text("Run All Cells", exact=True).click()
        page.wait_for_timeout(100)
    page.wait_for_function(f"!!({ENDED})", timeout=ENDS_MS)
    page.wait_for_function(IDLE, timeout=60_000)
    return page.evaluate(f"({ENDED}).innerText").strip()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1200, "height": 1100})
    yield page
    page.close()


def test_it_wants_a_token(lab):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{lab[0]}/api/contents", timeout=10)
    assert refused.value.code == 403


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_run_all_ends_with_a_verdict_and_without_errors(page, lab, shots, path):
    verdict = run_all(page, lab, path.name)
    assert verdict.startswith("VERDICT ok: ")
    for kind in (ERRORS, STDERR):
        assert page.locator(kind).all_inner_texts() == []
    table = page.locator(".runbook table").first
    assert table.evaluate("one => getComputedStyle(one).fontVariantNumeric") == "tabular-nums"
    page.screenshot(path=shots / f"{path.stem}.png")
    if path.stem == "02_benchmark":
        progress_is_a_bar_with_the_last_figures(page)
        the_figures_stand_in_the_page(page)


def the_figures_stand_in_the_page(page):
    figures = page.locator(".runbook table").filter(has_text="TTFT p50").first
    assert figures.evaluate(
        "one => one.offsetWidth <= one.closest('.jp-OutputArea-output').clientWidth"
    )


def progress_is_a_bar_with_the_last_figures(page):
    assert page.locator(".jupyter-widgets .progress-bar").count() == 1
    label = page.locator(".jupyter-widgets .widget-label").last.inner_text()
    assert "done in" in label
    assert "tok/s" in label


def test_a_slider_redraws_answer_and_figure(page, lab, shots):
    run_all(page, lab, "03_choose.ipynb")
    answer = page.locator(".widget-html-content").filter(has_text="over").first
    picture = page.locator("img.widget-image")
    picture.scroll_into_view_if_needed()
    said, drawn = answer.inner_text(), picture.get_attribute("src")
    handle = page.locator(".noUi-handle").first
    handle.focus()
    for _ in range(40):
        handle.press("ArrowLeft")
    page.wait_for_function(
        "before => document.querySelector('img.widget-image').src !== before", arg=drawn
    )
    page.wait_for_function(IDLE, timeout=60_000)
    page.wait_for_timeout(2000)  # the last drawing follows the last step, with an idle kernel
    assert answer.inner_text() != said
    picture.evaluate("one => one.scrollIntoView({block: 'end'})")
    page.screenshot(path=shots / "sliders.png")
    page.get_by_role("button", name="as declared").click()
    page.wait_for_function(SAYS, arg=said, timeout=60_000)


def test_the_page_of_the_record(page, shots, tmp_path):
    path = document.export(ROOT / "docs" / "example-run", tmp_path / "record.html", form="html")
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: said.append(request.url))
    page.goto(path.as_uri())
    assert [one for one in said if not one.startswith(("data:image/png", "file:///"))] == []
    assert page.locator("h2").count() == len(OUTLINE)
    widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert widths
    assert min(widths) > 300
    benchmark = page.locator("#Benchmark ~ table").first
    assert benchmark.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.screenshot(path=shots / "record.png")
    page.set_viewport_size({"width": 400, "height": 800})
    found = page.locator("#Stack ~ table td:nth-child(3)").first
    assert found.evaluate("one => one.clientWidth") > 100
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
