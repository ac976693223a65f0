"""The part of the verifiers bridge that speaks ``verifiers.v1``: a harness that runs in this process."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.envs.single_agent import SingleAgentEnv
from verifiers.v1.utils.loaders import environment_class

from gem_core.bridges.chat_endpoint import content_text
from gem_core.tools.mcp_tool import result_text

#: verifiers finds harnesses by the name of a top-level module; this is ours under such a name.
HARNESS_ID = "gem_core_verifiers_harness"
_MAX_ROUNDS = 1000


class GemHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc, unused-ignore]
    """A chat loop with the task's MCP tools. Every model call goes through verifiers' interception server, as its
    contract asks, and from there to the environment's ``step``."""

    APPENDS_SYSTEM_PROMPT: ClassVar[bool] = True
    SUPPORTS_MCP: ClassVar[bool] = True
    SUPPORTS_RESUME: ClassVar[bool] = True
    EXECUTES_CODE: ClassVar[bool] = False
    NEEDS_CONTAINER: ClassVar[bool] = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
        **_: Any,
    ) -> Any:
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [dict(message_to_wire(m)) for m in prompt or []]
        async with contextlib.AsyncExitStack() as stack:
            tools, clients = await _connect(stack, mcp_urls)
            http = await stack.enter_async_context(httpx.AsyncClient(timeout=None, trust_env=False))
            for _round in range(_MAX_ROUNDS):
                body = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
                response = await http.post(
                    f"{endpoint.rstrip('/')}/chat/completions",
                    json=body,
                    headers={"Authorization": f"Bearer {secret}"},
                )
                if response.status_code >= 400:  # the task's own stop refuses further turns
                    return vf.ProgramResult(1, "", response.text[:2000])
                message = response.json()["choices"][0]["message"]
                messages.append({k: v for k, v in message.items() if v is not None})
                if not message.get("tool_calls"):
                    return vf.ProgramResult(0, content_text(message.get("content")), "")
                for call in message["tool_calls"]:
                    messages.append(await _run_tool(call, clients))
        return vf.ProgramResult(1, "", f"no answer without a tool call in {_MAX_ROUNDS} rounds")


async def _connect(
    stack: contextlib.AsyncExitStack, urls: dict[str, str]
) -> tuple[list[dict[str, Any]], dict[str, tuple[Any, str]]]:
    """The tools of the task's MCP servers, and by name the client and the tool's own name."""
    tools: list[dict[str, Any]] = []
    clients: dict[str, tuple[Any, str]] = {}
    if not urls:
        return tools, clients
    from mcp import Client

    for server, url in urls.items():
        client = await stack.enter_async_context(Client(url))
        for tool in (await client.list_tools()).tools:
            name = tool.name if len(urls) == 1 else f"{server}_{tool.name}"
            clients[name] = (client, tool.name)
            function = {"name": name, "description": tool.description or "", "parameters": tool.input_schema}
            tools.append({"type": "function", "function": function})
    return tools, clients


async def _run_tool(call: dict[str, Any], clients: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    name = call["function"]["name"]
    try:
        if name not in clients:
            raise ValueError(f"no tool is called {name!r}; there are {', '.join(clients)}")
        client, tool = clients[name]
        text = result_text(await client.call_tool(tool, json.loads(call["function"]["arguments"] or "{}")))
    except Exception as e:  # the model is told; the rollout goes on
        text = f"Tool error: {e}"
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def load(
    name: str, env_args: dict[str, Any], max_rows: int | None, model: str, key_variable: str
) -> tuple[list[Any], Callable[[Any, str], Coroutine[Any, Any, tuple[float, dict[str, Any]]]]]:
    """The tasks of a taskset, and the function that plays one of them."""
    sys.modules.setdefault(HARNESS_ID, sys.modules[__name__])
    if environment_class(name) is not SingleAgentEnv:
        raise ValueError(f"verifiers:{name} has several agents, and so no single one to be stepped")
    config = vf.SingleAgentEnvConfig.model_validate(
        {
            "taskset": {"id": name, **env_args},
            # The harness runs in this process; what tasks run for their own ends runs on this machine.
            "agent": {"harness": {"id": HARNESS_ID}, "runtime": {"type": "subprocess"}},
        }
    )
    environment = vf.load_environment(config)
    if max_rows is None and not environment.taskset.bounded:
        raise ValueError(f"verifiers:{name} has tasks without an end; give max_rows=...")
    rows = list(itertools.islice(iter(environment.taskset), max_rows))

    async def play(task: Any, base_url: str) -> tuple[float, dict[str, Any]]:
        client = vf.EvalClientConfig(base_url=base_url, api_key_var=key_variable)
        served = vf.load_environment(config)  # its serving resources are one rollout's
        async with served.serving():
            episode = await served.run_episode(task, vf.ModelContext(model=model, client=client))
        errors = [*episode.errors, *(e for t in episode.traces for e in t.errors)]
        if errors or not episode.traces:
            first = errors[0] if errors else None
            raise RuntimeError(f"{first.type}: {first.message}" if first else "the rollout left no trace")
        trace = episode.traces[0]
        metrics = {k: float(v) for k, v in trace.metrics.items() if isinstance(v, (int, float))}
        return float(trace.reward), {"metrics": metrics, "stop_condition": trace.stop_condition}

    return rows, play


__all__ = ["GemHarness"]
