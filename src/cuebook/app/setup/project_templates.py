"""Create the files of a new project directory (`cuebook init`), and load the built-in prompts among them.

The built-in prompts apply unless the project has a prompt of the same id. They are the files below `prompts/system` of
the template, so that a project starts with the same texts and can edit them. To add an instruction, add a file there.
"""

import json
import tomllib
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from cuebook.app.files import write_whole
from cuebook.config import build
from cuebook.errors import BackendError, Conflict, InvalidInput
from cuebook.prompts.digest import sealed
from cuebook.prompts.files import read_file
from cuebook.providers.regular_files import read_regular
from cuebook.records.prompt import Version

_TEMPLATES = Path(__file__).with_name("project")
_GITIGNORE = ".gitignore"
#: Names of upstream servers, for `cuebook quickstart`. Those on this machine have their default port.
UPSTREAMS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "none": "",
}
#: Branch name of built-in prompts in blocks and records; their version number is 0.
BRANCH = "built-in"


def templates() -> dict[str, Path]:
    """Return the template of each file of a project. That of .gitignore has no dot, so that it has no effect here."""
    files = sorted((file for file in _TEMPLATES.rglob("*") if file.is_file()), key=lambda each: (len(each.parts), each))
    names = {file.relative_to(_TEMPLATES).as_posix(): file for file in files}
    return {_GITIGNORE if name == "gitignore" else name: file for name, file in names.items()}


def init_project(folder: Path, *, force: bool = False) -> list[Path]:
    """Create a project directory and return the files written. Append missing lines to an existing .gitignore.

    Raises Conflict naming an existing file, unless `force` overwrites it; BackendError if it cannot write.
    """
    texts = {folder / name: template.read_text("utf-8") for name, template in templates().items()}
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
            texts[ignored] = _added(read_regular(ignored).decode("utf-8", "surrogateescape"), texts[ignored])
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8", "surrogateescape", newline="\n")  # keep bytes that are not UTF-8
    except OSError as error:
        msg = f"{error.filename or str(folder)!r} cannot be written ({error.strerror}). Choose a writable folder."
        raise BackendError(msg) from error
    return list(texts)


def write_settings(folder: Path, *, upstream: str, remember: bool, work_model: str) -> Path:
    """Write a cuebook.toml for the proxy and return its path. `upstream` is a URL or one of UPSTREAMS.

    Raises InvalidInput, and Conflict if the file exists.
    """
    url = UPSTREAMS.get(upstream, upstream)
    if url and "://" not in url:
        msg = f"Unknown upstream {upstream!r}. Available: {', '.join(UPSTREAMS)}, or a URL."
        raise InvalidInput(msg, where="upstream")
    if work_model and not url:
        msg = f"--work-model: {work_model!r} needs an upstream. Use --upstream, or set [model] in cuebook.toml."
        raise InvalidInput(msg, where="work_model")
    user = '"named" # of each request that names its user' if remember else "false"
    sections = [
        "# Settings of this project, written by `cuebook quickstart`. `cuebook config` lists every setting.",
        f"[upstream] # where /v1 requests go\nurl = {json.dumps(url, ensure_ascii=False)}",
        f"[memory] # memories of a user in all their conversations\nuser = {user}",
    ]
    if work_model:
        sections.append(f"[work] # background jobs\nmodel_name = {json.dumps(work_model, ensure_ascii=False)}")
    text, file = "\n\n".join(sections) + "\n", folder / "cuebook.toml"
    build(file=tomllib.loads(text))
    if file.exists():
        msg = f"File exists: {str(file)!r}. Edit it, or choose another directory with -C."
        raise Conflict(msg)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, [text], private=False)
    return file


def _added(present: str, ours: str) -> str:
    """Return the present text plus our missing lines."""
    have = set(present.splitlines())
    missing = [line for line in ours.splitlines() if line not in have]
    if not missing:
        return present
    return present + ("" if present.endswith("\n") or not present else "\n") + "\n".join(missing) + "\n"


# ---- built-in prompts -----------------------------------------------------------------------------------------------


def builtin_prompts() -> dict[str, Version]:
    """Return the built-in prompts by id."""
    return dict(_read())


@cache
def _read() -> dict[str, Version]:
    """Load the files once: it takes 13 ms, and they do not change while a program runs."""
    prompts = _TEMPLATES / "prompts"
    files = sorted((prompts / "system").rglob("*.md"))
    versions = [read_file(file.read_bytes(), path=file.relative_to(prompts).as_posix()) for file in files]
    return {each.slug: sealed(replace(each, branch=BRANCH)) for each in versions}
