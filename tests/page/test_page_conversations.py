"""Conversations in a browser: found, read as they were said with their branches, and forgotten."""

from collections.abc import Callable
from pathlib import Path

from looks import look_over

from conftest import Served, Tab
from cuebook import Ask, Cuebook
from cuebook.app.init import init_project
from cuebook.testing.doubles import ScriptedModel


def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "book")
    return tmp_path / "book"


async def asked(book: Cuebook, *texts: str, conversation: str, **ask: str) -> None:
    for text in texts:
        await book.ask(Ask(text, conversation, **ask))


def test_conversations_are_found_by_words_listed_by_page_and_forgotten(
    serve: Callable[..., Served], tab: Callable[..., Tab], tmp_path: Path
) -> None:
    served = serve(project(tmp_path), ScriptedModel(default="Noted."))
    for number in range(52):
        said = {"role": "user", "content": f"Older talk {number}"}
        served.run(lambda book, said=said, number=number: book.append(f"old-{number}", [said]))
    served.run(lambda book: asked(book, "Wann fährt die Fähre nach Ærø?", "Danke", conversation="trip", user="mara"))
    first = served.run(lambda book: book.conversations.posts("trip"))[0]
    served.run(lambda book: book.append("trip", [{"role": "user", "content": "Other"}], user="mara", parent=first.id))
    seen = tab(served)
    page = seen.open("/page/conversations")
    row = page.locator("tr:has-text('trip')")
    told = served.run(lambda book: book.turns.show("trip", 2, user="mara"))["window"]["tokens"]
    assert row.locator("td").all_inner_texts()[1:7] == ["mara", "2", "5", "2", f"{told}", "live"]
    seen.shoot("conversations")
    page.click("text=Older ones")
    assert page.locator("tr:has(td)").count() == 3  # behind the 50 of the first page
    for words, found in (("FÄHRE ærø", 1), ("MARA", 1), ("old-5", 3), ("nowhere", 0), ("100%_", 0)):
        page = seen.open("/page/conversations")
        page.fill("[name=q]", words)
        page.click("text=Find")
        assert page.locator("tr:has(td)").count() == found, words
    assert "No conversation has" in page.inner_text("[role=status]")
    look_over(served, tab, "/page/conversations?q=trip", "/page/conversations/trip")
    page = seen.open("/page/conversations/trip")
    page.click("summary:has-text('Forget')")
    page.click("button:has-text('Forget')")
    assert page.url.endswith("/trip")  # nobody has said that it is meant
    page.check("[name=sure]")
    page.click("button:has-text('Forget')")
    page.wait_for_url("**/page/receipts/**")
    assert "posts" in page.inner_text("table")
    assert "trip" not in seen.open("/page/conversations").inner_text("main")
