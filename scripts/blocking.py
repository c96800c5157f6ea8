"""Writes the blocking classes behind `BlockingCuebook` from the asynchronous ones, so both have equal methods.

    python scripts/blocking.py     writes src/cuebook/app/blocking/generated/

Each public method of `Cuebook` and of its namespaces gets a blocking method with the same name, parameters and
docstring. The sources are parsed, not imported: a build needs none of Cuebook's dependencies. The code that opens,
closes and runs the event loop is handwritten: `host.py` and `cuebook.py`.
"""

import ast
import builtins
import copy
import shutil
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
FOLDER = SOURCE / "cuebook/app/blocking/generated"
PACKAGE = "cuebook.app.blocking.generated"
#: Members without a blocking form: `services` is internal, the others are for servers.
ASYNC_ONLY = {
    "services",
    "relay",
    "respond",
    "message",
    "messages",
    "responses",
    "openai_conversations",
    "pass_through",
    "live",
}
#: Methods that are handwritten in `cuebook.py`, or written by `render_openers`.
BY_HAND = {"open", "of", "aclose", "config"}
#: The blocking form of a return type.
REPLACEMENTS = {"AsyncIterator": "Iterator", "AsyncGenerator": "Iterator"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Method(NamedTuple):
    """A public method or property of a class, and the module it is written in."""

    name: str
    module: str
    node: Function

    @property
    def is_property(self) -> bool:
        """Return whether the method is a property."""
        return any(isinstance(each, ast.Name) and each.id == "property" for each in self.node.decorator_list)


@cache
def parse(module: str) -> ast.Module:
    """Return the parsed source of a module."""
    path = SOURCE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"), filename=str(path))


@cache
def names_of(module: str) -> dict[str, tuple[str, str]]:
    """Return where each top-level name of a module is imported from: (module, its name there)."""
    found: dict[str, tuple[str, str]] = {}
    for node in parse(module).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {each.asname or each.name: (node.module, each.name) for each in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = (module, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            found |= {each.id: (module, each.id) for each in names}
    return found


def find_class(module: str, name: str) -> tuple[str, ast.ClassDef]:
    """Return one of our classes and the module that defines it, following imports."""
    for node in parse(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
    return find_class(*names_of(module)[name])


def methods_of(module: str, name: str) -> dict[str, Method]:
    """Return the public methods of a class in source order, those of its bases first."""
    module, node = find_class(module, name)
    found: dict[str, Method] = {}
    for base in reversed(node.bases):
        origin = names_of(module).get(base.id) if isinstance(base, ast.Name) else None
        if origin is not None and origin[0].startswith("cuebook."):
            found |= methods_of(module, base.id)
    own = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return found | {each.name: Method(each.name, module, each) for each in own if not each.name.startswith("_")}


def namespaces() -> dict[str, tuple[str, str]]:
    """Return the namespaces of `Cuebook` that have a blocking form: the module and class of each."""
    found = {}
    for method in methods_of("cuebook.app.cuebook", "Cuebook").values():
        kind = method.node.returns
        if method.is_property and method.name not in ASYNC_ONLY | BY_HAND and isinstance(kind, ast.Name):
            module, name = names_of(method.module).get(kind.id, ("", ""))
            if module.startswith("cuebook.app."):
                found[method.name] = (module, name)
    return found


class Imports(ast.NodeTransformer):
    """Collects the imports that annotations and defaults need, and makes return types blocking."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._module = ""

    def translate(self, node: ast.AST, module: str) -> ast.AST:
        """Return a translated copy of a module's annotation or parameters."""
        self._module = module
        return self.visit(copy.deepcopy(node))

    def add(self, module: str, name: str, alias: str = "") -> None:
        """Import a name."""
        self._names.setdefault(module, set()).add(name if alias in ("", name) else f"{name} as {alias}")

    def text(self) -> str:
        """Return the import statements."""
        rows = sorted(self._names.items())
        return "\n".join(f"from {module} import {', '.join(sorted(names))}" for module, names in rows)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:  # ast requires this name
        """Keep default values, and translate class names in strings."""
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """Replace an f-string by `format`: from Python 3.12 on, `unparse` writes f-strings that 3.11 cannot parse."""
        text, values = "", []
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                conversion = f"!{chr(each.conversion)}" if each.conversion > 0 else ""
                spec = "".join(ast.literal_eval(part) for part in getattr(each.format_spec, "values", ()))
                text += f"{{{conversion}{spec and f':{spec}'}}}"
                values.append(self.visit(each.value))
            else:
                text += ast.literal_eval(each).replace("{", "{{").replace("}", "}}")
        return ast.Call(ast.Attribute(ast.Constant(text), "format"), values, [])

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Replace an asynchronous iterator."""
        if isinstance(node.value, ast.Name) and node.value.id in REPLACEMENTS:
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            self.add("collections.abc", REPLACEMENTS[node.value.id])
            return ast.Subscript(ast.Name(REPLACEMENTS[node.value.id]), self.visit(inner))
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Record the import of a name."""
        origin = names_of(self._module).get(node.id)
        if origin is not None:
            self.add(*origin, node.id)
        elif not hasattr(builtins, node.id):
            msg = f"scripts/blocking.py: {self._module}: no import of {node.id!r}"
            raise SystemExit(msg)
        return node


def render_method(method: Method, path: str, imports: Imports) -> str:
    """Return the source of a method that waits for the asynchronous one at `path`."""
    node = method.node
    arguments = imports.translate(node.args, method.module)
    returns = imports.translate(node.returns, method.module) if node.returns else ast.Constant(None)
    called = f"book.{path}{method.name}" + ("" if method.is_property else f"({pass_arguments(node.args)})")
    waits = f"self._host.{way_of_waiting(node)}(lambda book: {called})"
    nothing = isinstance(returns, ast.Constant) and returns.value is None
    doc = ast.get_docstring(node)
    if doc is None:
        msg = f"scripts/blocking.py: {method.module}: {method.name} has no docstring"
        raise SystemExit(msg)
    lines = [
        *(["@property"] if method.is_property else []),
        f"def {method.name}({ast.unparse(arguments)}) -> {ast.unparse(returns)}:",
        *textwrap.indent(f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""', "    ").splitlines(),
        f"    {waits}" if nothing else f"    return {waits}",
    ]
    return textwrap.indent("\n".join(lines), "    ")


def way_of_waiting(node: Function) -> str:
    """Return the method of `Host` that runs a function: a coroutine, an asynchronous generator, or neither."""
    if isinstance(node, ast.FunctionDef):
        return "read"
    return "iterate" if any(isinstance(each, ast.Yield) for each in own_nodes(node)) else "run"


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield each
            yield from own_nodes(each)


def pass_arguments(arguments: ast.arguments) -> str:
    """Return a method's parameters as a call passes them on."""
    passed = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
    passed += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    passed += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    passed += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join(passed)


def render_namespace(name: str, module: str, kind: str) -> str:
    """Return the source of a namespace's module."""
    imports = Imports()
    imports.add("cuebook.app.blocking.host", "Host")
    found = sorted(methods_of(module, kind).values(), key=lambda each: each.name == "list")  # it would hide the type
    methods = [render_method(each, f"{name}.", imports) for each in found]
    return (
        f'"""Generated by scripts/blocking.py from `{module}.{kind}`."""\n\n{imports.text()}\n\n\n'
        f'class Blocking{kind}:\n    """`Cuebook.{name}` without `await`."""\n\n'
        f"    def __init__(self, host: Host) -> None:\n        self._host = host\n\n" + "\n\n".join(methods) + "\n"
    )


def render_openers(imports: Imports) -> list[str]:
    """Return the source of the constructor and of `open`, which have the parameters of `Cuebook`'s."""
    module, node = find_class("cuebook.app.cuebook", "Cuebook")
    found = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    imports.add(module, "Cuebook")
    imports.add("typing", "Self")
    heads = {name: f"({ast.unparse(imports.translate(found[name].args, module))})" for name in ("__init__", "open")}
    return [
        (
            f"    def __init__{heads['__init__']} -> None:\n"
            f"        self._host = Host(Cuebook({pass_arguments(found['__init__'].args)}))"
        ),
        (
            f"    @classmethod\n    def open{heads['open']} -> Self:\n"
            '        """Return one with the arguments of `Cuebook.open`; `with` opens it. Raises InvalidInput."""\n'
            "        blocking = cls.__new__(cls)\n"
            f"        blocking._host = Host(Cuebook.open({pass_arguments(found['open'].args)}))\n"
            "        return blocking"
        ),
    ]


def render_main() -> str:
    """Return the source of the base class of `BlockingCuebook`."""
    imports, known = Imports(), namespaces()
    imports.add("cuebook.app.blocking.host", "Host")
    pieces = render_openers(imports)
    for name, method in methods_of("cuebook.app.cuebook", "Cuebook").items():
        if name in ASYNC_ONLY | BY_HAND:
            continue
        if name in known:
            kind = f"Blocking{known[name][1]}"
            imports.add(f"{PACKAGE}.{name}", kind)
            doc = ast.get_docstring(method.node)
            head = f'    @property\n    def {name}(self) -> {kind}:\n        """{doc}"""\n'
            pieces.append(f"{head}        return {kind}(self._host)")
        else:
            pieces.append(render_method(method, "", imports))
    return (
        f'"""Generated by scripts/blocking.py from `cuebook.app.cuebook.Cuebook`."""\n\n{imports.text()}\n\n\n'
        'class BlockingParts:\n    """Methods and namespaces of a blocking project."""\n\n    _host: Host\n\n'
        + "\n\n".join(pieces)
        + "\n"
    )


def main() -> None:
    """Write all modules that changed."""
    wanted = {f"{name}.py": render_namespace(name, *kind) for name, kind in namespaces().items()}
    wanted |= {"parts.py": render_main(), "__init__.py": '"""Generated by scripts/blocking.py."""\n'}
    if FOLDER.exists() and {each.name for each in FOLDER.glob("*.py")} != wanted.keys():
        shutil.rmtree(FOLDER)
    FOLDER.mkdir(exist_ok=True)
    for name, text in wanted.items():
        path = FOLDER / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
