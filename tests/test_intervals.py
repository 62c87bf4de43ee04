import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from runbook import intervals

values = st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=3, max_size=12).filter(
    lambda xs: max(xs) - min(xs) > 1e-6
)


@given(values)
def test_the_interval_is_the_t_interval(xs):
    found = intervals.mean_interval(xs)
    test = stats.ttest_1samp(xs, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((test.low, test.high), abs=1e-9)


@given(values, st.floats(-0.5, 0.5), st.sampled_from(["two-sided", "less", "greater"]))
def test_p_is_that_of_the_t_test(xs, null, side):
    expected = stats.ttest_1samp(xs, null, alternative=side).pvalue
    assert intervals.p_value(xs, null, side) == pytest.approx(expected, abs=1e-9)


@given(values)
def test_the_interval_excludes_zero_exactly_when_p_is_below_five_percent(xs):
    found, p = intervals.mean_interval(xs), intervals.p_value(xs)
    if abs(p - 0.05) > 1e-9:
        assert (p < 0.05) == (found.low > 0 or found.high < 0)


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_values_get_no_interval_and_a_reason(n):
    found = intervals.mean_interval([0.1, 0.2][:n])
    assert (found.low, found.high, found.sd) == (None, None, None)
    assert "at least 3" in found.no_interval
    assert intervals.p_value([0.1, 0.2][:n]) is None
    assert intervals.equivalence_p([0.1, 0.2][:n], 0.02) is None
    assert intervals.prediction_interval([0.1, 0.2][:n]).low is None


def test_no_value_is_no_estimate():
    with pytest.raises(ValueError, match="at least one"):
        intervals.mean_interval([])


def test_a_known_interval():
    found = intervals.mean_interval([0.10, 0.12, 0.14])
    assert found.mean == pytest.approx(0.12)
    assert found.high - found.mean == pytest.approx(4.302653 * 0.02 / math.sqrt(3), rel=1e-6)


def test_a_new_life_scatters_more_than_the_mean():
    mean, new = intervals.mean_interval([1, 2, 3, 4]), intervals.prediction_interval([1, 2, 3, 4])
    assert (new.high - new.mean) / (mean.high - mean.mean) == pytest.approx(math.sqrt(5))


def test_values_without_scatter():
    assert intervals.p_value([0.0, 0.0, 0.0]) == 1.0
    assert intervals.p_value([0.5, 0.5, 0.5]) == 0.0
    assert intervals.equivalence_p([0.0, 0.0, 0.0], 0.02) == 0.0


def test_equivalence_needs_the_whole_interval_inside_the_bounds():
    near, wide = [0.001, -0.001, 0.0, 0.002], [0.03, -0.03, 0.01, 0.0]
    assert intervals.equivalence_p(near, 0.02) < 0.05
    assert intervals.equivalence_p(wide, 0.02) > 0.05
    assert intervals.equivalence_p([0.049, 0.051, 0.05], 0.02) > 0.95


def test_holm_by_hand():
    assert intervals.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert intervals.holm([0.5, None, 0.6]) == [1.0, None, 1.0]
    assert intervals.holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(ps):
    adjusted = intervals.holm(ps)
    assert all(p <= q <= min(1, p * len(ps)) + 1e-12 for p, q in zip(ps, adjusted, strict=True))
    ranked = sorted(zip(ps, adjusted, strict=True))
    assert [q for _, q in ranked] == sorted(adjusted)


@pytest.mark.parametrize("n", [3, 5, 8, 30])
@pytest.mark.parametrize("effect", [0.0, 0.01, 0.05, 0.5])
def test_power_is_that_of_the_noncentral_t(n, effect):
    critical = stats.t.ppf(0.975, n - 1)
    expected = stats.nct.sf(critical, n - 1, effect * math.sqrt(n) / 0.05)
    assert intervals.power(effect, 0.05, n) == pytest.approx(expected, abs=1e-7)


def test_power_at_the_edges():
    assert intervals.power(0.1, 0.01, 2) == 0.0
    assert intervals.power(0.1, 0.0, 3) == 1.0
    assert intervals.power(0.0, 0.0, 3) == 0.0
    assert intervals.power(1.0, 1e-6, 50) == 1.0


def test_blocks_needed_is_the_least_number():
    needed = intervals.blocks_needed(0.03, 0.025)
    assert intervals.power(0.03, 0.025, needed) >= 0.8 > intervals.power(0.03, 0.025, needed - 1)
    assert intervals.blocks_needed(-0.03, 0.025) == needed
    assert intervals.blocks_needed(0.0001, 0.05) is None
    assert intervals.blocks_needed(0.5, 0.01) == 3


def test_looks_share_what_may_err():
    looks = [3, 5, 8]
    spent = [1 - intervals.look_confidence(looks, n) for n in looks]
    assert spent == pytest.approx([0.05 * 3 / 8, 0.05 * 2 / 8, 0.05 * 3 / 8])
    assert sum(spent) == pytest.approx(0.05)
    assert intervals.look_confidence([], 4) == intervals.look_confidence([4], 4) == 0.95
    assert intervals.look_confidence(looks, 4) == intervals.look_confidence(looks, 5)


@given(values, values)
def test_the_interval_of_two_runs_is_welchs(xs, ys):
    found = intervals.difference_interval(xs, ys)
    test = stats.ttest_ind(ys, xs, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((test.low, test.high), abs=1e-9)


def test_two_runs_of_which_one_has_two_blocks_get_no_interval():
    found = intervals.difference_interval([0.1, 0.2, 0.3], [0.4, 0.5])
    assert (found.mean, found.low, found.n) == (pytest.approx(0.25), None, 2)
