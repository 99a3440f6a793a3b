#!/usr/bin/env python3
"""Fits the polynomials of grapnel/math/*.h and prints them as C++ literals.

    tools/fit_polynomials.py            all tables
    tools/fit_polynomials.py exp log    those whose name contains one of the words

Each table is the minimax solution of  max |weight(x) (f(x) - sum c_i x^p_i)|  over an interval, found with
Remez's exchange on a fine Chebyshev grid in 60-digit arithmetic. Coefficients are then rounded to the target
format one by one, lowest power first, and the rest refitted after each, so that rounding one is made good by
the others. The printed error is that of the rounded polynomial, as a power of two.
"""
import sys

import mpmath as mp

mp.mp.dps = 60


def to_f32(x):
    # One rounding, straight from the long number.
    m, e = mp.frexp(x)
    return mp.ldexp(mp.nint(m * 2**24), int(e) - 24)


def to_f64(x):
    m, e = mp.frexp(x)
    return mp.ldexp(mp.nint(m * 2**53), int(e) - 53)


def solve(rows, rhs):
    return mp.lu_solve(mp.matrix(rows), mp.matrix(rhs))


def remez(points, target, weight, powers):
    """Minimax coefficients for `powers` over the grid, by exchange; returns them and the largest error."""
    n = len(powers)
    count = len(points)
    # The lowest power becomes part of the weight, whose sign must not change: alternation is counted by sign.
    weight = [abs(w * x ** powers[0]) for x, w in zip(points, weight)]
    basis = [[w * x ** (p - powers[0]) for p in powers] for x, w in zip(points, weight)]
    goal = [w * t / x ** powers[0] for w, t, x in zip(weight, target, points)]
    # Extremes of a Chebyshev polynomial are a good first guess.
    reference = [round((count - 1) * (1 - mp.cos(mp.pi * i / n)) / 2) for i in range(n + 1)]
    for _ in range(60):
        rows = [basis[k] + [mp.mpf(-1) ** i] for i, k in enumerate(reference)]
        solution = solve(rows, [goal[k] for k in reference])
        coefficients, level = list(solution[:n]), abs(solution[n])
        errors = [g - mp.fdot(b, coefficients) for g, b in zip(goal, basis)]
        # One extreme from every run of equal sign.
        extremes = []
        for k, e in enumerate(errors):
            if extremes and (errors[extremes[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[extremes[-1]]):
                    extremes[-1] = k
            else:
                extremes.append(k)
        while len(extremes) > n + 1:
            # Drop the weakest, with a neighbour where needed to keep the alternation.
            size = [abs(errors[k]) for k in extremes]
            weakest = size.index(min(size))
            if weakest in (0, len(size) - 1):
                extremes.pop(weakest)
            elif len(extremes) == n + 2:
                extremes.pop(0 if size[0] < size[-1] else -1)
            else:
                neighbour = weakest - 1 if size[weakest - 1] < size[weakest + 1] else weakest
                del extremes[neighbour:neighbour + 2]
        worst = max(abs(e) for e in errors)
        if len(extremes) < n + 1 or worst < level * (1 + mp.mpf(10) ** -3):
            break
        reference = extremes
    return coefficients, worst


def fit(name, f, interval, powers, rounding, weight=lambda x, y: 1 / y, fixed=(), grid=700):
    """Prints one table. `fixed` gives leading coefficients that are not free; `weight` defaults to relative error."""
    lo, hi = mp.mpf(interval[0]), mp.mpf(interval[1])
    points = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * grid)) for i in range(grid)]
    target = [mp.mpf(f(x)) for x in points]
    weights = [mp.mpf(weight(x, y)) for x, y in zip(points, target)]
    done = [mp.mpf(c) for c in fixed]
    rest = list(target)
    for c, p in zip(done, powers):
        rest = [t - c * x**p for t, x in zip(rest, points)]
    while len(done) < len(powers):
        coefficients, _ = remez(points, rest, weights, sorted(set(powers[len(done):])))
        c = rounding(coefficients[0])
        p = powers[len(done)]
        rest = [t - c * x**p for t, x in zip(rest, points)]
        done.append(c)
    worst = max(abs(w * t) for w, t in zip(weights, rest))
    print(f"// {name}: error 2^{mp.nstr(mp.log(worst, 2), 4)}")
    print("   " + ", ".join(literal(c) for c in done) + "\n", flush=True)


def literal(c):
    return float(c).hex() if c != 0 else "0.0"


def f32_f64(name, f, interval, n32, n64, step=1, start=0, **options):
    """The same function for both types: n coefficients of x^start, x^(start + step), ..."""
    for label, n, rounding in (("f32", n32, to_f32), ("f64", n64, to_f64)):
        if n:
            fit(f"{name} {label}", f, interval, [start + step * i for i in range(n)], rounding, **options)


def exp_tables():
    # exp(r) = 1 + r + r^2 q(r). Floats have a second, longer table that is accurate relative to exp(r) - 1.
    half = mp.log(2) / 2 * mp.mpf("1.0001")
    f32_f64("exp: (exp(r) - 1 - r) / r^2 in r", lambda r: (mp.expm1(r) - r) / r**2, (-half, half), 5, 0,
            weight=lambda r, y: r**2)
    f32_f64("expm1: (exp(r) - 1 - r) / r^2 in r", lambda r: (mp.expm1(r) - r) / r**2, (-half, half), 6, 10,
            weight=lambda r, y: r**2 / mp.expm1(r))
    fit("exp, f64 good for f32 results", lambda r: (mp.expm1(r) - r) / r**2, (-half, half), list(range(6)), to_f64,
        weight=lambda r, y: r**2)
    # 2^r = 1 + r q(r)
    f32_f64("exp2: (2^r - 1) / r in r", lambda r: mp.expm1(r * mp.log(2)) / r, (-0.50001, 0.50001), 6, 11,
            weight=lambda r, y: r / 2**r)
    fit("exp2, f64 good for f32 results", lambda r: mp.expm1(r * mp.log(2)) / r, (-0.50001, 0.50001), list(range(6)),
        to_f64, weight=lambda r, y: r / 2**r)
    # cosh(r) = 1 + z c(z) and sinh(r) = r + r z s(z), z = r^2
    f32_f64("cosh: (cosh(r) - 1) / z in z", lambda z: (mp.cosh(mp.sqrt(z)) - 1) / z, (0, half**2), 3, 5,
            weight=lambda z, y: z)
    f32_f64("sinh: (sinh(r) - r) / (r z) in z", lambda z: (mp.sinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, (0, half**2), 3, 5,
            weight=lambda z, y: z)


def log_tables():
    # For floats straight in f = m - 1, with m between sqrt(1/2) and sqrt(2).
    lo, hi = mp.sqrt(mp.mpf("0.5")) - 1, mp.sqrt(2) - 1
    for name, base in (("log", mp.e), ("log2", mp.mpf(2)), ("log10", mp.mpf(10))):
        scale = 1 / mp.log(base)
        head = to_f32(scale)
        # log(1 + f) = head f + f (tail + f P(f)), where head + tail is log(e) in the base.
        tail = to_f32(scale - head)
        fit(f"{name} f32 (head {literal(head)}, tail {literal(tail)})",
            lambda f: (mp.log1p(f) * scale - f * (head + tail)) / f**2, (lo, hi), list(range(9)), to_f32,
            weight=lambda f, y: f**2 / (mp.log1p(f) * scale))
    # For doubles in s = f / (2 + f): log(1 + f) = 2 s + s z R(z), z = s^2.
    top = (hi / (2 + hi)) ** 2 * mp.mpf("1.0001")
    series = lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z)
    fit("log f64: (log((1 + s) / (1 - s)) / s - 2) / z in z", lambda z: (series(z) - 2) / z, (0, top), list(range(7)),
        to_f64, weight=lambda z, y: z)
    # For pow in base 2 with the first two coefficients c1, c3 as pairs of doubles.
    scale = 1 / mp.log(2)
    for name, c in (("c1", 2 * scale), ("c3", 2 * scale / 3)):
        print(f"// pow f64 {name}: {literal(to_f64(c))} + {literal(to_f64(c - to_f64(c)))}")
    fit("pow f64: (log2((1 + s) / (1 - s)) / s - c1 - c3 z) / z^2 in z",
        lambda z: (series(z) * scale - 2 * scale - 2 * scale / 3 * z) / z**2, (0, top), list(range(8)), to_f64,
        weight=lambda z, y: z**2)
    fit("pow f32 in f64: log2((1 + s) / (1 - s)) / s in z", lambda z: series(z) * scale, (0, top), list(range(5)), to_f64)


def erf_tables():
    # Near zero: erf(x) = x + x p(z), z = x^2.
    f32_f64("erf: erf(x) / x - 1 in z, |x| < 1", lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, (0, 1), 7, 12,
            weight=lambda z, y: 1 / (1 + y))
    # Elsewhere: erf(t) = 1 - exp(-g(t)).
    for label, top, n, rounding in (("f32", 4, 7, to_f32), ("f64", 6, 18, to_f64)):
        fit(f"erf: -log(erfc(t)) in t, t from 1 to {top}, {label}", lambda t: -mp.log(mp.erfc(t)), (1, top),
            list(range(n)), rounding, weight=lambda t, y: mp.erfc(t))
    # erfc(t) = exp(-t^2) P(u) / (t + 3), u = (t - 3) / (t + 3); for doubles the constant term comes in two parts.
    for label, top, powers in (("f64 good for f32 results", 10.2, range(11)), ("f64", 27.3, [0, *range(23)])):
        fit(f"erfc: (t + 3) exp(t^2) erfc(t) in u, {label}",
            lambda u: (lambda t: (t + 3) * mp.exp(t * t) * mp.erfc(t))(3 * (1 + u) / (1 - u)), (-1, (top - 3) / (top + 3)),
            list(powers), to_f64)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for table in (exp_tables, log_tables, erf_tables):
        if not wanted or any(word in table.__name__ for word in wanted):
            table()
