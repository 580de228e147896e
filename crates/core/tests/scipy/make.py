"""Writes expected.json: what NumPy and SciPy say of 50 data sets, for tests/scipy.rs to agree with.

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6 scipy==1.17.1
    venv/bin/python crates/core/tests/scipy/make.py

Nothing here shares a line with the code under test. The Bayes factor of the confidence sequence is
integrated numerically from its definition (the noncentral t averaged over the prior), not taken from
the closed form.
"""

import json
import pathlib

import numpy as np
import scipy
from scipy import integrate, optimize, stats

ALPHA = 0.05
RESAMPLES = 20_000
PRIOR_VARIANCE = 1.0


def samples(rng):
    """50 pairs of samples, each with its name."""
    size = lambda: int(rng.integers(10, 31))
    for i in range(10):
        yield f"normal {i}", rng.normal(10, 1, size()), rng.normal(10 + 0.2 * i, 1 + i / 5, size())
    for i in range(10):
        yield f"log-normal {i}", rng.lognormal(0, 0.3, size()), rng.lognormal(i / 20, 0.5, size())
    for i in range(10):
        slow = lambda n: np.where(rng.random(n) < 0.2, 1.5, 1.0) * rng.normal(1, 0.02, n)
        yield f"bimodal {i}", slow(size()), slow(size()) * (1 + i / 50)
    for i in range(10):
        whole = lambda n, top: rng.integers(0, top, n).astype(float)
        yield f"tied {i}", whole(size(), 4 + i), whole(4 + i, 5 + i)
    for i in range(5):
        yield f"tiny {i}", rng.normal(0, 1, 2 + i), rng.normal(1, 1, 2 + (3 * i) % 7)
    for i in range(5):
        yield f"offset {i}", rng.normal(1e5, 1e-1, size()), rng.normal(1e5, 2e-1, 6 + i)


def described(values):
    return {
        "values": values.tolist(),
        "mean": np.mean(values),
        "sd": np.std(values, ddof=1),
        "median": np.median(values),
        "mad": stats.median_abs_deviation(values),
    }


def pair(name, a, b):
    welch = stats.ttest_ind(a, b, equal_var=False)
    ci = welch.confidence_interval(1 - ALPHA)
    ranks = stats.mannwhitneyu(a, b)
    return {
        "name": name,
        "a": described(a),
        "b": described(b),
        "welch": {"t": welch.statistic, "df": welch.df, "p": welch.pvalue, "ci": [ci.low, ci.high]},
        "mann_whitney": {"u": ranks.statistic, "p": ranks.pvalue},
    }


def ratio_of_means(a, b, axis):
    return np.mean(a, axis=axis) / np.mean(b, axis=axis)


def bootstrap(name, a, b, rng):
    found = {"name": name}
    for method in ["BCa", "percentile"]:
        result = stats.bootstrap((a, b), ratio_of_means, n_resamples=RESAMPLES, method=method,
                                 confidence_level=1 - ALPHA, rng=rng, batch=1000)
        found[method] = list(result.confidence_interval)
        found["error"] = float(result.standard_error)
    return found


def bayes_factor(n, t):
    """The density of t, averaged over delta ~ N(0, PRIOR_VARIANCE), to its density at delta = 0."""
    nu, spread = n - 1, np.sqrt(PRIOR_VARIANCE)
    at = lambda delta: stats.nct.pdf(t, nu, np.sqrt(n) * delta) * stats.norm.pdf(delta, 0, spread)
    peak = t / np.sqrt(n)
    total = integrate.quad(at, -12, 12, points=sorted({0.0, peak, peak / 2}), limit=500,
                           epsabs=0, epsrel=1e-10)[0]
    return total / stats.t.pdf(t, nu)


def reach(n, alpha):
    excess = lambda t: np.log(bayes_factor(n, t) * alpha)
    t = optimize.brentq(excess, 0.5, 40, xtol=1e-10)
    return {"n": n, "alpha": alpha, "reach": t / np.sqrt(n)}


def main():
    rng = np.random.default_rng(20_240_611)
    sets = list(samples(rng))
    assert len(sets) == 50
    resampled = [s for s in sets if len(s[1]) >= 10 and len(s[2]) >= 10 and s[2].mean() > 0][::4]
    expected = {
        "made_with": f"numpy {np.__version__}, scipy {scipy.__version__}",
        "alpha": ALPHA,
        "resamples": RESAMPLES,
        "pairs": [pair(*s) for s in sets],
        "bootstrap": [bootstrap(*s, rng) for s in resampled],
        "reach": [reach(n, alpha) for alpha in [0.05, 0.05 / 6, 0.05 / 28]
                  for n in [8, 10, 15, 20, 30] if not (n == 8 and alpha < 0.005)] + [reach(6, 0.05)],
    }
    target = pathlib.Path(__file__).with_name("expected.json")
    target.write_text(json.dumps(expected, indent=1) + "\n")


main()
