"""Hallmark's own verification engine (`math.equal@2`): what did a completion commit to, and is it equal to the gold.

A folder a step: `find` the answer; `read` it to an expression (`algebra`); what that may `mean`; `decide` by kind, with
exact numbers, residues modulo primes and arbitrary precision as arithmetic. `50%`, for one: cut in `read/tokens`, read
in `read/terms`, set apart in `mean/meaning`, allowed to be 0.5 in `decide/values`.
No text is ever evaluated as code, and what cannot be read to its end is never equal to anything.
"""

from __future__ import annotations

from reward_service.worker.catalogue import Lock
from reward_service.worker.verify.v2.decide.verdict import Gold, equal, read_gold
from reward_service.worker.verify.v2.find.extraction import extract

# All of its arithmetic that is not Python's own.
MPMATH_1_3 = Lock("mpmath-1.3.0", {"mpmath": "1.3.0"})

__all__ = ["MPMATH_1_3", "Gold", "equal", "extract", "read_gold"]
