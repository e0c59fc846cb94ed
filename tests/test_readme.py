"""README says what is so: its examples run, its output is what is printed; the reference has every option."""

import re
from pathlib import Path
from typing import Any

import main
import pytest

from pytest_queuey.options import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


TEST_EXAMPLES = [block for block in blocks("python") if re.search(r"^(def test_|class Test)", block, re.MULTILINE)]
EXAMPLES = [block for block in blocks("python") if block not in TEST_EXAMPLES]


def test_the_examples_run_one_after_the_other() -> None:
    assert EXAMPLES
    namespace: dict[str, Any] = {}
    for block in EXAMPLES:
        lines_before = README[: README.index(block)].count("\n")
        exec(compile("\n" * lines_before + block, "README.md", "exec"), namespace)  # noqa: S102 -- our own README


@pytest.mark.parametrize("number", range(len(TEST_EXAMPLES)))
def test_the_examples_of_tests_pass(run_pytest: pytest.Pytester, number: int) -> None:
    run_pytest.makepyfile(TEST_EXAMPLES[number])
    outcomes = run_pytest.runpytest_inprocess("-q").parseoutcomes()
    assert outcomes.keys() <= {"passed", "skipped"}
    assert outcomes["passed"] > 0


def test_the_example_prints_what_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    main.main([])
    printed, shown = capsys.readouterr().out.splitlines(), blocks("text")[0].splitlines()
    assert printed[:-1] == shown[:-1]
    seconds = r"75 s of virtual time took \d+\.\d\d s\."
    assert re.fullmatch(seconds, shown[-1])
    assert re.fullmatch(seconds, printed[-1])


def test_the_table_has_every_option_with_its_default() -> None:
    reference = (ROOT / "docs" / "reference" / "plugin.md").read_text()
    rows = re.findall(r"^\| `(--queuey-[a-z-]+)` \| (?:`(.*?)`)? ?\|", reference, flags=re.MULTILINE)
    assert rows == [(option.flag, option.default) for option in OPTIONS]


@pytest.mark.parametrize("page", sorted(path.name for path in ROOT.glob("*.md")))
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []
