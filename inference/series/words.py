"""A text as words, numbers and signs, for holding an answer against an expected one word by word.

In: any text. Out: its parts, case, white space and ways of writing one sign evened out. What is ignored stands in docs/quality.md.
"""

from __future__ import annotations

import functools
import re
import unicodedata

# One letter a character stands for what it is; the patterns below are over these letters.
_LETTER, _MARK, _UNSPACED, _DIGIT, _BLANK, _SIGN = "amc0 #"
_OTHERS = {".": ".", ",": ":", ":": ":", "/": ":", "٫": ":", "٬": ":", "'": "'", "-": "-"}
_PARTS = re.compile(
    r"(?:(?<![amc0.])-)?(?:(?<![amc0.])\.)?0+(?:[.:']0+)*"  # a number: "-5", ".5", "1,200.50", "12:30", "1/2"
    r"|[am]+(?:'[am]+)*"  # a word: "don't"
    r"|cm*"  # a letter of a script that puts no blanks between words
    r"|[^ ]"  # any other sign, by itself
)
# scripts without blanks between words, and Korean, whose particles stand on the word
_NO_BLANKS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "BOPOMOFO", "YI ", "IDEOGRAPHIC", "HALFWIDTH")
_CURLY = {"'": "\u2018\u2019\u02bc", '"': "\u201c\u201d", "-": "\u2010\u2011\u2012\u2013\u2014\u2212"}
_FULL_WIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_SAME_SIGN = _FULL_WIDTH | {ord(curly): plain for plain, many in _CURLY.items() for curly in many}
_EMPHASIS = frozenset("*_`")  # Markdown's
_ENDS = frozenset(".,;:!?…\"'()[]{}«»。、「」『』،؛؟।")


def parts(text: str) -> list[str]:
    """The words, numbers and signs of `text`, in lower case; a number keeps its sign and what stands between its digits."""
    even = unicodedata.normalize("NFC", text.translate(_SAME_SIGN).casefold())
    even = "".join(character for character in even if unicodedata.category(character) != "Cf")  # joiners, direction marks
    kinds = "".join(map(_kind, even))
    found = (even[match.start() : match.end()] for match in _PARTS.finditer(kinds))
    return [part for part in found if part not in _EMPHASIS]


def holds(answer: str, expected: str) -> bool:
    """Whether the parts of `expected`, less punctuation at its ends, stand in `answer` one after the other."""
    given, wanted = parts(answer), _bare(parts(expected))
    if not wanted:  # nothing but signs that are ignored
        return expected.strip() in answer
    return any(given[at : at + len(wanted)] == wanted for at in range(len(given) - len(wanted) + 1))


def _bare(found: list[str]) -> list[str]:
    """`found` without punctuation at its ends; all of it where there is nothing else."""
    inner = [at for at, part in enumerate(found) if part not in _ENDS]
    return found[inner[0] : inner[-1] + 1] if inner else found


@functools.cache
def _kind(character: str) -> str:
    if character.isspace():
        return _BLANK
    category = unicodedata.category(character)
    if category == "Nd":
        return _DIGIT
    if category[0] == "M":
        return _MARK
    if category[0] == "L":
        return _UNSPACED if unicodedata.name(character, "").startswith(_NO_BLANKS) else _LETTER
    return _OTHERS.get(character, _SIGN)
