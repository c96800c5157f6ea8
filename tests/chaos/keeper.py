"""A process that is told secrets, with the vault on; a failpoint in its environment ends it."""

import asyncio
import sys

from cuebook import Ask, Cuebook, Posted
from cuebook.config import build
from cuebook.testing import Script, ScriptedModel

SECRET = "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"


async def keep(folder: str, key: str) -> None:
    settings = {"secrets.vault": True, "secrets.vault_key_file": key, "work.checkpoint_s": 0.05, "work.lease_s": 1.0}
    config = build(arguments={"store.url": "book.db", **settings}, folder=folder)
    model = ScriptedModel(default=Script(text=f"I keep {SECRET} for you. " * 5, size=8, delay=0.01))
    async with Cuebook.open(config, model=model, worker=False) as book:
        for n in range(3):
            await book.append("c", [Posted(id=f"p{n}", sender="user", message=f"number {n} is {SECRET}")])
            sys.stdout.write(f"p{n}\n")
            sys.stdout.flush()
        await book.ask(Ask(f"Keep {SECRET}", "c"))


if __name__ == "__main__":
    asyncio.run(keep(*sys.argv[1:]))
