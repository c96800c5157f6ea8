"""Share options and file sync between the `cuebook prompt` commands."""

from typing import Annotated

import typer

from cuebook.app.cuebook import Cuebook
from cuebook.app.prompts.files import pushes_by_itself
from cuebook.cli.group import new_app
from cuebook.cli.output import screen
from cuebook.errors import CuebookError

app = new_app(
    "Write, compare, test, select and roll back prompts.",
    "cuebook prompt new persona/kind --text 'Welcome $user_name.' --param user_name",
    "cuebook prompt edit persona/kind",
    "cuebook prompt diff persona/kind",
)

Prompt = Annotated[
    str,
    typer.Argument(
        metavar="PROMPT", help="Prompt ID; append @BRANCH, @LABEL, :N or @BRANCH:N for a version.", show_default=False
    ),
]
Branch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Branch of the prompt.  [default: main]")]
Number = Annotated[
    int | None, typer.Option("--version", metavar="N", min=1, help="Version number. Default: the active version.")
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Author of the change. Default: your user name.")]
Force = Annotated[bool, typer.Option("--force", help="Store it even if it contains a secret.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")]


def slug_of(prompt: str) -> str:
    """Return the ID of a reference, without branch, label and version."""
    return prompt.partition(":")[0].partition("@")[0]


async def write_through(cue: Cuebook, *slugs: str) -> None:
    """Write the files of changed prompts if files are synchronized automatically."""
    if not pushes_by_itself(cue.config):
        return
    try:
        await cue.prompts.pull(slugs=slugs)
    except CuebookError as error:
        screen.complain(f"The prompt is stored, but its file was not written: {error}")
