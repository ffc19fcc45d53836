"""`python -m grpo_client` is `grpo-client`."""

from grpo_client.cli import main

main()
