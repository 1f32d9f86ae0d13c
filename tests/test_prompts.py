"""Prompts files: every row with its line, a bad one told and left out, a file without rows refused in one sentence."""

import pytest

from inference.errors import InferenceError
from inference.prompts import Prompt, Skipped, read_prompts


def read(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_prompts(path)


def test_txt_is_a_prompt_a_line_and_empty_lines_count_as_lines(tmp_path):
    prompts, skipped = read(tmp_path, "a.txt", b"\xef\xbb\xbfone\n\n two \r\n\xff\xfe\nlast")
    assert prompts == [Prompt(1, "one"), Prompt(3, "two"), Prompt(5, "last")]
    assert skipped == [Skipped(4, "not UTF-8 text")]


def test_jsonl_takes_prompt_and_expected_and_tells_bad_lines(tmp_path):
    rows = [
        '{"prompt": "a", "expected": "b"}',
        "{",
        "[1]",
        '{"expected": "b"}',
        '{"prompt": 3}',
        '{"prompt": " "}',
        '{"prompt": "c", "expected": ["x"]}',
        '{"prompt": "d", "expected": 4}',
    ]
    prompts, skipped = read(tmp_path, "a.jsonl", "\n".join(rows))
    assert prompts == [Prompt(1, "a", "b"), Prompt(8, "d", "4")]
    assert [row.line for row in skipped] == [2, 3, 4, 5, 6, 7]
    assert [row.reason for row in skipped][:2] == ["not JSON", "not a JSON object"]


def test_csv_rows_know_the_line_they_begin_on(tmp_path):
    prompts, skipped = read(tmp_path, "a.csv", 'expected,Prompt\nx,"two\nlines"\n,plain\ny,\n,\nz,"quoted, comma"\n')
    assert prompts == [Prompt(2, "two\nlines", "x"), Prompt(4, "plain"), Prompt(7, "quoted, comma", "z")]
    assert skipped == [Skipped(5, "the prompt is empty")]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.txt", "\n \n", "no prompt that can be used"),
        ("a.csv", "question\nhello\n", "no column `prompt`"),
        ("a.jsonl", "hello", "Line 1: not JSON"),
        ("a.pdf", "x", "not a prompts file"),
    ],
)
def test_a_file_without_rows_is_refused_in_a_sentence(tmp_path, name, data, words):
    with pytest.raises(InferenceError, match=words):
        read(tmp_path, name, data)


def test_a_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(InferenceError, match="can't be read"):
        read_prompts(tmp_path / "none.txt")
