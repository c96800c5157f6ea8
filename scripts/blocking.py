"""Write the blocking book's parts from the asynchronous ones, so that the two cannot differ.

    python scripts/blocking.py            writes src/cuebook/app/blocking/
    python scripts/blocking.py --check    says what differs from what stands there, and changes nothing

Each public method of `Cuebook`, and of each part it has, gets a method of the same name, parameters and docstring that
waits for it. What opens, closes and hands on is written by hand: `host.py` and `book.py`.
"""

import argparse
import ast
import builtins
import difflib
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from cuebook import Cuebook

FOLDER = Path(__file__).resolve().parents[1] / "src/cuebook/app/blocking"
#: Written by hand.
BY_HAND = {"__init__.py", "book.py", "host.py"}
#: What has no blocking form: the desk is for the package; relays and what is pushed are for a server.
ASYNC_ONLY = {
    "desk",
    "relay",
    "respond",
    "message",
    "messages",
    "responses",
    "openai_conversations",
    "pass_through",
    "live",
}
#: What `book.py` has in its own form.
OWN = {"open", "of", "aclose", "config"}
#: What a caller without a loop gets in the place of what an asynchronous one gets.
INSTEAD = {"AsyncIterator": "Iterator", "AsyncGenerator": "Iterator"}
HEAD = "Made by scripts/blocking.py from `{source}`: `scripts/check --fix` makes it anew."


class Needed:
    """The imports a module that is written needs."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def add(self, module: str, name: str, called: str = "") -> None:
        """Take in a name of a module."""
        self._names.setdefault(module, set()).add(name if called in ("", name) else f"{name} as {called}")

    def text(self) -> str:
        """Give the import statements."""
        return "\n".join(f"from {module} import {', '.join(sorted(names))}" for module, names in self._names.items())


def parts() -> dict[str, type]:
    """Give the parts of a book by name, those that have a blocking form."""
    found: dict[str, type] = {}
    for name, member in public(Cuebook):
        if isinstance(member, property) and name not in ASYNC_ONLY | OWN:
            kind = inspect.get_annotations(member.fget)["return"]
            if inspect.isclass(kind) and kind.__module__.startswith("cuebook.app."):
                found[name] = kind
    return found


def public(kind: type) -> Iterator[tuple[str, Any]]:
    """Give a class's public members with those of its bases, in the order they are written."""
    seen: set[str] = set()
    for base in reversed(kind.__mro__[:-1]):
        for name in vars(base):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, inspect.getattr_static(kind, name)


@cache
def names_of(module: str) -> dict[str, tuple[str, str]]:
    """Give where each name of a module comes from: (module, its name there)."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {each.asname or each.name: (node.module, each.name) for each in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = (module, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            found |= {each.id: (module, each.id) for each in names}
    return found


class Blocking(ast.NodeTransformer):
    """Puts what a blocking caller gets in the place of what an asynchronous one gets, and notes the imports."""

    def __init__(self, module: str, needed: Needed) -> None:
        self._module = module
        self._needed = needed

    def visit_Constant(self, node: ast.Constant) -> ast.expr:  # ast's name
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in INSTEAD:
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            self._needed.add("collections.abc", INSTEAD[node.value.id])
            return ast.Subscript(ast.Name(INSTEAD[node.value.id]), self.visit(inner))
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = names_of(self._module).get(node.id)
        if known is not None:
            self._needed.add(*known, node.id)
        elif not hasattr(builtins, node.id):
            sys.exit(f"scripts/blocking.py: {self._module}: where does {node.id!r} come from?")
        return node


def function_of(member: Any) -> Callable[..., Any]:
    """Give the function behind a member of a class."""
    plain = member.fget if isinstance(member, property) else member
    if not inspect.isfunction(plain):
        sys.exit(f"scripts/blocking.py: {member!r} is neither a method nor a property")
    return plain


def method(name: str, member: Any, path: str, needed: Needed) -> str:
    """Write a method that waits for one of the book's."""
    function = function_of(member)
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)  # noqa: S101  # its source is a function's
    turned = Blocking(function.__module__, needed)
    arguments = turned.visit(node.args)
    returns = turned.visit(node.returns) if node.returns else ast.Constant(None)
    how = "run" if inspect.iscoroutinefunction(function) else "read"
    how = "iterate" if inspect.isasyncgenfunction(function) else how
    called = f"book.{path}{name}" if isinstance(member, property) else f"book.{path}{name}({handed_on(node.args)})"
    said = inspect.getdoc(function) or sys.exit(f"scripts/blocking.py: {function.__qualname__} has no docstring")
    asked = f"self._host.{how}(lambda book: {called})"
    body = asked if isinstance(returns, ast.Constant) and returns.value is None else f"return {asked}"
    lines = [
        *(["@property"] if isinstance(member, property) else []),
        f"def {name}({ast.unparse(arguments)}) -> {ast.unparse(returns)}:",
        textwrap.indent(f'"""{said}\n"""' if "\n" in said else f'"""{said}"""', "    "),
        f"    {body}",
    ]
    return textwrap.indent("\n".join(lines), "    ")


def handed_on(arguments: ast.arguments) -> str:
    """Give a method's parameters as a call hands them on."""
    given = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
    given += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    given += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    given += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join(given)


def module_of(name: str, kind: type) -> str:
    """Write the module of a part."""
    needed = Needed()
    needed.add("cuebook.app.blocking.host", "Host")
    methods = [method(each, member, f"{name}.", needed) for each, member in public(kind)]
    return (
        f'"""{HEAD.format(source=kind.__module__)}"""\n\n{needed.text()}\n\n\nclass Blocking{kind.__name__}:\n'
        f'    """`Cuebook.{name}` without `await`."""\n\n'
        f"    def __init__(self, host: Host) -> None:\n        self._host = host\n\n" + "\n\n".join(methods) + "\n"
    )


def whole() -> str:
    """Write the module of the book itself: what it does, and its parts."""
    needed, pieces, known = Needed(), list[str](), parts()
    needed.add("cuebook.app.blocking.host", "Host")
    for name, member in public(Cuebook):
        if name in ASYNC_ONLY | OWN:
            continue
        if name in known:
            kind = f"Blocking{known[name].__name__}"
            needed.add(f"cuebook.app.blocking.{name}", kind)
            said = inspect.getdoc(member.fget)
            head = f"    @property\n    def {name}(self) -> {kind}:\n"
            pieces.append(f'{head}        """{said}"""\n        return {kind}(self._host)')
        else:
            pieces.append(method(name, member, "", needed))
    return (
        f'"""{HEAD.format(source="cuebook.app.book")}"""\n\n{needed.text()}\n\n\nclass BlockingParts:\n'
        '    """What a blocking book does, and its parts."""\n\n    _host: Host\n\n' + "\n\n".join(pieces) + "\n"
    )


def tidy(text: str, name: str) -> str:
    """Give a module as ruff sorts and formats it."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    for step in (["check", "--fix-only", "--select", "I"], ["format"]):
        command = [*ruff, *step, "-q", "--stdin-filename", str(FOLDER / name), "-"]
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=True)
        text = done.stdout
    return text


def main() -> int:
    """Write the modules, or say what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where something differs")
    check = parser.parse_args().check
    wanted = {f"{name}.py": module_of(name, kind) for name, kind in parts().items()} | {"parts.py": whole()}
    stood = {path.name: path.read_text() for path in FOLDER.glob("*.py") if path.name not in BY_HAND}
    differs = False
    for name in sorted(wanted.keys() | stood.keys()):
        text = tidy(wanted[name], name) if name in wanted else ""
        if text == stood.get(name, ""):
            continue
        differs = True
        if check:
            before, after = (each.splitlines(keepends=True) for each in (stood.get(name, ""), text))
            sys.stdout.writelines(difflib.unified_diff(before, after, name, f"{name}, made anew"))
        elif text:
            (FOLDER / name).write_text(text)
        else:
            (FOLDER / name).unlink()
    return int(differs and check)


if __name__ == "__main__":
    sys.exit(main())
