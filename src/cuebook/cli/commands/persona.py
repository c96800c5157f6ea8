"""Commands `cuebook persona list|show|check|new`: manage persona files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.setup import personas
from cuebook.app.setup.persona_files import PersonaFile
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.answer import to_wire
from cuebook.records.expression import counted

app = new_app(
    "List, show, check and create personas.",
    "cuebook persona list",
    "cuebook persona check",
    "cuebook persona new maths --from tutor",
)

Mode = Annotated[str | None, typer.Option("--mode", metavar="MODE", help="Show the settings that apply in this mode.")]


@command(app, "cuebook persona list", "cuebook persona list --mode tutor --json", name="list")
def list_(state: State, *, mode: Mode = None) -> None:
    """List the personas and the invalid persona files."""
    looked = personas.look_at_personas(state.project())
    found = [(looked.describe(file.whole, mode), file.name) for file in looked.files if file.whole]
    broken = [file for file in looked.files if file.faults]
    items = [to_wire(shown) | {"file": name} for shown, name in found]
    faults = [{"file": file.name, "faults": file.faults} for file in broken]
    state.report({"items": items, "broken": faults}, render=partial(_draw_list, found, broken))


def _draw_list(found: list[tuple[personas.PersonaWhole, str]], broken: list[PersonaFile]) -> None:
    rows = [
        (f"{shown.id}{' *' if shown.default else ''}", shown.role, _sentiment(shown), _asked(shown), name)
        for shown, name in sorted(found, key=lambda each: each[0].id)
    ]
    if rows:
        columns = ("persona", "role", "sentiment", "metaprompts", "file")
        screen.table(columns, rows, fold=("persona", "metaprompts", "file"))
        if any(shown.default for shown, _ in found):
            screen.say("* default persona")
    else:
        screen.say("no personas. Run `cuebook persona new ID --from helper` to create one.")
    for file in broken:
        screen.verdict("fail", file.name, file.faults[0], "run `cuebook persona check` for all errors")


def _sentiment(shown: personas.PersonaShown) -> str:
    tracked = shown.sentiment_tracking
    if not tracked["enabled"]:
        return "off"
    return f"{tracked['method']}{f' ({shown.profile})' if shown.profile else ''}"


def _asked(shown: personas.PersonaShown) -> str:
    own = [each.id for each in shown.meta_prompts if each.own]
    presets = len(shown.meta_prompts) - len(own)
    return ", ".join([counted(presets, "preset")] * bool(presets) + own) or "none"


@command(app, "cuebook persona show helper", "cuebook persona show tutor --mode coding --json")
def show(
    state: State,
    persona: Annotated[str, typer.Argument(metavar="PERSONA", help="Persona ID.", show_default=False)],
    *,
    mode: Mode = None,
) -> None:
    """Show a persona's text, prompts, sentiment and metaprompts."""
    looked = personas.look_at_personas(state.project())
    found, name = looked.find(persona)
    shown = looked.describe(found, mode)
    state.report(to_wire(shown) | {"file": name}, render=partial(_draw, shown, name))


def _draw(shown: personas.PersonaWhole, name: str) -> None:
    screen.heading(f"{shown.id} · {shown.name} {shown.version} · role {shown.role}{' · default' * shown.default}")
    for line in filter(None, (shown.description, name)):
        screen.say(line)
    for link, slug in shown.prompts.items():
        screen.say(f"prompt {link}: {slug}")
    if shown.base_system_prompt:
        screen.say(f"system prompt, used if there is no prompt {shown.prompts.get('persona', f'persona/{shown.id}')}:")
        screen.say(f"\n{shown.base_system_prompt.rstrip()}\n")
    tracked = shown.sentiment_tracking
    source = f", profile {shown.profile}" if shown.profile else ""
    screen.heading(f"sentiment: {'on' if tracked['enabled'] else 'off'}{source}")
    if tracked["enabled"]:
        for field, value in tracked.items():
            if field != "enabled" and value not in ("", ()):
                screen.say(f"  {field}: {', '.join(value) if isinstance(value, list | tuple) else value}")
    screen.heading(f"metaprompts: {len(shown.meta_prompts) or 'none'}")
    for each in shown.meta_prompts:
        preset = "" if each.own else " (preset)"
        screen.say(f"  {each.id}{preset}: {_when(each)}{f'; {each.description}' if each.description else ''}")


def _when(given: personas.MetapromptShown) -> str:
    trigger = given.trigger
    if trigger.type == "turn_interval":
        return "every turn" if trigger.interval_turns == 1 else f"every {trigger.interval_turns} turns"
    return f"on {trigger.event_name}" if trigger.type == "event_based" else "on request"


@command(
    app, "cuebook persona check", "cuebook persona check personas/tutor.json draft.yaml", "cuebook persona check --json"
)
def check(
    state: State,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Persona files. Default: the project's.", show_default=False),
    ] = None,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
) -> None:
    """Check persona files and report all errors. Exits with 1 on errors, for CI."""
    looked = personas.look_at_personas(state.settings() if files else state.project(), files or ())
    wrong = sum(len(file.faults) for file in looked.files)
    odd = sum(len(file.odd) for file in looked.files)
    shown = [
        {
            "file": file.name,
            "persona": file.persona.id if file.persona else None,
            "faults": file.faults,
            "warnings": file.odd,
        }
        for file in looked.files
    ]
    counts = ((len(looked.files), "file"), (wrong, "error"), (odd, "warning"))
    total = ", ".join(counted(count, name) for count, name in counts)
    failed = wrong > 0 or (strict and odd > 0)
    state.report({"ok": not wrong, "files": shown}, render=partial(_draw_checks, looked.files, total), failed=failed)


def _draw_checks(files: Sequence[PersonaFile], total: str) -> None:
    for file in files:
        for each in file.faults:
            screen.verdict("fail", file.name, each)
        for each in file.odd:
            screen.verdict("warn", file.name, each)
        if file.whole and not file.odd:
            screen.verdict("ok", file.name, f"{file.whole.id} {file.whole.version}")
    screen.say(total)


@command(app, "cuebook persona new maths --from tutor", "cuebook persona new ops --from engineer")
def new(
    state: State,
    persona: Annotated[str, typer.Argument(metavar="ID", help="ID of the new persona.", show_default=False)],
    *,
    like: Annotated[
        str, typer.Option("--from", metavar="NAME", help="Template: helper, tutor, engineer or companion.")
    ] = "helper",
) -> None:
    """Create a persona file from a template.

    Later changes to the file take effect in the next turn.
    """
    file = personas.new_persona(state.project(), persona, like=like)
    state.report({"persona": persona, "file": str(file)}, f"wrote {file}")
