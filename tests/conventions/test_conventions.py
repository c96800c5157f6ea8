"""Tests of source conventions that no linter checks (docs: how the code is organized)."""

import ast
import gc
import importlib
import importlib.metadata
import pkgutil
import re
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import cuebook
from cuebook.storage.database.statements import load_statements

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
MODULES = sorted(SOURCE.rglob("*.py"))
#: The adapters, whose frameworks are not installed here: requirements/integrations has them.
ADAPTERS = SOURCE / "cuebook/integrations"
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_FILE_LINES = 600
MAX_FOLDER_MODULES = 25
MAX_FUNCTION_LINES = 60
CATCHES_EVERYTHING = {
    "src/cuebook/engine/proxy/shadow.py",  # its outermost loop records the error and continues
    "src/cuebook/engine/jobs/job.py",  # its loop logs the error and continues
    "src/cuebook/engine/jobs/worker.py",  # its outermost loop records the error and continues
    "src/cuebook/app/setup/job_queue.py",  # its loop logs the error and continues
    "src/cuebook/storage/database/sqlite_writer.py",  # any error of a request is passed to its caller
}
PURE_PACKAGES = {
    "window",
    "wire",
    "config",
    "errors",
    "languages",
    "memory",
    "prompts",
    "records",
    "signals",
    "validate",
}
OPEN_TO_ENTRY_POINTS = {"app", "config", "errors", "operations", "records", "validate"}
ENTRY_POINTS = {"cli", "server"}

# Assembled from parts, so that this file does not break its own rule.
REGISTRY = re.compile(
    "|".join(
        [
            "index" + "-url",
            '"resolved"' + r":\s*" + '"http',
            "registry" + r"\s*=\s*" + '"?http',
            "pypi" + r"\.org",
            "python" + r"hosted\.org",
            "npm" + r"js\.(org|com)",
            "deb" + r"\.debian\.org",
        ]
    )
)
MACHINE = re.compile(r"(?<![\w.)\]}/-])/(?:" + "work|root" + r")/\w")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=name(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return the nodes of a module whose kind a test asks for."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler
    return [node for node in statements(parsed(path)) if isinstance(node, kinds)]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements and handlers below a node. They are a fifth of all nodes: no expression contains one."""
    for name, value in ast.iter_fields(tree):
        if name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for node in value:
                yield node
                yield from statements(node)


@pytest.fixture(autouse=True, scope="module")
def trees() -> Iterator[None]:
    """Parse all modules once, without collecting garbage meanwhile, and free them in the end."""
    gc.disable()
    for path in MODULES:
        nodes(path)
    gc.enable()
    gc.freeze()
    yield
    parsed.cache_clear()
    nodes.cache_clear()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def is_own(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").split(".")[0] == "cuebook"
    return isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "cuebook" for alias in node.names)


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Return whether an `except` is bare or broad and does not re-raise."""
    if isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None:
        return False
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in caught
    )


def tracked() -> list[Path]:
    # Files about to be committed count too. The checkout may belong to another user than the test process.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git checkout: which files are tracked cannot be told")
    return [ROOT / row for row in listing.split("\0") if row and (ROOT / row).is_file()]


def test_files_are_short() -> None:
    long = {
        name(path): count for path in MODULES if (count := len(path.read_text("utf-8").splitlines())) > MAX_FILE_LINES
    }
    assert not long, f"files over {MAX_FILE_LINES} lines: split each by subject"


def test_folders_are_small() -> None:
    sizes = Counter(path.parent for path in MODULES)
    large = {name(folder): count for folder, count in sizes.items() if count > MAX_FOLDER_MODULES}
    assert not large, f"folders of over {MAX_FOLDER_MODULES} modules: divide each by subject"


def test_functions_are_short() -> None:
    long = [
        f"{name(path)}:{function.lineno} {function.name}: {lines_of(function)} lines"
        for path in MODULES
        for function in functions(path)
        if lines_of(function) > MAX_FUNCTION_LINES
    ]
    assert not long, f"functions over {MAX_FUNCTION_LINES} lines: split each in two"


def test_own_packages_are_imported_at_the_top() -> None:
    hidden = [
        f"{name(path)}:{node.lineno}"
        for path in MODULES
        for function in functions(path)
        for node in statements(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and is_own(node)
    ]
    assert not hidden, "an import of our own inside a function hides a cycle"


def imported(tree: ast.Module) -> Iterator[str]:
    """Return the top-level packages that a module imports, also with `import_module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(arg.value).split(".")[0] for arg in node.args if isinstance(arg, ast.Constant))


def normalized(package: str) -> str:
    """Return a package's name as registries compare it: `json_repair` is `json-repair`."""
    return package.lower().replace("_", "-")


@pytest.mark.slow
def test_every_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [named for group in project["optional-dependencies"].values() for named in group]
    declared = {normalized(re.split(r"[^\w-]", named)[0]) for named in (*project["dependencies"], *extras)}
    packages = importlib.metadata.packages_distributions()
    undeclared = {
        f"{name(path)}: {package}"
        for path in MODULES
        for package in imported(parsed(path))
        if not path.is_relative_to(ADAPTERS)
        and package not in sys.stdlib_module_names
        and package != "cuebook"
        and not {normalized(each) for each in packages.get(package, ())} & declared
    }
    assert not undeclared, "declare imports in pyproject.toml, as a dependency or in an extra"


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("quicktok", "from cuebook.window.tokens import counter; counter('o200k')", "exact-tokens"),
        ("mcp", "from cuebook.server.mcp.speak import new_server; new_server(None)", "mcp"),
    ],
)
@pytest.mark.slow
def test_a_missing_extra_is_named(package: str, code: str, extra: str) -> None:
    """Make the first package of each extra unimportable in a separate process."""
    hidden = f"import sys; sys.modules[{package!r}] = None; {code}"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"Install cuebook[{extra}]" in done.stderr.splitlines()[-1]


def test_nothing_catches_everything() -> None:
    broad = [
        f"{name(path)}:{node.lineno}"
        for path in MODULES
        if name(path) not in CATCHES_EVERYTHING
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
    ]
    assert not broad, "name the caught exceptions"


def test_every_statement_is_used() -> None:
    names = {text for path in MODULES for text in re.findall(r'"(\w+)(?=")', path.read_text("utf-8"))}
    asked = {
        statement for statement in load_statements() if not statement.startswith("delete_")
    }  # used through the name of their table
    assert not asked - names


def test_tests_use_doubles_instead_of_patches() -> None:
    allowed = "setenv|delenv|chdir"  # only the environment of a test may be patched, no code
    patching = re.compile("unittest" + r"(\.|\s+import\s+)" + rf"mock|mocker\.|monkeypatch\.(?!(?:{allowed})\b)\w")
    found = [
        f"{name(path)}:{number}"
        for path in TESTS
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if patching.search(line)
    ]
    assert not found, "use doubles from cuebook.testing"


@pytest.mark.slow
def test_benchmarks_import_names_that_exist() -> None:
    done = subprocess.run(["scripts/bench", "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "gateway" in done.stdout, done.stderr


def test_every_exported_name_exists() -> None:
    modules = [
        cuebook.__name__,
        *(
            found.name
            for found in pkgutil.walk_packages(cuebook.__path__, "cuebook.", onerror=lambda _: None)
            if found.ispkg and not found.name.startswith("cuebook.integrations.")
        ),
    ]
    missing = [
        f"{module}.{exported}"
        for module in modules
        for exported in getattr(importlib.import_module(module), "__all__", ())
        if not hasattr(importlib.import_module(module), exported)
    ]
    assert not missing, "__all__ contains undefined names"


def test_tracked_files_name_no_registry_and_no_machine() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if REGISTRY.search(line) or MACHINE.search(line):
                found.append(f"{name(path)}:{number}: {line.strip()[:120]}")
    assert not found, "committed files contain a registry address or a machine's path"


def test_contracts_name_every_package() -> None:
    """Check that the import contracts list every package."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers, *_, pure, entry_points = contracts
    packages = {package.strip(" ()") for layer in layers["layers"] for package in layer.split("|")}
    packages.remove("__main__")  # not a package: `python -m cuebook`, above all packages
    assert {package.removeprefix("*.") for package in pure["source_modules"]} == PURE_PACKAGES
    assert {package.removeprefix("*.") for package in entry_points["source_modules"]} == ENTRY_POINTS
    assert {
        package.removeprefix("*.") for package in entry_points["forbidden_modules"]
    } == packages - OPEN_TO_ENTRY_POINTS - ENTRY_POINTS


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "example.com"])
def test_network_is_off(host: str) -> None:
    with pytest.raises(RuntimeError, match="loopback only"):
        socket.create_connection((host, 80), timeout=1)


def test_loopback_is_reachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
        pass


async def test_async_tests_run_on_asyncio(anyio_backend_name: str) -> None:
    assert anyio_backend_name == "asyncio"
