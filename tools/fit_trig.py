#!/usr/bin/env python3
"""Fits the polynomials and tables of grapnel/math/trig*.h and prints them as C++ literals.

    tools/fit_trig.py             everything
    tools/fit_trig.py tan atan    those whose name contains one of the words

The method is that of fit_polynomials.py, which does the polynomials. The quotient for tan interpolates at
Chebyshev points.
"""
import sys

import mpmath as mp

from fit_polynomials import fit, f32_f64, literal, solve, to_f32, to_f64


def sin_tables():
    # sin(r) = r + r z P(z) up to a little beyond pi/2: rounding to the nearest multiple of pi is not perfect.
    for label, n, rounding, reach in (("f32", 5, to_f32, 1.003), ("f64", 8, to_f64, 1.0000001)):
        top = (mp.pi / 2 * reach) ** 2
        fit(f"sin: (sin(r) / r - 1) / z in z, {label}", lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, (0, top),
            list(range(n)), rounding, weight=lambda z, y: z / (1 + z * y))


def tan_tables():
    # tan(r) = r (1 + z A(z)) / (1 + z B(z))
    for label, na, nb, rounding, reach in (("f32", 2, 2, to_f32, 1.003), ("f64", 3, 4, to_f64, 1.0000001)):
        quotient(f"tan {label}", lambda z: mp.tan(mp.sqrt(z)) / mp.sqrt(z), (mp.pi / 4 * reach) ** 2, na, nb, rounding)


def quotient(name, f, top, na, nb, rounding):
    """f(z) = (1 + z A(z)) / (1 + z B(z)) on (0, top), with na and nb coefficients."""
    order = [("A", p) for p in range(na)] + [("B", p) for p in range(nb)]
    term = lambda side, p, z: z ** (p + 1) * (1 if side == "A" else -f(z))
    points = [top * (1 - mp.cos(mp.pi * (2 * i + 1) / (2 * len(order)))) / 2 for i in range(len(order))]
    rows = [[term(*t, z) for t in order] for z in points]
    done = [rounding(c) for c in solve(rows, [f(z) - 1 for z in points])]
    a, b = ([c for c, (s, _) in zip(done, order) if s == side] for side in "AB")
    value = lambda z: (1 + z * mp.polyval(a[::-1], z)) / (1 + z * mp.polyval(b[::-1], z))
    worst = max(abs(value(z) / f(z) - 1) for z in mp.linspace(top / 4000, top, 4000))
    print(f"// {name}: error 2^{mp.nstr(mp.log(worst, 2), 4)}")
    for side, c in (("A", a), ("B", b)):
        print(f"   {side}: " + ", ".join(literal(x) for x in c))
    print(flush=True)


def atan_tables():
    # atan(t) = t + t z P(z), 0 <= t <= 1
    f32_f64("atan: (atan(t) / t - 1) / z in z", lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, (0, 1), 9, 20,
            weight=lambda z, y: z / (1 + z * y))
    fit("atan, f64 good for f32 results", lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, (0, 1), list(range(10)),
        to_f64, weight=lambda z, y: z / (1 + z * y))


def asin_tables():
    # asin(s) = s + s z P(z), 0 <= s <= 1/2
    f32_f64("asin: (asin(s) / s - 1) / z in z", lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, (0, 0.25), 5, 12,
            weight=lambda z, y: z / (1 + z * y))


def pi_constants():
    for label, rounding in (("f32", to_f32), ("f64", to_f64)):
        rest, parts = +mp.pi, []
        for _ in range(3):
            parts.append(rounding(rest))
            rest -= parts[-1]
        print(f"// pi {label}: " + ", ".join(literal(c) for c in parts) + f"; 1/pi: {literal(rounding(1 / mp.pi))}")


def nearest_multiple(x, unit):
    return mp.nint(x / unit) * unit


def one_over_pi_tables():
    # Floats: for arguments of exponent e and above, 1/pi less what contributes only even numbers to the product.
    for e in (None, 44, 65, 86, 107):
        t = 1 / mp.pi
        if e is not None:
            unit = mp.ldexp(2, 23 - e)
            t -= nearest_multiple(t, unit)
        hi = to_f64(t)
        print(f"// 1/pi for floats from 2^{e}: {literal(hi)}, {literal(to_f64(t - hi))}")
    # Doubles: row j is for exponent fields 8 (j + 131) to 8 (j + 131) + 7; arguments come scaled to 2^49 .. 2^57.
    rows = []
    for j in range(125):
        t = mp.ldexp(1 / mp.pi, 8 * (j + 131) - 1072)
        t -= nearest_multiple(t, mp.mpf(16))
        words = []
        for unit in (-49, -102, -155):
            words.append(nearest_multiple(t, mp.ldexp(1, unit)))
            t -= words[-1]
        rows.append(words + [to_f64(t)])
    for word in range(4):
        print("    {" + ",\n     ".join(", ".join(literal(r[word]) for r in rows[i:i + 4]) for i in range(0, 125, 4)) + "},")


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for table in (sin_tables, tan_tables, atan_tables, asin_tables, pi_constants, one_over_pi_tables):
        if not wanted or any(word in table.__name__ for word in wanted):
            # The last rows of the table need 1/pi to 1200 bits.
            mp.mp.dps = 420 if table is one_over_pi_tables else 60
            table()
