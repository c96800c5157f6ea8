"""Check the layout of pages: no horizontal scrolling on a phone, and enough text contrast in light and dark mode."""

from collections.abc import Callable
from typing import Any

from conftest import Served, Tab

#: Minimum contrast of normal text (WCAG 2.2, 1.4.3).
MIN_CONTRAST = 4.5
SIZES = (("wide", 1200, "light"), ("dark", 1200, "dark"), ("phone", 360, "light"))
#: Script that returns the texts of a page whose contrast is too low, each with its contrast.
LOW_CONTRAST = """least => {
  const parts = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r / 255, g / 255, b / 255].map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3]));
  const behind = (node) => {
    if (!node) return [255, 255, 255];
    const own = parts(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(node.parentElement));
  };
  const dim = (node) => (node ? Number(getComputedStyle(node).opacity) * dim(node.parentElement) : 1);
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    const style = getComputedStyle(node), back = behind(node.closest("svg")?.parentElement ?? node);
    const ink = parts(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(over([ink[0], ink[1], ink[2], ink[3] * dim(node)], back)), light(back)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < least) found.push(`${contrast.toFixed(2)} ${walk.currentNode.textContent.trim().slice(0, 60)}`);
  }
  return found;
}"""

#: Script that returns what is missing on a phone: tabs beyond the edge, and cells without the name of their column.
MISSING_ON_PHONE = """() => {
  const tabs = [...document.querySelectorAll("header nav a")]
    .filter((tab) => tab.getBoundingClientRect().right > innerWidth);
  const cells = [...document.querySelectorAll("table:has(thead) td:not(:first-child):not([colspan]):not(:empty)")]
    .filter((cell) => cell.checkVisibility() && getComputedStyle(cell, "::before").content === "none");
  return [...tabs, ...cells].map((node) => node.outerHTML.slice(0, 80));
}"""


def check_layout(served: Served, tab: Callable[..., Tab], *views: str, **context: Any) -> None:
    """Open pages at every size in light and dark mode, and check horizontal scrolling and contrast."""
    for name, width, scheme in SIZES:
        seen = tab(served, viewport={"width": width, "height": 800}, color_scheme=scheme, **context)
        for number, view in enumerate(views):
            page = seen.open(view)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            if name == "phone":
                assert page.evaluate(MISSING_ON_PHONE) == [], view
            assert page.evaluate(LOW_CONTRAST, MIN_CONTRAST) == [], f"{view} in {scheme}"
            seen.screenshot_page(f"{name}{view.partition('?')[0].replace('/', '-')}-{number}")
