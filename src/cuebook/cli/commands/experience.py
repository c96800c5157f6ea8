"""Commands `cuebook experience list|test`: list handwritten experiences and test their selection."""

from cuebook.app.experiences import ExperienceChoice, ExperiencePage
from cuebook.cli.group import new_app
from cuebook.cli.operations import add_operations, print_answer
from cuebook.cli.output import screen

app = new_app(
    "List handwritten experiences and test their selection.",
    "cuebook experience list",
    'cuebook experience test "which laptop should I buy?"',
)


def print_list(page: ExperiencePage) -> None:
    """Print experiences and the problems of their files."""
    print_answer(
        page, "no experiences. To add one, create experience/handcrafted_exp_NAME.yaml with exp_id, when and what."
    )
    for problem in page.problems:
        screen.say(f"! {problem}")


def print_choice(experience_choice: ExperienceChoice) -> None:
    """Print the candidates, and why each was selected or not."""
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


add_operations(app, "experience", {"list": print_list, "test": print_choice})
