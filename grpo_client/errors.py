"""What can go wrong, as one tree. Each error carries the exit code of the command line."""

from __future__ import annotations


class HallmarkError(Exception):
    """Anything that ends a run with a message and no traceback."""

    exit_code = 1


class ConfigError(HallmarkError, ValueError):
    """The configuration, the model or the data cannot be used: nothing has been trained."""

    exit_code = 2


class RewardServiceError(HallmarkError):
    """The reward service cannot be reached, refuses, or breaks its contract."""

    exit_code = 3


class NotFiniteError(HallmarkError):
    """Loss or gradient were not finite too many times in a row."""

    exit_code = 4


class BrokenModelError(NotFiniteError):
    """The model's own logits are not finite: there is nothing to save."""


class NothingLearntError(HallmarkError):
    """No step since the start had anything to learn from."""

    exit_code = 6


class StorageError(HallmarkError):
    """The output folder cannot be written to, a full disk for one. What was whole before still is."""

    exit_code = 5


class InterruptedRun(HallmarkError):
    """SIGINT or SIGTERM: the step was finished and the model saved."""

    exit_code = 130
