"""Whether parameters fit a reward, in words that its user understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator


def wrong_params(reward_id: str, *, schema: Mapping[str, Any], params: Mapping[str, Any]) -> str | None:
    """What is wrong with parameters by the reward's JSON Schema, without their values; None when they fit."""
    for error in Draft202012Validator(schema).iter_errors(params):
        properties = schema["properties"]
        where = str(error.absolute_path[0]) if error.absolute_path else ""
        what = f"{where} must be {error.validator_value}" if where in properties else "unknown parameter"
        return f"{what}; parameters of {reward_id}: {', '.join(properties) or 'none'}"
    return None
