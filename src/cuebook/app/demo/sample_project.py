"""The rest of the project that `cuebook demo --serve` shows: agents with tools, prompt versions, and a rollback."""

from importlib import resources
from pathlib import Path

from msgspec.structs import replace

from cuebook.app.cuebook import Cuebook
from cuebook.app.demo.run import RULE, Meter, Stage, demo_config
from cuebook.app.replay import calls_of, posts_of
from cuebook.app.setup.project_templates import init_project
from cuebook.app.transcripts.sniff import read_transcripts
from cuebook.config import ModelConfig
from cuebook.window.models import rule_named

#: The prompt whose versions are tried out, and the text of each. Customers like the second one best.
SLUG = "persona/support"
TEXTS = (
    "You are Support, who helps the customers of $shop. Look an order up before you speak about it.",
    "You are Support, who helps the customers of $shop. Say in one sentence what you found, then what you can do.",
    "You are Support of $shop. Thank the customer for their patience in every answer, and explain our policies.",
)
#: Satisfaction of customers with the answers of each version, from 0 to 1.
LIKED = ((0.6, 0.7, 0.5, 0.6, 0.7, 0.6), (0.9, 0.8, 0.9, 1.0, 0.8, 0.9), (0.3, 0.2, 0.4, 0.2, 0.3, 0.1))


async def add_sample_project(folder: Path, database: str, model: str = "") -> None:
    """Add personas, conversations and prompts to a demo in `folder`, answered by a model of the name `model`."""
    data = resources.files("cuebook.app.demo").joinpath("data")
    init_project(folder, force=True)
    (folder / "personas/support.yaml").write_text(data.joinpath("support.yaml").read_text("utf-8"), "utf-8")
    stage, config = Stage(model), demo_config(folder, database)
    async with Cuebook.open(
        replace(config, settings=replace(config.settings, model=ModelConfig(name=model or "recorded"))),
        clock=stage.clock,
        dice=stage.dice,
        upstream=stage.upstream,
        worker=False,
    ) as cue:
        await _add_prompts(cue)
        for transcript in read_transcripts(data.joinpath("agents.json").read_text("utf-8"), name="agents.json"):
            stage.begin(transcript.persona or SLUG)
            for call in calls_of(posts_of(transcript)):
                await stage.play(cue, transcript, call, Meter(cue.services.count, rule_named(RULE)))
                await cue.work()
            await cue.settle(conversation=transcript.conversation)


async def _add_prompts(cue: Cuebook) -> None:
    """Store versions of a prompt with what customers thought of them, and roll the last one back."""
    for number, (body, liked) in enumerate(zip(TEXTS, LIKED, strict=True)):
        await cue.prompts.save(SLUG, {"body": body}, params={"shop": {"default": "Lumen"}}, author="priya", by="priya")
        for each in liked:
            await cue.prompts.observe(SLUG, sentiment=each, outcome="success" if number < 2 else "partial")
    await cue.prompts.label(SLUG, "production", version=2, by="priya")
    await cue.prompts.roll_back(SLUG, to=2, reason="customers found the thanks insincere", by="priya")
    await cue.prompts.render(SLUG, {"shop": "Lumen"}, log=True)
