"""The HTML view of fusions, in a real browser: nodes that are drawn, found, linked and moved, and that it stays
offline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metal_ops.fusion import html
from metal_ops.fusion.explanation import Explanation, Fusion, Miss, Node
from tests.browser import chromium
from tests.fusion.graphs import residual_network

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FIRST, CHAIN = "model/stage_0/block_0/conv_1", ["", "/BiasAdd", "/Add", "/Relu"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path):
    """Opens an explanation; at the end, nothing may have been complained about or asked of the network."""
    problems: list[str] = []
    pages: list[Page] = []

    def open_it(explanation: Explanation, **options: str) -> Page:
        path = tmp_path / f"{len(pages)}.html"
        path.write_text(html.render(explanation), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1400, "height": 860}, **options)
        pages.append(page)
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: (
                None if request.url == path.as_uri() else problems.append(f"request: {request.url}")
            ),
        )
        page.goto(path.as_uri())
        return page

    yield open_it
    for page in pages:
        page.close()
    assert not problems


def node(page: Page, side: str, name: str):
    return page.locator(f'#{side} .node[data-name="{name}"]')


def fill(page: Page, side: str, name: str) -> str:
    return node(page, side, name).locator("rect").evaluate("r => getComputedStyle(r).stroke")


def centre(page: Page, side: str, name: str) -> tuple[float, float]:
    box = node(page, side, name).bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_control_problems_are_seen(browser: Browser, tmp_path: Path):
    """The same listeners, on the same page with an image from the network and an error put in."""
    bad = html.render(residual_network(1)).replace(
        '"use strict";', '"use strict"; new Image().src = "http://example.com/x.png"; missing();'
    )
    (tmp_path / "bad.html").write_text(bad)
    page, seen = browser.new_page(), []
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.goto((tmp_path / "bad.html").as_uri())
    assert any("Content Security Policy" in text for text in seen)  # forbidden, and said so
    assert any("missing is not defined" in text for text in seen)
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_regions_have_one_colour_on_both_sides(open_page, scheme: str):
    page = open_page(residual_network(3), color_scheme=scheme)
    colours = {fill(page, "before", FIRST + part) for part in CHAIN}
    assert len(colours) == 1
    assert colours == {fill(page, "after", FIRST + "/Relu")}
    neighbour = fill(page, "before", "model/stage_0/block_0/conv_0")
    assert neighbour not in colours
    assert fill(page, "before", "image") not in colours | {neighbour}  # not part of any
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness > 128) == (scheme == "light")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background


def test_hovering_links_the_sides(open_page):
    page = open_page(residual_network(3))
    node(page, "before", FIRST).hover()
    hot = page.locator(".node.hot").evaluate_all("all => all.map((one) => one.dataset.name)")
    assert hot == [FIRST + part for part in CHAIN] + [FIRST + "/Relu"]
    assert page.locator(".list li.hot").inner_text().splitlines()[1] == FIRST + "/Relu"


def test_click_shows_details(open_page):
    page = open_page(residual_network(3))
    node(page, "before", FIRST + "/Add").click()
    details = page.locator("#details").inner_text()
    for words in ("AddV2", FIRST + "/Add", "[8, 56, 56, 64]", "float32", "GPU:0", "BiasAdd · Add"):
        assert words in details
    assert "MetalFusedConv2D" in details and "is the last op that can be fused" in details
    page.locator("#details a", has_text=FIRST + "/BiasAdd").click()  # an input, as a link
    assert page.locator("#details h2").inner_text() == "BiasAdd"
    page.keyboard.press("Escape")
    assert page.locator("#details").inner_text() == ""
    assert page.locator(".selected").count() == 0


def test_lists_lead_to_the_nodes(open_page):
    explanation = residual_network(8)
    page = open_page(explanation)
    assert page.locator("#fused li").count() == len(explanation.fused) == 16
    assert page.locator("#summary").inner_text() == (
        "16 fusions, 2 candidates not fused: 56 nodes became 16 MetalFusedConv2D"
    )
    assert "is the last op that can be fused" in page.locator("#fused li").first.inner_text()
    page.locator("#fused li").last.click()
    last = explanation.fused[-1]
    for side, name in (("before", last.root), ("after", last.node)):  # both were brought in sight
        x, y = centre(page, side, name)
        pane = page.locator(f"#{side}").bounding_box()
        assert pane and pane["x"] < x < pane["x"] + pane["width"] and pane["y"] < y < 860
        assert "selected" in node(page, side, name).get_attribute("class")
    page.click("#tab-missed")
    first = page.locator("#missed li").first
    assert "one_consumer" in first.inner_text() and "read by 2 nodes" in first.inner_text()
    first.click()
    assert "read by 2 nodes" in page.locator("#details").inner_text()


@pytest.mark.parametrize(
    "text, first",
    [
        ("sigmoid", "model/stage_0/block_3/shared_conv/a"),  # an op
        ("block_2/conv_1", "model/stage_0/block_2/conv_1"),  # a part of a name
        ("BLOCK_1 add", "model/stage_0/block_1/conv_0/BiasAdd"),  # several words, any case
        ("kernel readvariable", "model/stage_0/block_0/conv_0/kernel/read"),  # not shown at first
    ],
)
def test_search(open_page, text: str, first: str):
    page = open_page(residual_network(8))
    page.keyboard.press("/")
    page.keyboard.type(text)
    assert page.locator("#found li .name").first.inner_text() == first
    page.keyboard.press("Enter")
    assert page.locator("#details .name").first.inner_text() == first
    x, y = centre(page, "before", first)
    assert 310 < x < 860 and 44 < y < 840


def test_keys_work_after_a_search(open_page):
    page = open_page(residual_network(1))
    page.keyboard.press("/")
    page.keyboard.type("relu")
    page.keyboard.press("Enter")
    page.keyboard.press("f")
    assert page.locator("#search").input_value() == "relu"  # not "reluf"


def test_long_names_are_wrapped(open_page):
    long = "/".join(["densenet121_1", "conv5_block16_2_conv_1"] * 4)
    graph = [Node(long, "Conv2D", [], {}, "GPU:0", [], "float32")]
    missed = [Miss(long, "Conv2D", "no_epilogue", f"No pattern takes '{long}' (ConcatV2).")]
    page = open_page(Explanation("f", graph, graph, [], missed))
    page.locator("#missed li").click()
    for part in ("#missed", "#details"):
        cut = page.locator(part).evaluate("one => one.scrollWidth - one.clientWidth")
        assert cut == 0, part


def test_search_that_finds_nothing_says_so(open_page):
    page = open_page(residual_network(1))
    page.fill("#search", "maxpool")
    assert page.locator("#found").inner_text() == "No node has that name or op."


def test_zoom_and_pan(open_page):
    page = open_page(residual_network(8))
    page.uncheck("#together")
    name = "model/stage_0/block_0/conv_0"
    width = node(page, "before", name).bounding_box()["width"]
    after = centre(page, "after", FIRST + "/Relu")
    x, y = centre(page, "before", name)

    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, 200)
    page.keyboard.up("Control")
    box = node(page, "before", name).bounding_box()
    assert box["width"] < 0.8 * width
    assert centre(page, "before", name) == pytest.approx((x, y), abs=1)  # stays under the pointer

    page.mouse.wheel(0, 50)
    assert centre(page, "before", name) == pytest.approx((x, y - 50), abs=1)
    page.mouse.down()  # on a node: a drag is no click
    page.mouse.move(x + 120, y + 80, steps=5)
    page.mouse.up()
    assert centre(page, "before", name) == pytest.approx((x + 120, y + 30), abs=6)
    assert page.locator("#details").inner_text() == ""
    assert centre(page, "after", FIRST + "/Relu") == after  # the other graph stood still

    page.keyboard.press("f")
    for side in ("before", "after"):
        pane = page.locator(f"#{side}").bounding_box()
        for end in ("image", "Identity"):
            _, y = centre(page, side, end)
            assert pane["y"] < y < pane["y"] + pane["height"]


def test_scrolling_together(open_page):
    """Corresponding nodes stay side by side although one graph is shorter."""
    page = open_page(residual_network(40))
    page.mouse.move(560, 500)
    page.mouse.wheel(0, 9000)
    pane = page.locator("#before").bounding_box()
    seen = [
        name
        for name in page.locator("#after .node").evaluate_all("a => a.map((n) => n.dataset.name)")
        if node(page, "before", name).count()
        and abs(centre(page, "before", name)[1] - pane["y"] - pane["height"] / 2) < 40
    ]
    assert seen
    for name in seen:
        assert abs(centre(page, "after", name)[1] - centre(page, "before", name)[1]) < 160


@pytest.mark.parametrize("weights", [False, True])
def test_layout(open_page, weights: bool):
    """2,000 nodes: none on top of another, and every edge leads down."""
    explanation = residual_network(130)
    assert len(explanation.before) > 2000
    page = open_page(explanation)
    page.set_checked("#weights", weights)
    for side in ("before", "after"):
        layout = page.evaluate(
            f"(({{nodes, edges}}) => ({{nodes: nodes.map((n) => [n.x, n.y]), up: edges.filter("
            f"(e) => e.to.y <= e.from.y).length}}))(panes.{side}.layout)"
        )
        assert layout["up"] == 0
        everything = len(getattr(explanation, side))
        assert len(layout["nodes"]) == everything if weights else len(layout["nodes"]) < everything
        rows: dict[float, list[float]] = {}
        for x, y in layout["nodes"]:
            rows.setdefault(y, []).append(x)
        for xs in map(sorted, rows.values()):
            assert all(b - a >= 156 for a, b in zip(xs, xs[1:], strict=False))


def test_cycles_are_drawn(open_page):
    """Old-style loops have edges that lead back."""

    def one(name: str, op: str, *inputs: str) -> Node:
        return Node(name, op, list(inputs), {}, "", [], "float32")

    loop = [
        one("start", "_Arg"),
        one("enter", "Enter", "start"),
        one("merge", "Merge", "enter", "next"),
        one("next", "NextIteration", "merge:1"),
        one("out", "Exit", "merge"),
    ]
    page = open_page(Explanation("f", loop, loop, [], []))
    assert page.locator("#before .node").count() == 5
    assert page.locator("#before .edge").count() == 5
    assert page.locator("#fused").inner_text() == "Nothing was fused."


@pytest.mark.parametrize("nasty", ["</script><script>alert(1)</script>", "<b>&amp;\"'", "a\u2028b"])
def test_names_cannot_break_the_page(open_page, nasty: str):
    graph = [Node(nasty, "Conv2D", [], {nasty: nasty}, nasty, [nasty], "float32")]
    fused = [Fusion(nasty, nasty, [nasty], nasty, [nasty], nasty)]
    page = open_page(Explanation(nasty, graph, graph, fused, [Miss(nasty, nasty, nasty, nasty)]))
    page.locator("#before .node").click()
    assert page.locator("#details .name").first.evaluate("one => one.textContent") == nasty
    assert page.title() == f"Fusion of {nasty}".replace("\u2028", "\u2028")


def test_empty(open_page):
    page = open_page(Explanation("f", [], [], [], []))
    assert page.locator("#summary").inner_text() == "0 fusions, 0 candidates not fused"
    page.keyboard.press("f")
    page.check("#weights")


def test_in_a_notebook(browser: Browser):
    """The frame shows the page, and its styles and scripts do not touch the notebook."""
    page = browser.new_page()
    page.set_content(f"<p id=search>cell</p>{residual_network(1)._repr_html_()}")
    inner = page.frame_locator("iframe")
    inner.locator("#before .node").first.wait_for()
    assert inner.locator("#fused li").count() == 2
    assert page.locator("#search").inner_text() == "cell"
    page.close()
