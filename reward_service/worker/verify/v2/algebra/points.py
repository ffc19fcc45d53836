"""Where expressions are sampled: points that follow from the variables alone, so that no verdict depends on chance.

A point is drawn from a hash of the seed, its number and the variable's name. A function without a known meaning
(f(x), an overline, a derivative) counts as one more variable, named by its structure.
"""

from __future__ import annotations

from fractions import Fraction
from hashlib import blake2b

from reward_service.worker.verify.v2.algebra.expressions import Expr, Sym

# Magnitudes of the real samples: inside and outside the unit interval, both signs, then a mixture of signs.
REAL_RANGES = ((0.2, 0.9, 1), (1.1, 2.9, 1), (3.1, 9.0, 1), (0.2, 0.9, -1), (0.3, 4.5, 0))
# Primes of 120 bits without a pattern, so that nobody writes one of them in an answer by chance; the seed picks two.
PRIMES = (
    2613835212084863004268971068282135609, 1793429910156851588730397282814037563, 2293789365996372287398845293494551293,
    2202757526037000146173766113244055109, 2227037794154715315416260518517496863, 1331239985803354681349533589481369077,
    2525647890496983282694507753096446379, 1641288780629751489282292676006363893, 2533541038230043751831708745538682161,
    1427561258398118673739307757141249001, 2013922496626749531069463238624847071, 1363223371230181764645539885283796451,
)  # fmt: skip


def name_of(node: Expr) -> str:
    """The name under which a variable, or a function without a known meaning, is sampled."""
    return node.name if isinstance(node, Sym) else repr(node)


def hashed(seed: str, point: int, name: str) -> int:
    """128 bits that depend on nothing but the arguments."""
    return int.from_bytes(
        blake2b(f"{seed}\x00{point}\x00{name}".encode("utf-8", "replace"), digest_size=16).digest(), "big"
    )


def real_sample(seed: str, point: int, name: str) -> Fraction:
    """A rational sample in the point's range; its 24 bits keep exact arithmetic short."""
    low, high, sign = REAL_RANGES[point]
    bits = hashed(seed, point, name)
    value = Fraction(low) + Fraction(bits >> 8 & 0xFFFFFF, 0x1000000) * (Fraction(high) - Fraction(low))
    if sign == 0:
        sign = 1 if bits & 1 else -1
    return sign * value


def primes_for(seed: str) -> tuple[int, int]:
    """Two different primes picked by the seed."""
    first = hashed(seed, 0, "prime") % len(PRIMES)
    second = (first + 1 + hashed(seed, 1, "prime") % (len(PRIMES) - 1)) % len(PRIMES)
    return PRIMES[first], PRIMES[second]
