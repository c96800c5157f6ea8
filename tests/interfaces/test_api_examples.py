"""Tests of the examples of the Python API reference: they run, and every public method has one."""

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cuebook import BlockingCuebook
from cuebook.testing.doubles import ScriptedModel

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


EXAMPLES = module("api_examples")
NAMESPACES = [
    each
    for each in vars(EXAMPLES).values()
    if inspect.isfunction(each) and each.__module__ == EXAMPLES.__name__ and each is not EXAMPLES.prepare
]


@pytest.mark.parametrize("example", NAMESPACES, ids=lambda each: each.__name__)
def test_examples_run(
    example: Callable[[BlockingCuebook], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cuebook.toml").write_text('[store]\nurl = "cuebook.db"\n')
    with BlockingCuebook.open(tmp_path, model=ScriptedModel(default="It leaves at 9:45.")) as cue:
        EXAMPLES.prepare(cue)
        example(cue)


def test_every_public_method_has_an_example() -> None:
    reference = module("docs_reference")
    for namespace, examples in reference.api_examples().items():
        methods = {
            name
            for name, each in inspect.getmembers(reference.class_of(namespace), callable)
            if not name.startswith("_")
        }
        assert set(examples) == methods - reference.INTERNAL.get(namespace, set()), namespace
