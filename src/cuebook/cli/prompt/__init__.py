"""Register the `cuebook prompt` commands and their aliases `kai-prompt-manager` and `kai-prompt-tester`."""

from cuebook.cli import main as command_line
from cuebook.cli.group import command, new_app
from cuebook.cli.operations import add_operations
from cuebook.cli.prompt import edit, share, sync, transfer  # noqa: F401  # each registers its commands
from cuebook.cli.prompt.branch import print_cleared
from cuebook.cli.prompt.group import app
from cuebook.cli.prompt.lint import print_clusters, print_rating
from cuebook.cli.prompt.show import print_prompts, print_selection
from cuebook.cli.prompt.tester import try_out

__all__ = ["app", "manager", "tester"]

add_operations(
    app,
    "prompt",
    {
        "list": print_prompts,
        "select": print_selection,
        "clear": print_cleared,
        "clusters": print_clusters,
        "rate": print_rating,
    },
)
#: Command order in the help.
_ORDER = (
    "list show log diff new edit test branch merge label rollback clear select observe push pull drift sync export"
    " import bundle unbundle migrate lint rate clusters"
).split()
app.registered_commands.sort(key=lambda each: _ORDER.index(each.name or ""))

tester_app = new_app()
command(
    tester_app,
    "kai-prompt-tester --prompt persona/kind_helper --param user_name=Alex --param agent_name=kAI",
    "kai-prompt-tester --prompt persona/kind_helper --param user_name=Alex --diff",
    name="kai-prompt-tester",
)(try_out)


def tester() -> int:
    """Run `kai-prompt-tester`, an alias of `cuebook prompt test`."""
    return command_line.main(tester_app, "kai-prompt-tester")


def manager() -> int:
    """Run `kai-prompt-manager`, an alias of `cuebook prompt`."""
    return command_line.main(app, "kai-prompt-manager")
