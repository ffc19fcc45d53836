"""Versioned rewards for GRPO, served over HTTP: `uvicorn reward_service.app:app`, or `reward-service serve`."""

__version__ = "0.1.0"
