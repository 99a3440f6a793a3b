#!/usr/bin/env python3
"""The report in a real browser: no errors, everything drawn, usable by keyboard and on narrow screens.

    check_report.py BUILD                      BUILD holds command/grapnel
    check_report.py BUILD --shots FOLDER [PAGE]  also takes pictures, of PAGE if given
"""
import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

WIDE, NARROW = (1280, 900), (390, 844)


def browser(size):
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", f"--window-size={size[0]},{size[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    # A headless window is no narrower than a desktop's; the metrics of a device can be.
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False})
    return driver


def open_page(driver, page):
    driver.get(page.resolve().as_uri())
    try:
        WebDriverWait(driver, 60).until(lambda d: d.execute_script("return document.body.dataset.ready") == "yes")
    except TimeoutException:
        sys.exit("the page was never ready; the console says " + str(driver.get_log("browser")))


def count(driver, selector):
    return len(driver.find_elements(By.CSS_SELECTOR, selector))


def errors(driver):
    """What the console has to say, the network included: a page that asks for anything is not self-contained."""
    for entry in driver.get_log("browser"):
        yield f"the console says: {entry['message']}"
    for name in driver.execute_script("return performance.getEntriesByType('resource').map(e => e.name)"):
        if not name.startswith("data:"):
            yield f"the page loads {name}"


def drawn(driver, runs):
    wanted = {"#runs tbody tr": runs, "#loss .curve": runs, "#accuracy .curve": runs, "#ridges figure": 8, "#ridges .ridge": 16, "#drawing svg .node": 20,
              "#drawing svg .cluster": 3, "#spans .span": 20, "#hot tbody tr": 3, "#cards .card": 3}
    for selector, at_least in wanted.items():
        found = count(driver, selector)
        if found < at_least:
            yield f"{selector}: {found} are drawn, expected {at_least} or more"
    for selector in ("#loss .curve", "#ridges .ridge", "#spans .span"):
        box = driver.find_elements(By.CSS_SELECTOR, selector)[0].rect
        if box["width"] <= 0 or box["height"] <= 0:
            yield f"{selector}: has no extent"
    if "bit for bit" not in driver.find_element(By.ID, "verdict").text:
        yield "the page does not say that eager and compiled agree"


def keyboard(driver):
    """Everything that can be used is reached with Tab, and reacts to keys."""
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    seen = set()
    for _ in range(60):
        active = driver.switch_to.active_element
        seen.add(active.get_attribute("id") or active.tag_name + (active.get_attribute("name") or ""))
        active.send_keys(Keys.TAB)
    for wanted in ("spans", "drawing", "a", "button", "inputtimeline-run", "inputgradient-run"):
        if wanted not in seen:
            yield f"Tab never reaches {wanted}; it reaches {sorted(seen)}"
    spans = driver.find_element(By.ID, "spans")
    spans.send_keys(Keys.ARROW_RIGHT)
    first = driver.find_element(By.ID, "span-text").text
    spans.send_keys(Keys.ARROW_DOWN)
    if "µs" not in first or driver.find_element(By.ID, "span-text").text == first or count(driver, ".span.chosen") != 1:
        yield f"the timeline does not follow the arrow keys; it says {first!r}"
    transform = "return document.querySelector('#drawing svg > g').getAttribute('transform')"
    before = driver.execute_script(transform)
    driver.find_element(By.ID, "drawing").send_keys("+")
    if driver.execute_script(transform) == before:
        yield "the graph does not follow the + key"
    run = driver.find_elements(By.CSS_SELECTOR, "input[name=timeline-run]")[0]
    rows = driver.find_element(By.ID, "hot").text
    run.send_keys(Keys.ARROW_RIGHT)
    if driver.find_element(By.ID, "hot").text == rows:
        yield "the choice of a run does not follow the arrow keys"


def fits(driver):
    """Nothing sticks out to the right; wide tables scroll by themselves."""
    width = driver.execute_script("return document.documentElement.scrollWidth")
    if width > NARROW[0]:
        yield f"the page is {width} pixels wide on a screen of {NARROW[0]}"
    small = driver.execute_script("return [...document.querySelectorAll('.tools button')].filter(b => b.getBoundingClientRect().height < 30).length")
    if small:
        yield f"{small} buttons are too small for a finger"


# What a text of somebody else's run may try: to run, to end the data, to hide its end.
HOSTILE = "<img src=x onerror='window.caught=1'></script><script>window.caught=1</script><!--<script>\u2028&lt;\"'`${window.caught=1}"
HOSTILE_GRAPH = """digraph step {
  node [shape=box];
  subgraph cluster_a { label="<script>window.caught=1</script>"; URL="javascript:window.caught=1"; a; }
  a [label="<img src=x onerror=window.caught=1>", URL="javascript:window.caught=1", tooltip="</title><script>window.caught=1</script>", id="summary"];
  b [label=<<b>bold</b><br/>&lt;script&gt;>, class="node top", href="https://example.org/", image="/etc/hostname", fillcolor="red:blue", style=filled];
  a -> b [label="]]>", URL="javascript:window.caught=1", edgetooltip="x\\" onload=\\"window.caught=1"];
}
"""


def with_every_text(value):
    """The same with the hostile text in the place of every text."""
    if isinstance(value, dict):
        return {key: item if key in ("format", "lane") else with_every_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_every_text(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


def hostile_page(grapnel, folder, graph):
    """A report of a run in which every text is made to do harm, the name of its folder included."""
    run = folder / "<!--<script>'\"&"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(folder / "compiled", run)
    for file in run.glob("*.json"):
        file.write_text(json.dumps(with_every_text(json.loads(file.read_text()))))
    for file in run.glob("*.jsonl"):
        file.write_text("".join(json.dumps(with_every_text(json.loads(line))) + "\n" for line in file.read_text().splitlines()))
    (run / "graph.dot").write_text(graph)
    page = folder / "hostile.html"
    subprocess.run([grapnel, "report", str(run), str(folder / "eager"), "-o", str(page)], check=True, capture_output=True)
    return page


def harmless(driver, drawing):
    """Hostile texts are shown, and that is all."""
    yield from errors(driver)
    if driver.execute_script("return window.caught") is not None:
        yield "a text of a run was run as a script"
    for selector in ("img", "image", "#drawing a", "#drawing [id]", "[href^='javascript:']", "script:not([id]):nth-of-type(n+4)", "#drawing script"):
        if count(driver, selector):
            yield f"a text of a run became an element: {selector}"
    spans = driver.find_element(By.ID, "spans")
    spans.send_keys(Keys.ARROW_RIGHT)
    for name in ("title", "subtitle", "cards", "runs", "legend", "ridges", "hot", "span-text", "drawing", "footer"):
        text = driver.execute_script("return document.getElementById(arguments[0]).textContent", name)
        if ("<SCRIPT>" if name == "title" else "<script>") not in text and not (name == "drawing" and "<stdin>" in text):
            yield f"#{name} does not show the text: {text[:80]!r}"
    if (count(driver, "#drawing svg .node") == 2) != drawing:
        yield f"the drawing has {count(driver, '#drawing svg .node')} nodes"
    # Should a text become markup all the same, the policy of the page stops it.
    driver.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.caught=1\"><a href=\"javascript:window.caught=1\" id=bait>x</a>')")
    driver.execute_script("document.getElementById('bait').click()")
    driver.implicitly_wait(0.2)
    if driver.execute_script("return window.caught") is not None:
        yield "the policy of the page lets other scripts run"
    driver.get_log("browser")  # it has complained, as it should


def shot(driver, folder, name, height):
    """The upper part of the page, small enough to be kept with the documents."""
    width = driver.execute_script("return innerWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 0.75}
    for kind in "webp", "png":
        taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": kind, "clip": clip, "captureBeyondViewport": True,
                                                                  **({"quality": 75} if kind == "webp" else {})})
        (folder / f"{name}.{kind}").write_bytes(base64.b64decode(taken["data"]))


def make_runs(grapnel, folder):
    runs = []
    for mode in ("eager", "compiled"):
        run = folder / mode
        subprocess.run([grapnel, "train", "--steps", "6", "--batch", "32", "--mode", mode, "--run", str(run)], check=True, capture_output=True)
        runs.append(str(run))
    page = folder / "report.html"
    subprocess.run([grapnel, "report", *runs, "-o", str(page)], check=True, capture_output=True)
    return page


def main():
    grapnel = str(pathlib.Path(sys.argv[1]).resolve() / "command" / "grapnel")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        given = len(sys.argv) > 4
        page = pathlib.Path(sys.argv[4]) if given else make_runs(grapnel, folder)
        results = []
        wide = browser(WIDE)
        try:
            open_page(wide, page)
            runs = count(wide, "#runs tbody tr")
            results += [list(errors(wide)), list(drawn(wide, runs)), [] if given else list(keyboard(wide)), list(errors(wide))]
            if len(sys.argv) > 3:
                open_page(wide, page)
                shot(wide, pathlib.Path(sys.argv[3]), "report-wide", 2960)
            if not given:
                for graph, drawing in ((HOSTILE_GRAPH, True), ("digraph {<script>window.caught=1</script>", False)):
                    open_page(wide, hostile_page(grapnel, folder, graph))
                    results.append(list(harmless(wide, drawing)))
        finally:
            wide.quit()
        narrow = browser(NARROW)
        try:
            open_page(narrow, page)
            results += [list(errors(narrow)), list(drawn(narrow, runs)), list(fits(narrow))]
            if len(sys.argv) > 3:
                shot(narrow, pathlib.Path(sys.argv[3]), "report-narrow", 2200)
        finally:
            narrow.quit()
    for problem in sum(results, []):
        print(problem)
    failed = sum(bool(r) for r in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
