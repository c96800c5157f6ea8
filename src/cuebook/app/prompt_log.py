"""A render that is asked for outside a turn and is to be proven: it joins the audit's chain."""

from collections.abc import Mapping
from typing import Any

from cuebook.app.prompts import Prompts, Rendered
from cuebook.engine.desk import Desk
from cuebook.engine.receipts import receipt
from cuebook.prompts.params import coerce
from cuebook.records.memory import Scope


async def log_render(desk: Desk, made: Rendered, params: Mapping[str, Any], *, by: str = "") -> int:
    """Append what was rendered from which values to the audit; answers with the record's seq."""
    found = await Prompts(desk).resolve(made.slug, branch=made.branch, version=made.version)
    told = receipt(
        desk,
        found.version,
        "render",
        agent=by,
        context=coerce(found.params, params),
        text=made.text,
        render_id=desk.dice.new_id("render"),
    )
    return (await desk.audit.append(Scope(), [told]))[-1].seq
