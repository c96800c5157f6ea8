"""Create the files of a new project directory (`cuebook init`), without overwriting existing files."""

from pathlib import Path

from cuebook.errors import BackendError, Conflict

#: The template of each file, in this folder; `gitignore` has no dot, so that it has no effect here.
FILES = {
    "cuebook.toml": "cuebook.toml",
    "config/metaprompt-presets.json": "config/metaprompt-presets.json",
    "experience/handcrafted_exp_corrections.yaml": "experience/handcrafted_exp_corrections.yaml",
    "experience/handcrafted_exp_decisions.yaml": "experience/handcrafted_exp_decisions.yaml",
    "experience/handcrafted_exp_debugging.yaml": "experience/handcrafted_exp_debugging.yaml",
    "experience/handcrafted_exp_hard_day.yaml": "experience/handcrafted_exp_hard_day.yaml",
    "experience/handcrafted_exp_plans.yaml": "experience/handcrafted_exp_plans.yaml",
    "experience/handcrafted_exp_practice.yaml": "experience/handcrafted_exp_practice.yaml",
    "personas/companion.json": "personas/companion.json",
    "personas/engineer.yaml": "personas/engineer.yaml",
    "personas/helper.json": "personas/helper.json",
    "personas/tutor.json": "personas/tutor.json",
    "prompts/_meta/concise.md": "prompts/_meta/concise.md",
    "prompts/_meta/deep_dive.md": "prompts/_meta/deep_dive.md",
    "prompts/_meta/planner.md": "prompts/_meta/planner.md",
    "prompts/_meta/reviewer.md": "prompts/_meta/reviewer.md",
    "prompts/default/agent_init.md": "prompts/default/agent_init.md",
    "prompts/default/agent_summary.md": "prompts/default/agent_summary.md",
    "prompts/default/lesson_review.md": "prompts/default/lesson_review.md",
    "prompts/default/persona/helper.md": "prompts/default/persona/helper.md",
    "prompts/system/fallback_handler.md": "prompts/system/fallback_handler.md",
    "prompts/system/gmi_confusion_clarification.md": "prompts/system/gmi_confusion_clarification.md",
    "prompts/system/gmi_engagement_boost.md": "prompts/system/gmi_engagement_boost.md",
    "prompts/system/gmi_error_recovery.md": "prompts/system/gmi_error_recovery.md",
    "prompts/system/gmi_frustration_recovery.md": "prompts/system/gmi_frustration_recovery.md",
    "prompts/system/gmi_satisfaction_reinforcement.md": "prompts/system/gmi_satisfaction_reinforcement.md",
    "prompts/system/gmi_self_trait_adjustment.md": "prompts/system/gmi_self_trait_adjustment.md",
    "prompts/system/experience_selection.md": "prompts/system/experience_selection.md",
    "prompts/system/memory_compactor_v2_json.md": "prompts/system/memory_compactor_v2_json.md",
    "prompts/system/sentiment_llm.md": "prompts/system/sentiment_llm.md",
    ".gitignore": "gitignore",
}
_TEMPLATES = Path(__file__).with_name("project")
_GITIGNORE = ".gitignore"


def init_project(folder: Path, *, force: bool = False) -> list[Path]:
    """Create a project directory and return the files written. Append missing lines to an existing .gitignore.

    Raises Conflict naming an existing file, unless `force` overwrites it; BackendError if it cannot write.
    """
    texts = {folder / name: (_TEMPLATES / template).read_text("utf-8") for name, template in FILES.items()}
    ignored = folder / _GITIGNORE
    try:
        if folder.exists() and not folder.is_dir():
            msg = f"Not a folder: {str(folder)!r}. Choose a folder."
            raise Conflict(msg)
        existing = [file for file in texts if file.exists() and file != ignored]
        if existing and not force:
            msg = f"File exists: {str(existing[0])!r}. Choose another directory, or overwrite with --force."
            raise Conflict(msg)
        if ignored.exists():
            texts[ignored] = _added(ignored.read_text("utf-8", "surrogateescape"), texts[ignored])
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8", "surrogateescape", newline="\n")  # keep bytes that are not UTF-8
    except OSError as error:
        msg = f"{error.filename or str(folder)!r} cannot be written ({error.strerror}). Choose a writable folder."
        raise BackendError(msg) from error
    return list(texts)


def _added(present: str, ours: str) -> str:
    """Return the present text plus our missing lines."""
    have = set(present.splitlines())
    missing = [line for line in ours.splitlines() if line not in have]
    if not missing:
        return present
    return present + ("" if present.endswith("\n") or not present else "\n") + "\n".join(missing) + "\n"
