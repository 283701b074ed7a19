"""tools/generate.py: what it writes, what it calls stale, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.generate import GenerateError, discover, main, stale

DOCUMENT = """# By hand

<!-- generated: table -->
old
<!-- /generated: table -->

Also by hand.
"""


def generator(root: Path, name: str, outputs: str) -> None:
    folder = root / "tools" / "generators"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"OUTPUTS = {outputs}\n")


def test_without_generators_all_is_fresh(tmp_path, capsys):
    assert main(["--check"], tmp_path) == 0
    assert capsys.readouterr().out == ""


def test_check_names_the_stale_file_and_writes_nothing(tmp_path, capsys):
    generator(tmp_path, "one.py", "{'out/a.txt': lambda: 'new line'}")
    assert main(["--check"], tmp_path) == 1
    said = capsys.readouterr().out
    assert "stale: out/a.txt" in said
    assert "+new line" in said
    assert "make generate" in said
    assert not (tmp_path / "out").exists()


def test_write_then_check_is_fresh_until_someone_edits(tmp_path, capsys):
    generator(tmp_path, "one.py", "{'out/a.txt': lambda: 'text'}")
    assert main([], tmp_path) == 0
    assert "wrote out/a.txt" in capsys.readouterr().out
    target = tmp_path / "out" / "a.txt"
    assert target.read_text() == "text\n"
    assert main(["--check"], tmp_path) == 0
    assert main([], tmp_path) == 0
    assert capsys.readouterr().out == ""
    target.write_text("text, edited\n")
    assert main(["--check"], tmp_path) == 1


def test_an_empty_file_that_is_missing_is_stale(tmp_path):
    assert stale(tmp_path, {"a.txt": lambda: "\n"}, write=False) != []
    (tmp_path / "a.txt").write_text("\n")
    assert stale(tmp_path, {"a.txt": lambda: "\n"}, write=False) == []


def test_python_is_formatted(tmp_path):
    stale(tmp_path, {"a.py": lambda: "x = {'a':1}"}, write=True)
    assert (tmp_path / "a.py").read_text() == 'x = {"a": 1}\n'


def test_broken_python_is_refused(tmp_path):
    with pytest.raises(GenerateError, match=r"a\.py is no Python"):
        stale(tmp_path, {"a.py": lambda: "def"}, write=True)
    assert not (tmp_path / "a.py").exists()


def test_a_region_is_replaced_and_the_rest_kept(tmp_path):
    path = tmp_path / "x.md"
    path.write_text(DOCUMENT)
    outputs = {"x.md#table": lambda: "new\n"}
    assert [key for key, _ in stale(tmp_path, outputs, write=True)] == ["x.md#table"]
    assert path.read_text() == DOCUMENT.replace("\nold\n", "\n\nnew\n\n")
    assert stale(tmp_path, outputs, write=False) == []


def test_two_regions_of_one_file_do_not_undo_each_other(tmp_path):
    path = tmp_path / "x.md"
    path.write_text(DOCUMENT + DOCUMENT.replace("table", "list"))
    outputs = {"x.md#table": lambda: "first", "x.md#list": lambda: "second"}
    assert len(stale(tmp_path, outputs, write=True)) == 2
    assert stale(tmp_path, outputs, write=False) == []
    assert "first" in path.read_text()
    assert "second" in path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "no markers",
        "<!-- generated: table -->",
        "<!-- /generated: table --> <!-- generated: table -->",
        DOCUMENT + DOCUMENT,
    ],
)
def test_a_region_that_is_not_there_once_is_refused(tmp_path, text):
    if text is not None:
        (tmp_path / "x.md").write_text(text)
    with pytest.raises(GenerateError, match=r"x\.md"):
        stale(tmp_path, {"x.md#table": lambda: "new"}, write=True)


def test_generators_are_found_and_helpers_are_not(tmp_path):
    generator(tmp_path, "one.py", "{'a': str}")
    generator(tmp_path, "two.py", "{'b': str, 'c': str}")
    generator(tmp_path, "_helper.py", "{'d': str}")
    assert sorted(discover(tmp_path / "tools" / "generators")) == ["a", "b", "c"]


def test_two_generators_of_one_file_are_refused(tmp_path, capsys):
    generator(tmp_path, "one.py", "{'a': str}")
    generator(tmp_path, "two.py", "{'a': str}")
    assert main([], tmp_path) == 1
    assert "two.py writes what another generator writes: a" in capsys.readouterr().out


def test_a_generator_without_outputs_is_refused(tmp_path):
    (tmp_path / "one.py").write_text("")
    with pytest.raises(GenerateError, match=r"one\.py has no OUTPUTS"):
        discover(tmp_path)
