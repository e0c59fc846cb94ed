"""How a page is read, and that what it shows and what is printed are compared."""

from pathlib import Path

import pytest

from tests.docs.page import blocks, is_printed

PAGE = """
Text.

```python title="module.py"
one = 1
```

<!-- exit 1, needs docker -->
```console
$ first \\
    --option
printed
$ second
```
"""


def test_a_page_is_its_blocks_in_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    written, typed = blocks(page)
    assert (written.title, written.body, written.line) == ("module.py", "one = 1\n", 4)
    assert typed.commands == [("first \\\n    --option", ["printed"]), ("second", [])]
    assert (typed.exit_code, typed.needs) == (1, {"docker"})


def test_a_block_that_there_is_no_way_to_run_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```rust\nfn main() {}\n```\n")
    with pytest.raises(ValueError, match=r"page\.md, line 1: a block of rust without a title"):
        blocks(page)


@pytest.mark.parametrize(
    ("expected", "is_there"),
    [
        (["one", "three"], False),
        (["one", "...", "three"], True),
        (["one", "...", "two"], True),
        (["two in 1... s"], False),
        (["thr..."], True),
        (["hree"], False),
        ([], True),
    ],
)
def test_what_is_shown_has_to_be_printed(expected: list[str], is_there: object) -> None:
    assert is_printed(expected, "one\ntwo\nthree  \n") is is_there
