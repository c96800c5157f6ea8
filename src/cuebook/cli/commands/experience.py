"""Commands `cuebook experience list|test`: list handwritten experiences and test their selection."""

from typing import Annotated

import typer

from cuebook.app.experiences import listed
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State

app = new_app(
    "List handwritten experiences and test their selection.",
    "cuebook experience list",
    'cuebook experience test "which laptop should I buy?"',
)

Role = Annotated[
    str | None,
    typer.Option(
        "--role", metavar="ROLE", help="Use only experiences for this persona ID or role.", show_default=False
    ),
]


@command(app, "cuebook experience list", "cuebook experience list --role helper --json", name="list")
def list_(state: State, *, role: Role = None) -> None:
    """List the experiences and the errors in their files. Exits with 1 if a file is skipped."""
    with state.open() as cue:
        experience_list = cue.experiences.list(role)
        folder = cue.config.settings.experience.folder
    if state.json:
        screen.say_json(
            {"items": [listed(each) for each in experience_list.items], "problems": list(experience_list.problems)}
        )
    elif experience_list.items:
        rows = [
            (each.experience.exp_id, ", ".join(each.experience.who) or "all", each.experience.when, each.file)
            for each in experience_list.items
        ]
        screen.table(("experience", "who", "when", "file"), rows, fold=("experience",))
    else:
        for_ = f" for {role}" if role is not None else ""
        screen.say(
            f"no experiences{for_}. To add one, create {folder}/handcrafted_exp_NAME.yaml with exp_id, when and what."
        )
    if not state.json:
        for problem in experience_list.problems:
            screen.say(f"! {problem}")
    if experience_list.problems:
        raise typer.Exit(1)


@command(
    app,
    'cuebook experience test "which laptop should I buy?"',
    'cuebook experience test "plan a trip" --role helper --json',
    name="test",
)
def try_(
    state: State,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="User message.", show_default=False)],
    *,
    role: Role = None,
) -> None:
    """Test which experiences a query selects. Shows the reasons and may call the model; nothing is stored."""
    with state.open() as cue:
        experience_choice = cue.experiences.select(query, role=role)
    if state.json:
        screen.say_json(experience_choice)
        return
    if not experience_choice.items:
        screen.say(f"no experiences for {experience_choice.role}. Run `cuebook experience list` to see all.")
        return
    chosen = [each.exp_id for each in experience_choice.items if each.chosen]
    screen.say(
        f"selected by {experience_choice.by}: {', '.join(chosen) or 'none'} of {len(experience_choice.items):,} "
        f"candidates for {experience_choice.role}"
    )
    if experience_choice.instead:
        screen.say(f"model not used: {experience_choice.instead}")
    rows = [
        (
            "yes" if each.chosen else "no",
            each.exp_id,
            f"{each.score:.2f}",
            f"{each.words:.2f}",
            "" if each.meaning is None else f"{each.meaning:.2f}",
            each.reason,
        )
        for each in experience_choice.items
    ]
    screen.table(
        ("selected", "experience", "score", "words", "meaning", "reason"),
        rows,
        right=("score", "words", "meaning"),
        fold=("experience", "reason"),
    )
