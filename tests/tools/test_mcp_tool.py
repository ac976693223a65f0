from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bridges_support import require

import gem_core
from gem_core.tools import mcp_connection
from gem_core.tools.mcp_config import read_config
from gem_core.tools.mcp_tool import MCPTool, typed_arguments
from gem_core.tools.tool_env_wrapper import ToolEnvWrapper

SERVER = str(Path(__file__).parent / "mcp_server_for_tests.py")
STDIO = {"command": sys.executable, "args": [SERVER, "stdio"], "env": {"SECRET_FOR_SERVER": "s3"}}


@pytest.fixture(scope="module")
def tool() -> Iterator[MCPTool]:
    running = MCPTool(STDIO, execution_timeout=20)
    yield running
    running.close()


def call(tool: MCPTool, name: str, **arguments: Any) -> tuple[bool, str]:
    """``(has_error, text)``."""
    action = f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    valid, has_error, observation, parsed = tool.execute_action(f"Let me see.\n{action}\nmore")
    assert valid
    assert parsed == f"Let me see.\n{action}"
    text = observation.removeprefix("\n<tool_response>\n").removesuffix("\n</tool_response>\n")
    assert text != observation
    return has_error, text


def test_tools_are_listed_and_called(tool: MCPTool) -> None:
    assert {"add", "fail", "wait"} <= set(tool.call_names)
    text = tool.instruction_string()
    assert "Adds two whole numbers." in text
    assert '"required": ["a", "b"]' in text
    assert call(tool, "add", a=2, b=40) == (False, "42")
    assert call(tool, "whoami")[1].endswith(" s3")


@pytest.mark.parametrize(
    "action",
    [
        '<tool_call><tool_name>add</tool_name><arguments>{"a": 1, "b": 2}</arguments></tool_call>',
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n"
        "</tool_call>",
        '<tool_call>{"name": "add", "arguments": {"a": "1", "b": 2}}',
    ],
)
def test_other_forms_of_a_call(tool: MCPTool, action: str) -> None:
    assert tool.execute_action(action)[:3] == (True, False, "\n<tool_response>\n3\n</tool_response>\n")


def test_failures_are_observations(tool: MCPTool) -> None:
    has_error, text = call(tool, "fail", reason="no")
    assert has_error
    assert text.startswith("[Tool execution error: ")
    has_error, text = call(tool, "add", a="one")
    assert has_error
    assert "integer" in text
    valid, has_error, text, _ = tool.execute_action('<tool_call>{"name": "nope"}</tool_call>')
    assert (valid, has_error) == (False, True)
    assert "Available tools: add, " in text
    valid, has_error, text, _ = tool.execute_action('<tool_call>{"name": oops}</tool_call>')
    assert (valid, has_error) == (True, True)
    assert "malformed JSON" in text
    assert tool.execute_action("no call") == (False, True, "", "")


def test_a_slow_tool_runs_out_of_time_alone(tool: MCPTool) -> None:
    tool.execution_timeout = 0.5
    try:
        start = time.perf_counter()
        slow = threading.Thread(target=call, args=(tool, "wait"), kwargs={"seconds": 5})
        slow.start()
        assert call(tool, "add", a=1, b=1) == (False, "2")  # not held up
        has_error, text = call(tool, "wait", seconds=5)
        slow.join()
        assert (has_error, text) == (True, "[Tool execution failed: no answer within 0.5 s]")
        assert time.perf_counter() - start < 4
    finally:
        tool.execution_timeout = 20
    before = call(tool, "count")[1]
    assert int(call(tool, "count")[1]) == int(before) + 1  # the same process went on


def test_many_threads_share_one_connection(tool: MCPTool) -> None:
    with ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda n: call(tool, "add", a=n, b=n)[1], range(40)))
    assert sums == [str(2 * n) for n in range(40)]


def test_a_server_that_dies_is_started_again(tool: MCPTool) -> None:
    pid = call(tool, "whoami")[1]
    tool.max_retries = 1
    try:
        has_error, text = call(tool, "die")
    finally:
        tool.max_retries = 3
    assert has_error
    assert "Connection closed" in text
    has_error, after = call(tool, "whoami")
    assert not has_error
    assert after != pid


def test_a_server_that_hangs_is_replaced(tool: MCPTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "_PROBE_S", 0.3)
    pid = call(tool, "whoami")[1]
    tool.execution_timeout = 0.5
    try:
        assert call(tool, "hang", seconds=30)[0] is True
    finally:
        tool.execution_timeout = 20
    has_error, after = call(tool, "whoami")
    assert not has_error
    assert after != pid


def test_an_environment_with_mcp_tools(tool: MCPTool) -> None:
    env = ToolEnvWrapper(
        gem_core.make("game:GuessTheNumber-v0"),
        tools=[tool],
        tool_reward=0.1,
        max_calls_per_turn=2,
        max_output_chars=99,
    )
    assert "<tools>" in env.reset(seed=0)[0]
    one = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    observation, reward, *_, info = env.step(f"{one}\n{one}")
    assert observation.count("<tool_response>\n3\n</tool_response>") == 2
    assert reward == pytest.approx(0.2)
    assert info["tool_success_counter"] == 2
    assert "characters left out" in env.step('<tool_call>{"name": "flood", "arguments": {"n": 5000}}</tool_call>')[0]
    assert "no tool is called 'nope'" in env.step('<tool_call>{"name": "nope"}</tool_call>')[0]
    tool.attach()  # as an owner beside the wrapper, so that close() below leaves the server to the other tests
    env.close()
    assert call(tool, "add", a=1, b=1) == (False, "2")


@pytest.fixture(scope="module")
def http_url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = start_http(port)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def start_http(port: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, SERVER, "http", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise AssertionError("the HTTP server did not start")


def test_http_and_stdio_servers_side_by_side(http_url: str) -> None:
    tool = MCPTool({"mcpServers": {"web": {"url": http_url}, "local": STDIO}})
    try:
        assert {"web_add", "local_add"} <= set(tool.call_names)
        assert call(tool, "web_add", a=1, b=1) == (False, "2")
        assert call(tool, "local_add", a=1, b=2) == (False, "3")
        assert call(tool, "web_whoami")[1].endswith(" none")
        assert tool.execute_action('<tool_call>{"name": "add"}</tool_call>')[0] is False  # which one?
        copy = pickle.loads(pickle.dumps(tool))
        copy.servers = copy.servers[:1]
        assert call(copy, "add", a=5, b=5) == (False, "10")
        copy.close()
    finally:
        tool.close()


def test_an_http_server_that_comes_back_is_found_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = start_http(port)
    tool = MCPTool(f"http://127.0.0.1:{port}/mcp", execution_timeout=10, delay_between_retries=0.05)
    try:
        assert call(tool, "add", a=1, b=1) == (False, "2")
        process.kill()
        process.wait()
        has_error, text = call(tool, "add", a=1, b=1)
        assert has_error
        assert "[Tool execution failed: " in text
        process = start_http(port)
        assert call(tool, "add", a=1, b=3) == (False, "4")
    finally:
        tool.close()
        process.kill()
        process.wait()


def test_closing_ends_the_server_and_use_opens_it_again() -> None:
    tool = MCPTool(STDIO, validate_on_init=False)
    pid = int(call(tool, "whoami")[1].split()[0])
    tool.close()
    tool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert call(tool, "add", a=1, b=1) == (False, "2")
    tool.close()


def test_a_real_server_from_a_package() -> None:
    require("mcp_server_time")
    tool = MCPTool.from_local_command({"command": sys.executable, "args": ["-m", "mcp_server_time"]}, name="time")
    try:
        assert set(tool.call_names) == {"get_current_time", "convert_time"}
        has_error, text = call(tool, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
        assert not has_error
        assert json.loads(text)["target"]["datetime"].endswith("T21:00:00+09:00")
        has_error, text = call(tool, "get_current_time", timezone="Mars/Base")
        assert has_error
        assert "Mars/Base" in text
    finally:
        tool.close()


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"command": "/does/not/exist"}, "/does/not/exist"),
        ({"command": sys.executable, "args": ["-c", "raise SystemExit('no such flag')"]}, "no such flag"),
        ("http://127.0.0.1:9/mcp", "127.0.0.1:9"),
        (
            {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)", "gem-test-sleeper"]},
            "within 1 s",
        ),
    ],
)
def test_a_server_that_cannot_be_reached_is_named(config: Any, word: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match=word):
        MCPTool(config, connect_timeout=20 if "sleeper" not in str(config) else 1)
    assert subprocess.run(["pgrep", "-f", "gem-test-sleeper"], capture_output=True).stdout == b""
    assert time.perf_counter() - start < 12


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ("example.com", "example.com"),
        ({"mcpServers": {}}, "at least one"),
        ({"mcpServers": {"a": "x"}}, "'a'"),
        ({"mcpServers": {"a": {"comand": "x"}}}, "comand"),
        ({"mcpServers": {"a": {"command": "x", "argz": []}}}, "did you mean 'args'"),
        ({"command": "x", "args": "-m y"}, "list of strings"),
        ({"url": "http://x", "transport": "carrier-pigeon"}, "carrier-pigeon"),
        ({"transport": "stdio"}, "'command'"),
        (7, "int"),
    ],
)
def test_a_bad_configuration_is_named(config: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        read_config(config)


def test_configurations_are_read(tmp_path: Path) -> None:
    (server,) = read_config("https://x.org/mcp", auth="t", headers={"X": "1"})
    assert (server.transport, server.headers) == ("http", {"X": "1", "Authorization": "Bearer t"})
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": STDIO, "b": {"type": "sse", "url": "http://x/sse"}}}))
    tool = MCPTool.from_config_file(path, validate_on_init=False)
    assert [(s.name, s.transport) for s in tool.servers] == [("a", "stdio"), ("b", "sse")]
    with pytest.raises(ValueError, match="missing"):
        MCPTool.from_config_file(tmp_path / "missing.json")


def test_text_arguments_take_the_type_that_the_schema_asks_for() -> None:
    schema = {
        "properties": {k: {"type": t} for k, t in {"i": "integer", "b": "boolean", "l": "array", "s": "string"}.items()}
    }
    given = {"i": "3", "b": "True", "l": "[1]", "s": "4", "x": "5"}
    assert typed_arguments(given, schema) == {"i": 3, "b": True, "l": [1], "s": "4", "x": "5"}
    assert typed_arguments({"i": "three"}, schema) == {"i": "three"}
