"""A GRPO trainer that is told its rewards by a service: `grpo-client train --reward-url URL --suite NAME@VERSION`."""

__version__ = "0.1.0"
