"""Commands `cuebook prompt export|import|migrate`: exchange prompts with other projects and programs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cuebook.app.files import write_whole
from cuebook.app.prompts import read_document, write_file
from cuebook.app.prompts.answers import MigrationResult
from cuebook.app.prompts.draft import export_prompts, import_files
from cuebook.cli.group import Output, command, read_input
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import DryRun, Force, app, slug_of, write_through
from cuebook.cli.state import State
from cuebook.errors import InvalidInput
from cuebook.records.expression import counted

By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Author of versions without an author.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="JSON file; - reads standard input.", show_default=False)]


@command(
    app,
    "cuebook prompt migrate prompts.json --dry-run",
    "cuebook prompt migrate prompts.json",
    name="migrate",
)
async def migrate(state: State, file: File, *, dry_run: DryRun = False, by: By = None, force: Force = False) -> None:
    """Import prompts from a JSON file in one transaction.

    Versions that are already stored are skipped. Accepts an array of versions, {"prompts": [...]}, and {"prompts",
    "versions", "inheritance"}.
    """
    data = read_input(file)
    async with state.open_async() as cue:
        document = read_document(data, name="stdin" if file == "-" else file)
        done = await cue.prompts.migrate(document, dry_run=dry_run, force=force, by=by or "")
        if not dry_run:
            await write_through(cue, *(each.slug for each in done.written))
    state.report(done, *_migrated(done))


def _migrated(done: MigrationResult) -> Iterator[str]:
    for each in done.written:
        asked = "" if each.bump == "none" else f", a {each.bump} change"
        verb = "would write" if done.dry_run else "wrote"
        yield f"{verb} {each.slug}@{each.branch}:{each.number} ({each.semver}{asked}) from {each.place}"
    if done.skipped:
        yield f"{counted(len(done.skipped), 'version')} already stored"
    if not done.written:
        yield "nothing to write"


@command(
    app,
    "cuebook prompt import greet.md",
    "cuebook prompt export | cuebook -C copy prompt import -",
    name="import",
)
async def import_(
    state: State,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Prompt files or a JSON file; - reads JSON from standard input.", show_default=False
        ),
    ],
    *,
    by: By = None,
    force: Force = False,
) -> None:
    """Import prompts from .md files or from exported JSON.

    Importing the same file again changes nothing. The default ID of a file is its name.
    """
    texts = [each for each in files if each != "-" and not each.endswith(".json")]
    documents = [each for each in files if each not in texts]
    if texts and documents:
        msg = "JSON and prompt files cannot be imported together. Run the command once for each"
        raise typer.BadParameter(msg, param_hint="FILE")
    if len(documents) > 1:
        msg = "Only one JSON file can be imported at a time"
        raise typer.BadParameter(msg, param_hint="FILE")
    if documents:
        await migrate(state, documents[0], dry_run=False, by=by, force=force)
        return
    data = [(Path(each).name, read_input(each)) for each in texts]
    async with state.open_async() as cue:
        made = await import_files(cue.services, data, by=by or "", force=force)
        await write_through(cue, *(each.slug for each in made))
    state.report({"items": made}, *([f"wrote {each}" for each in made] or ["no new versions"]))


@command(
    app,
    "cuebook prompt export > prompts.json",
    "cuebook prompt export persona/kind persona/brief -o prompts.json",
    "cuebook prompt export persona/kind@trial --format md > kind.md",
    name="export",
)
async def export(
    state: State,
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="Prompt IDs. Default: all prompts.", show_default=False)
    ] = None,
    *,
    form: Annotated[
        str, typer.Option("--format", metavar="json|md", help="json: all versions; md: the file of one version.")
    ] = "json",
    output: Output = None,
) -> None:
    """Export prompts with all versions as JSON.

    With --format md, export one version as its file.
    """
    if form not in ("json", "md"):
        msg = f"Unknown format {form!r}. Available: json, md"
        raise typer.BadParameter(msg, param_hint="--format")
    named = prompts or []
    if form == "md" and len(named) != 1:
        msg = f"--format md exports one prompt, not {len(named)}. Run `cuebook prompt pull` to write all files."
        raise InvalidInput(msg, where="format")
    async with state.open_async() as cue:
        if form == "md":
            text, count = write_file(await cue.prompts.get(named[0])), 1
        else:
            document: dict[str, Any] = await export_prompts(cue.services, list(map(slug_of, named)))
            text, count = f"{screen.json_text(document)}\n", len(document["prompts"])
    if output is None:
        sys.stdout.write(text)
        return
    write_whole(output, [text])
    state.report({"file": str(output), "versions": count}, f"wrote {output} ({counted(count, 'version')})")
