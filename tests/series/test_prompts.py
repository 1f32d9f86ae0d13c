"""Prompts files: every row with its line, a bad one told and left out, a file without rows refused in one sentence."""

import json
import tracemalloc

import pytest

from inference.errors import InferenceError
from inference.series.prompts import BLANK, MORE_CELLS, MOST_TOLD, Prompt, Skipped, read_prompts


def read(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_prompts(path)


def test_txt_is_a_prompt_a_line_and_empty_lines_count_as_lines(tmp_path):
    prompts, skipped = read(tmp_path, "a.txt", b"\xef\xbb\xbfone\n\n two \r\n\xff\xfe\nlast")
    assert prompts == [Prompt(1, "one"), Prompt(3, "two"), Prompt(5, "last")]
    assert skipped.rows == [Skipped(4, "not UTF-8 text")]


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
    assert [row.line for row in skipped.rows] == [2, 3, 4, 5, 6, 7]
    assert [row.reason for row in skipped.rows][:2] == ["not JSON", "not a JSON object"]


def test_a_blank_expected_is_no_expectation(tmp_path):
    rows = [
        '{"prompt": "a", "expected": "  "}',
        '{"prompt": "b", "expected": "\\n\\t"}',
        '{"prompt": "c", "expected": 0}',
        '{"prompt": "d", "expected": " x "}',
    ]
    assert [prompt.expected for prompt in read(tmp_path, "a.jsonl", "\n".join(rows))[0]] == [None, None, "0", " x "]
    assert [prompt.expected for prompt in read(tmp_path, "a.csv", "prompt,expected\na,  \nb,x\n")[0]] == [None, "x"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_s_separator_is_the_one_that_its_header_has(tmp_path, separator):
    rows = [["prompt", "expected"], ["menu?", "Yes"], ['"a, b; c\td"', "1,5" if separator != "," else "1;5"], ["alone", ""]]
    written = "\r\n".join(["", separator, *map(separator.join, rows)])
    prompts, skipped = read(tmp_path, "a.csv", "\ufeff" + written + "\r\n")
    assert [(row.line, row.text) for row in prompts] == [(4, "menu?"), (5, "a, b; c\td"), (6, "alone")] and not skipped.count
    assert [row.expected for row in prompts] == ["Yes", rows[2][1], None]


def test_a_quoted_header_shows_its_separator_too(tmp_path):
    assert read(tmp_path, "a.csv", '"expected";"Prompt"\n"x, y";"hello; you"\n')[0] == [Prompt(2, "hello; you", "x, y")]


def test_a_comma_goes_before_other_separators(tmp_path):
    prompts, skipped = read(tmp_path, "a.csv", "prompt,a;prompt\nhello; you,x\n")
    assert prompts == [Prompt(2, "hello; you")] and not skipped.count
    assert read(tmp_path, "a.csv", "prompt\nhello; you\tall\n")[0] == [Prompt(2, "hello; you\tall")]


def test_csv_rows_know_the_line_they_begin_on(tmp_path):
    prompts, skipped = read(tmp_path, "a.csv", 'expected,Prompt\nx,"two\nlines"\n,plain\ny,\n,\nz,"quoted, comma"\n')
    assert prompts == [Prompt(2, "two\nlines", "x"), Prompt(4, "plain"), Prompt(7, "quoted, comma", "z")]
    assert skipped.rows == [Skipped(5, "the prompt is empty"), Skipped(6, BLANK)]


def test_a_blank_row_between_others_is_told_and_those_at_the_end_are_none(tmp_path):
    prompts, skipped = read(tmp_path, "a.csv", "prompt\none\n\n  \ntwo\n\n \n")
    assert prompts == [Prompt(2, "one"), Prompt(5, "two")]
    assert skipped.rows == [Skipped(3, BLANK), Skipped(4, BLANK)]


def test_a_csv_row_with_more_cells_than_the_header_is_told_and_not_cut(tmp_path):
    prompts, skipped = read(tmp_path, "a.csv", "prompt,expected\nhello, good morning, hi\nplain,x\n")
    assert prompts == [Prompt(3, "plain", "x")]
    assert skipped.rows == [Skipped(2, MORE_CELLS)]


def test_a_quote_that_is_never_closed_is_told_where_it_begins(tmp_path):
    prompts, skipped = read(tmp_path, "a.csv", 'prompt\none\n"two\nthree\n')
    assert prompts == [Prompt(2, "one")]
    assert skipped.rows[0].line == 3 and skipped.rows[0].reason.startswith("not csv from here on")


def test_empty_rows_before_the_header_are_no_header(tmp_path):
    prompts, _ = read(tmp_path, "a.csv", "\n,\nprompt\nhello\n")
    assert prompts == [Prompt(4, "hello")]


def test_a_replacement_character_is_text_like_any_other(tmp_path):
    prompts, _ = read(tmp_path, "a.csv", "prompt\nwhat is \ufffd?\n")
    assert prompts == [Prompt(2, "what is \ufffd?")]


def test_half_a_character_is_left_out_wherever_it_stands(tmp_path):
    rows = ['{"prompt": "a\\ud800"}', '{"prompt": "b", "expected": "\\udc00"}', '{"prompt": "c \\ud83d\\ude00"}']
    prompts, skipped = read(tmp_path, "a.jsonl", "\n".join(rows))
    assert prompts == [Prompt(3, "c \U0001f600")]
    assert [(row.line, "half a character" in row.reason) for row in skipped.rows] == [(1, True), (2, True)]


def test_many_bad_lines_are_counted_and_only_the_first_are_kept(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{\n" * 100_000 + b'{"prompt": "a"}')
    tracemalloc.start()
    prompts, skipped = read_prompts(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert prompts == [Prompt(100_001, "a")] and skipped.count == 100_000 and len(skipped.rows) == MOST_TOLD
    assert skipped.words()[-1] == f"And {100_000 - MOST_TOLD} more lines were left out."
    assert peak < 12 * 2**20


def test_a_file_with_more_prompts_than_are_taken_is_refused_at_the_first_too_many(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    assert len(read_prompts(path, most=3)[0]) == 3
    with pytest.raises(InferenceError, match="a.txt has more than 2 prompts. Split it"):
        read_prompts(path, most=2)


def test_a_prompt_that_no_lane_takes_is_left_out_and_does_not_end_the_series_later(tmp_path):
    prompts, skipped = read(tmp_path, "a.txt", "one\n" + "x" * 200_001 + "\nthree\n")
    assert [row.line for row in prompts] == [1, 3] and "longer than 200,000 characters" in skipped.rows[0].reason


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.txt", "\n \n", "no prompt that can be used. Write one prompt a line"),
        ("a.csv", "prompt\n", "that can be used. Write one prompt a row below the header.$"),
        ("a.csv", "\n,\n", "no column `prompt`. Its first line must name a column `prompt`.$"),
        ("a.csv", "prompt\nhello, you\n", f"that can be used. Line 2: {MORE_CELLS}.$"),
        ("a.csv", 'prompt\n"hello\n', r"that can be used. Line 2: not csv from here on \(unexpected end of data\).$"),
        ("a.csv", "question;answer\nhello;x\n", "no column `prompt`. Its first line must name a column `prompt`.$"),
        ("a.jsonl", "", "that can be used. Write one object a line"),
        ("a.csv", "question\nhello\n", "no column `prompt`"),
        ("a.jsonl", "hello", "Line 1: not JSON"),
        ("a.pdf", "x", "not a prompts file"),
    ],
)
def test_a_file_without_rows_is_refused_in_a_sentence(tmp_path, name, data, words):
    with pytest.raises(InferenceError, match=words):
        read(tmp_path, name, data)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_of_another_encoding_is_named_as_that(tmp_path, encoding):
    with pytest.raises(InferenceError, match="a.csv is UTF-16 text. Save it as UTF-8."):
        read(tmp_path, "a.csv", "\ufeffprompt\nhello\n".encode(encoding))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_file_goes_on_after_a_very_long_prompt(tmp_path, kind):
    rows = ["first", "a" * 150_000, "b" * 200_001, "last"]
    lines = {"csv": ["prompt", *rows], "jsonl": ["", *(json.dumps({"prompt": row}) for row in rows)]}[kind]
    prompts, skipped = read(tmp_path, f"a.{kind}", "\n".join(lines))
    assert [prompt.line for prompt in prompts] == [2, 3, 5] and prompts[1].text == rows[1]
    assert skipped.rows == [Skipped(4, "the prompt is longer than 200,000 characters")]


def test_a_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(InferenceError, match="can't be read"):
        read_prompts(tmp_path / "none.txt")
