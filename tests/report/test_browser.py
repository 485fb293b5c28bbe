"""The page in a real browser: what is seen first, what can be done with it, what is not run."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from d5test.compare.output import quantity
from d5test.compare.reading import read
from d5test.metric import TIME
from d5test.report import Report, page
from d5test.report.page import content
from tests.compare.files import RIGHT, benchmark, name, plain, sides, write
from tests.report.test_rules import step

PHONE = {"width": 390, "height": 844}
PATIENCE = 120_000
"""Milliseconds until a busy machine is no excuse."""
DESKTOP = {"width": 1280, "height": 800}


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a report; at the end nothing has been complained about, asked for or obeyed."""
    context = chromium.new_context(viewport=DESKTOP)
    context.set_default_timeout(PATIENCE)
    said: list[str] = []
    asked: list[str] = []

    def run(report: Report, **viewport: int) -> Any:
        path = tmp_path / "page.html"
        path.write_text(page(report), encoding="utf-8")
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("dialog", lambda dialog: said.append(dialog.message))
        tab.on("request", lambda request: asked.append(request.url))
        if viewport:
            tab.set_viewport_size(viewport)
        tab.goto(path.as_uri())
        tab.wait_for_selector("#count:not(:empty)")
        return tab

    yield run
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def report_of(tmp_path: Path, **changed: Any) -> Report:
    given = {"slower": {1: 1.3, 3: 0.7}, "new": {2: {"judgement": {**RIGHT, "ratio": 0.6}}}}
    old, new = (read(side, 256) for side in sides(tmp_path, **{**given, **changed}))
    return Report(old, new)


def shown(tab: Any) -> list[str]:
    return [line.strip() for line in tab.locator("#table tbody th").all_inner_texts()]


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_the_first_screen_tells_verdict_and_reason(
    size: dict[str, int], tmp_path: Path, opened: Any
) -> None:
    tab = opened(report_of(tmp_path), **size)
    box = tab.locator("h1").bounding_box()
    assert box["y"] + box["height"] < size["height"]
    assert tab.locator("h1").inner_text().startswith("REGRESSED")
    assert "time of gemm-1-forward-torch +" in tab.locator("h1").inner_text()
    assert tab.evaluate("document.documentElement.scrollWidth") == size["width"]


def test_rows_are_filtered_and_sorted(tmp_path: Path, opened: Any) -> None:
    tab = opened(report_of(tmp_path))
    assert shown(tab)[:2] == [
        "error / bar of gemm-2-forward-torch",
        "time of gemm-1-forward-torch",
    ]
    assert tab.locator("#count").inner_text() == "Rows 1 to 25 of 25"
    tab.select_option("[name=metric]", "time")
    tab.fill("[name=words]", "gemm FORWARD")
    assert tab.locator("#count").inner_text() == "Rows 1 to 5 of 5"
    tab.get_by_role("button", name="new", exact=True).click()
    assert shown(tab)[0] == "time of gemm-4-forward-torch"
    tab.get_by_role("button", name="new", exact=True).click()
    assert shown(tab)[0] == "time of gemm-0-forward-torch"
    tab.uncheck("[value=same]")
    assert set(shown(tab)) == {"time of gemm-1-forward-torch", "time of gemm-3-forward-torch"}
    tab.fill("[name=words]", "no such thing")
    assert tab.locator("#count").inner_text() == "No row is so."


def test_many_rows_are_shown_a_page_at_a_time(tmp_path: Path, opened: Any) -> None:
    tab = opened(report_of(tmp_path, count=13))
    assert len(shown(tab)) == 50
    tab.get_by_role("button", name="Later rows").click()
    assert tab.locator("#count").inner_text() == "Rows 51 to 65 of 65"
    assert tab.get_by_role("button", name="Later rows").is_disabled()


def test_a_row_opens_by_the_keyboard(tmp_path: Path, opened: Any) -> None:
    tab = opened(report_of(tmp_path))
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "To the table"
    row = tab.get_by_role("button", name="time of gemm-1-forward-torch")
    row.focus()
    tab.keyboard.press("Enter")
    assert row.get_attribute("aria-expanded") == "true"
    detail = tab.locator("tr.detail")
    assert name(1) in detail.inner_text()
    assert detail.locator("svg.drawn").count() == 2
    # three runs of seven rounds a side, each a point; their fastest rounds are lines
    assert detail.locator("svg.drawn").first.locator("[aria-label=dot] path").count() == 42
    assert detail.locator("svg.drawn").first.locator("[aria-label=rule] line").count() == 6
    tab.keyboard.press("Enter")
    assert tab.locator("tr.detail").count() == 0


def test_paired_rounds_are_drawn_as_quotients(tmp_path: Path, opened: Any) -> None:
    old, new = (read(side, 256) for side in sides(tmp_path))
    pair = [1e-3, 2e-3, 3e-3], [1.1e-3, 2.2e-3, 3.3e-3]
    tab = opened(Report(old, new, paired={name(0): pair}))
    tab.get_by_role("button", name="time of gemm-0-forward-torch").click()
    assert "new over old; line: the median, +10%" in tab.locator("tr.detail").inner_text()
    assert tab.locator("tr.detail svg.drawn").count() == 3


def test_the_forest_is_coloured_by_verdict(tmp_path: Path, opened: Any) -> None:
    tab = opened(report_of(tmp_path))
    assert tab.locator("#table .forest g.worse circle, #table .forest g.worse path").count() == 2
    row = tab.locator("tr", has_text="time of gemm-1-forward-torch")
    label = row.locator("svg").get_attribute("aria-label")
    assert re.fullmatch(r"\+\d\d\.\d%, noise to \+2\.\d+%", label)


def test_dark_and_light_differ_and_print_is_light(tmp_path: Path, opened: Any) -> None:
    tab = opened(report_of(tmp_path))
    ground = "getComputedStyle(document.body).backgroundColor"
    found = {}
    for scheme, media in (("light", "screen"), ("dark", "screen"), ("dark", "print")):
        tab.emulate_media(color_scheme=scheme, media=media)
        found[scheme, media] = tab.evaluate(ground)
    white = "rgb(255, 255, 255)"
    assert found["light", "screen"] == found["dark", "print"] == white
    assert found["dark", "screen"] != white
    assert not tab.locator("nav").is_visible()
    assert tab.pdf().startswith(b"%PDF")


def test_scaling_is_drawn_with_its_ideal(tmp_path: Path, opened: Any) -> None:
    path = write(tmp_path / "run.json", [step(1), step(2), step(4), step(1, "strong")])
    tab = opened(Report([], read(str(path), 256)))
    drawn = tab.locator("#scaling svg.drawn")
    assert drawn.locator("[aria-label=dot] circle").count() == 4
    # ideals of both modes, and a line for each series
    lines = drawn.locator("[aria-label=line]")
    assert lines.first.locator("[stroke-dasharray='4 3'] path").count() == 2
    assert lines.last.locator("path").count() == 2


def test_the_data_can_be_saved(tmp_path: Path, opened: Any) -> None:
    report = report_of(tmp_path)
    tab = opened(report)
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Save the data as JSON").click()
    assert json.loads(download.value.path().read_text()) == json.loads(json.dumps(content(report)))


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'\u202e</script><!--"


def test_nothing_of_a_hostile_file_is_run(tmp_path: Path, opened: Any) -> None:
    metric = {"name": EVIL, "unit": EVIL, "better": "lower", "gate": "exact", "values": [1]}
    odd = benchmark("b", 1e-3, operator=EVIL, problem=EVIL, source=EVIL)
    odd["extra_info"]["d5test"]["dtype"] = EVIL
    found = [
        plain(EVIL, 1e-3, metrics=[metric]),
        odd,
        step(2, optimizer=EVIL, mode=EVIL),
        plain("__proto__", 1e-3),
        plain("constructor", 1e-3),
    ]
    for side in ("old", "new"):
        gone = [plain(f"gone {EVIL}", 1e-3)] if side == "old" else []
        write(tmp_path / f"{side}.json", [*found, *gone], untimed={EVIL: EVIL}, node=side + EVIL)
    old, new = (read(str(tmp_path / f"{side}.json"), 256) for side in ("old", "new"))
    tab = opened(Report(old, new, paired={EVIL: ([1.0, 2.0], [2.0, 1.0])}))
    assert tab.locator("img").count() == 0
    assert tab.locator("script").count() == 4
    for row in tab.locator("#table tbody button").all():
        row.click()
    assert tab.locator("tr.detail").count() == len(shown(tab))
    assert tab.locator("img").count() == 0


def test_a_measurement_reads_the_same_everywhere(tmp_path: Path, opened: Any) -> None:
    """In the table, among the runs, on the axis of the rounds: one number in one form."""
    old, new = (
        read(str(write(tmp_path / f"{side}.json", [plain("sort", least)])), 256)
        for side, least in (("old", 1.743e-4), ("new", 9.9e-3))
    )
    tab = opened(Report(old, new))
    tab.get_by_role("button", name="time of sort").click()
    row = tab.locator("#table tbody tr", has_text="time of sort").first
    assert row.locator("[data-label=old]").inner_text().endswith("174.3 us")
    assert row.locator("[data-label=new]").inner_text().endswith("9.9 ms")
    runs = tab.locator("tr.detail dd").all_inner_texts()
    assert [text.partition(";")[0] for text in runs] == ["174.3 us", "9.9 ms"]
    assert tab.evaluate("[1.743e-4, 9.9e-3, 2, 5e-8].map(seconds)") == [
        quantity(seconds, TIME) for seconds in (1.743e-4, 9.9e-3, 2, 5e-8)
    ]


def test_paced_times_are_told_as_they_are_compared(tmp_path: Path, opened: Any) -> None:
    sides = []
    for side, pace in (("old", 5e-5), ("new", 1e-4)):
        paced = {"work": "w", "paces": [pace] * 2, "times": [3.0, 3.5]}
        found = benchmark(name(0), 3 * pace, control=[3.5 * pace], paced=paced)
        sides.append(read(str(write(tmp_path / f"{side}.json", [found])), 256))
    tab = opened(Report(*sides))
    tab.get_by_role("button", name="time of gemm-0").click()
    runs = tab.locator("tr.detail dd").all_inner_texts()
    assert [text.partition(";")[0] for text in runs] == ["150 us, 175 us"] * 2
    assert all("at the old version's pace, not by the clock" in text for text in runs)


def test_no_table_is_cut_on_a_phone(tmp_path: Path, opened: Any) -> None:
    tab = opened(report_of(tmp_path), **PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    hidden = tab.evaluate("""[...document.querySelectorAll("table")].filter((table) => {
      const box = table.closest(".wide");
      if (!box) return true;
      box.scrollLeft = box.scrollWidth;
      const last = (row) => row.cells[row.cells.length - 1].getBoundingClientRect().right;
      const ends = [...table.rows].map(last);
      return Math.max(...ends) > box.getBoundingClientRect().right + 1
        || getComputedStyle(box).overflowX !== "auto";
    }).map((table) => table.outerHTML.slice(0, 80))""")
    assert hidden == []
    cut = tab.evaluate("""[...document.querySelectorAll(".wide, .wide *, dd, li, p")].filter((e) =>
      e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "hidden").length""")
    assert cut == 0
