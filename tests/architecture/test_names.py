"""Names say what a module is about, and lists of names can be searched by eye."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("queuey_rabbitmq", "queuey_fake", "pytest_queuey")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools", "shared"}


def exported(source: str) -> list[str] | None:
    """Return the `__all__` of a module, or None where it has none."""
    if "__all__" not in source:  # most modules need not be parsed
        return None
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {str(path.relative_to(ROOT)): {path.stem.strip("_"), path.parent.name} for path in MODULES}
    assert [path for path, parts in names.items() if parts & NAMES_THAT_SAY_NOTHING] == []


def test_every_module_opens_by_saying_what_it_owns() -> None:
    assert [str(path.relative_to(ROOT)) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_every_list_of_public_names_is_sorted_and_without_doubles() -> None:
    lists = {str(path.relative_to(ROOT)): exported(path.read_text()) for path in MODULES}
    assert [path for path, names in lists.items() if names is not None and names != sorted(set(names))] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
