"""The file for OpenRLHF's ``--train.agent_func_path``: its path is ``gem_openrlhf/agent.py``."""

from __future__ import annotations

from gem_openrlhf.executor import GemAgentExecutor as AgentExecutor

__all__ = ["AgentExecutor"]
