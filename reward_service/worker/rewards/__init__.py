"""The one list of what is served."""

from reward_service.worker.catalogue import Catalogue
from reward_service.worker.rewards import math, r1, simple_grpo

CATALOGUE = Catalogue(
    [
        r1.accuracy_v1,
        r1.int_v1,
        r1.soft_format_v1,
        r1.strict_format_v1,
        r1.count_xml_v1,
        simple_grpo.correct_v1,
        simple_grpo.format_v1,
        math.equal_v1,
    ]
)
