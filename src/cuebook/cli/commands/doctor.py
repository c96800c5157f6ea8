"""Command `cuebook doctor`: check the configuration and its dependencies."""

import asyncio

from cuebook.app.doctor import Check, examine
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State

app = new_app()


@command(app, "cuebook doctor", "cuebook doctor -C myproject --json", name="doctor")
def doctor(state: State) -> None:
    """Check Python, SQLite, the project directory, database, personas and models. Exits with 1 if a check fails."""
    checks = asyncio.run(_examine(state))
    failed = any(check.state == "fail" for check in checks)
    state.report({"ok": not failed, "checks": checks}, render=lambda: None, failed=failed)


async def _examine(state: State) -> list[Check]:
    checks: list[Check] = []
    async for check in examine(state.where):
        checks.append(check)
        if not state.json:
            screen.verdict(check.state, f"{check.name:<11}", check.found, check.advice)
    return checks
