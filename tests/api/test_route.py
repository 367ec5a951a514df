"""All forms of the same path get the same response."""

from __future__ import annotations

import pytest
from fastapi import Depends, Request, Response

from app.api.http.request_route import RequestRoute
from tests.api.server_process import ServerProcess

BODY = {"text": "Anna sees the river.", "source": "en", "target": "de"}


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/translate?x=1", "/v1/%74ranslate"])
def test_a_path_is_known_however_it_is_written(server: ServerProcess, path: str) -> None:
    counter = 'transduce_http_requests_total{code="200",method="POST",route="/v1/translate"}'
    before = server.metric(counter)
    with server.client() as client:
        answer = client.post(path, json=BODY)
    assert answer.status_code == 200
    assert len(answer.json()["translations"]) == 1
    assert server.metric(counter) == before + 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/translate", 405),
        ("PUT", "/v1/translate", 405),
        ("POST", "/v1/translate/", 404),
        ("POST", "/v1/models", 405),
        ("DELETE", "/livez", 405),
    ],
)
def test_an_unknown_path_or_method_is_refused_by_the_router(
    server: ServerProcess, method: str, path: str, status: int
) -> None:
    with server.client() as client:
        answer = client.request(method, path)
        assert answer.status_code == status
        assert ("allow" in answer.headers) == (status == 405)
        assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]


def test_the_openapi_document_describes_the_routes(server: ServerProcess) -> None:
    with server.client() as client:
        described = client.get("/openapi.json").json()["paths"]
    assert {"/v1/translate", "/v1/score", "/v1/detect", "/v1/models", "/livez"} <= described.keys()
    assert "requestBody" in described["/v1/translate"]["post"]


def test_a_route_has_an_endpoint_that_takes_the_request_only() -> None:
    async def with_parameter(request: Request, name: str) -> Response:
        return Response(name)

    async def plain(request: Request) -> Response:
        return Response()

    RequestRoute("/x", plain)
    with pytest.raises(TypeError, match="the endpoint of /x must have one parameter"):
        RequestRoute("/x", with_parameter)
    with pytest.raises(TypeError, match="no dependencies"):
        RequestRoute("/x", plain, dependencies=[Depends(plain)])
