"""Figures follow from stamps alone, by the definitions of docs/figures.md."""

import pytest

from inference.timing import Stopwatch, Timings, overlap_s


def watch_with(times: list[float]) -> Stopwatch:
    clock = iter([100.0, *(100.0 + t for t in times)])
    watch = Stopwatch(clock=lambda: next(clock))
    watch.start()
    for _ in times:
        watch.token()
    return watch


def test_decode_rate_leaves_out_the_first_token_and_the_prompt():
    times = [2.0 + i * 0.1 for i in range(30)]
    timings = watch_with(times).timings(prompt_tokens=40)
    assert timings.ttft_s == pytest.approx(2.0)
    assert timings.decode_tps == pytest.approx(10.0)
    assert timings.tpot_s == pytest.approx(0.1)
    assert timings.prefill_tps == pytest.approx(20.0)
    assert timings.total_s == pytest.approx(4.9)
    assert len(timings.token_times_s) == 30


def test_one_token_has_no_rate_and_no_tokens_have_no_figures():
    one = watch_with([0.5]).timings(4)
    assert one.decode_tps is None and one.tpot_s is None and one.total_s == pytest.approx(0.5) and one.prefill_tps == pytest.approx(8.0)
    assert watch_with([]).timings(4) == Timings()


def test_without_a_prompt_or_a_time_there_is_no_rate_of_reading_it():
    assert watch_with([0.5]).timings(0).prefill_tps is None and watch_with([0.0]).timings(4).prefill_tps is None


def test_each_token_is_told_with_its_time_since_the_start():
    clock = iter([100.0, 100.5, 101.25])
    watch = Stopwatch(clock=lambda: next(clock))
    assert watch.start() == 100.0 and [watch.token(), watch.token()] == [0.5, 1.25]
    assert watch.timings(1).token_times_s == (0.5, 1.25)


def test_a_token_before_the_start_is_a_programming_error():
    with pytest.raises(RuntimeError, match="before start"):
        Stopwatch().token()


@pytest.mark.parametrize(
    ("span", "others", "expected"),
    [((0, 10), [], 0), ((0, 10), [(2, 4), (3, 5)], 3), ((0, 10), [(-5, 1), (9, 20)], 2), ((0, 1), [(2, 3)], 0)],
)
def test_overlap_counts_each_second_once(span, others, expected):
    assert overlap_s(span, others) == pytest.approx(expected)
