"""The server against its own OpenAPI document: a short slice of generated requests, answered as documented."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from conftest import Live, config
from cuebook import Cuebook
from cuebook.server.app import create_app
from cuebook.testing.doubles import ScriptedModel

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


document = create_app(Cuebook.open(config())).openapi_schema.to_schema()
operations = {each.ok().label: each.ok() for each in schemathesis.openapi.from_dict(document).get_all_operations()}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    running = Live(Cuebook.open(config(), model=ScriptedModel(default="Fine.")))
    yield running
    running.stop()


# schemathesis' own pytest fixtures do not work with pytest 9.2; its strategies do.
@pytest.mark.parametrize("label", operations)
def test_the_document_holds(live: Live, label: str) -> None:
    @given(case=operations[label].as_strategy())
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    def hold(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("timeout"), int | float):
            case.body["timeout"] = min(case.body["timeout"], 1)
        case.call_and_validate(base_url=live.url, checks=CHECKS, timeout=20)

    hold()


def test_the_document_names_every_route() -> None:
    app = create_app(Cuebook.open(config()))
    shown = ("/schema", "/page/", "/mcp")  # what /mcp takes and gives it says itself
    served = {route.path for route in app.routes if not route.path.startswith(shown)} - {"/", "/v1/-"}
    assert {path.replace("{", "").replace("}", "") for path in document["paths"]} == {
        path.replace("{", "").replace("}", "").replace(":str", "").replace(":int", "") for path in served
    }
