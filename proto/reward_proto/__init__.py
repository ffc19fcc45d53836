"""The wire contract between the reward service and whoever calls it.

`reward_proto.v1` holds the models and paths of contract version 1. This package depends on pydantic alone.
"""
