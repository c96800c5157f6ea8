"""The view of the settings in force, for the book's owner."""

from litestar import Response, get

from cuebook.app.setting_rows import setting_rows, shown_setting
from cuebook.server.caller import AnyRequest, book_of
from cuebook.server.page.render import show


@get("/page/settings", include_in_schema=False)
async def settings(request: AnyRequest) -> Response[bytes]:
    """Show every setting, its value without secrets, and where it came from."""
    config = book_of(request).config
    rows = [{**each, "value": shown_setting(each["value"])} for each in setting_rows(config)]
    sections: dict[str, list[dict[str, str]]] = {}
    for each in rows:
        sections.setdefault(each["name"].partition(".")[0] if "." in each["name"] else "environment", []).append(each)
    return show("settings.html", view="Settings", sections=sections, folder=config.folder)


ROUTES = [settings]
