"""`reward-service serve` and `openapi`: the application, served or described."""

from __future__ import annotations

import argparse
import json
import sys

import uvicorn

from reward_service.aliases import StoreError
from reward_service.commands import Commands
from reward_service.settings import Settings
from reward_service.suites import SuiteError


def add(commands: Commands) -> None:
    """Add `serve` and `openapi`."""
    serve = commands.add_parser(
        "serve",
        help="serve rewards (the same as `uvicorn reward_service.app:app`)",
        epilog=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8000, help="port to listen on (8000)")
    serve.set_defaults(run=_serve)
    commands.add_parser("openapi", help="print the OpenAPI document of the contract").set_defaults(run=_openapi)


def _settings_help() -> str:
    lines = ["settings, as environment variables:"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        lines.append(f"  REWARD_{name.upper():20} {field.description} ({default})")
    return "\n".join(lines)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        from reward_service.app import app  # reads the settings and the suite files: not for the other commands to do
    except (SuiteError, StoreError) as error:
        print(error, file=sys.stderr)
        return 2
    uvicorn.run(app, host=arguments.host, port=arguments.port)
    return 0


def _openapi(arguments: argparse.Namespace) -> int:
    from reward_service.app import app

    print(json.dumps(app.openapi(), indent=2, sort_keys=True))
    return 0
