"""schemathesis makes requests of the OpenAPI document, right and wrong ones, and looks at the answers."""

import importlib.util
import json
import subprocess
import sys

import pytest
from helpers.served import serving

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason="schemathesis is not installed"
)

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
EXAMPLES = 15


def test_no_request_of_the_document_is_a_server_error(folder, tmp_path):
    # A series that is followed: what is asked of one that is not ends with that.
    (tmp_path / "schemathesis.toml").write_text('[parameters]\n"query.series" = ["a"]\n')
    with serving(folder, horizon=0) as client:
        schema = client.get("/openapi.json").json()
        # Events have no end; a request for them is looked at in test_reading_routes.py.
        options = ["--exclude-path", "/events", "--checks", CHECKS, "--max-examples", str(EXAMPLES)]
        options += ["--seed", "1", "--phases", "examples,coverage,fuzzing", "--generation-database", "none"]
        options += ["--request-timeout", "60", "--no-color", "--report", "ndjson", "--report-dir", str(tmp_path)]
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{client.base_url}/openapi.json", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
        health = client.get("/health").json()
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert health["status"] == "ok"
    for path in set(schema["paths"]) - {"/events"}:  # all were asked
        assert path in json.dumps([file.read_text() for file in tmp_path.rglob("*.ndjson")]), path
