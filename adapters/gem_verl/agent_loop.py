"""``GemAgentLoop``: one GEM episode against verl's rollout server."""

from __future__ import annotations

import json
import uuid
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics

from gem_core.chat import ChatRenderer, PlainRenderer, Renderer
from gem_core.play import Timing, play
from gem_core.session import EpisodeSession, Generation, Limits, Prompt
from gem_verl._compat import agent_loop_kwargs
from gem_verl.output import GemAgentLoopOutput, rows
from gem_verl.settings import GemSettings

#: Renderers probe their template once; verl builds an agent loop for every episode.
_RENDERERS: dict[tuple[int, str, str], Renderer] = {}


class GemAgentLoop(AgentLoopBase):  # type: ignore[misc]  # verl has no type information
    """Plays the environment that the row names (columns ``env_id``, ``env_kwargs``, ``env_seed``), or that of
    ``data.gem`` with a seed counted up by the row's index (:class:`gem_verl.GemRolloutWorker` holds validation's out).

    All ``rollout.n`` sessions of a row share the seed, so they start from the same state: verl's group.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **agent_loop_kwargs(kwargs))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[GemAgentLoopOutput]:
        settings = GemSettings.from_config(self.data_config)
        episode_id = f"{row.get('uid') or uuid.uuid4().hex}-{row.get('session_id', 0)}"
        env_id, kwargs, seed = self._task(settings, row)
        # verl's uid is random; this id is unique too, and the same in every run (with rollout.full_determinism it is
        # the engine's own request id, from which the CPU server derives its random numbers).
        request_id = "-".join(str(p) for p in (env_id, seed, row.get("global_steps", 0), row.get("session_id", 0)))
        env = settings.make_env(env_id, kwargs, self.tokenizer)
        config = self.rollout_config
        session = EpisodeSession(
            env,
            self._renderer(settings),
            seed=seed,
            limits=Limits(
                max_turns=settings.max_turns,
                max_tokens_per_turn=settings.max_tokens_per_turn,
                max_prompt_tokens=config.prompt_length,
                max_response_tokens=config.response_length,
                max_context_tokens=config.get("max_model_len") or config.prompt_length + config.response_length,
            ),
            context=settings.context,
            system_prompt=settings.system_prompt,
            length_stop=settings.length_stop,
            episode_id=episode_id,
            group_id=str(row.get("uid", episode_id)),
            env_id=env_id,
        )
        timing, versions = Timing(), _Versions()

        async def generate(prompt: Prompt) -> Generation:
            params = {**sampling_params, "max_tokens": prompt.max_new_tokens}
            # One request id for the whole episode keeps it on one server, whose prefix cache holds the earlier turns.
            images = {"image_data": list(prompt.images)} if prompt.images else {}
            output = await self.server_manager.generate(
                request_id, prompt_ids=prompt.token_ids, sampling_params=params, **images
            )
            versions.see(output.extra_fields)
            reason = output.stop_reason or ""
            cut = len(output.token_ids) >= (prompt.max_new_tokens or 0) and not self._is_end(output.token_ids)
            return Generation(
                output.token_ids, output.log_probs, "abort" if "abort" in reason else "length" if cut else "stop"
            )

        try:
            episode = await play(session, generate, env_timeout_s=settings.env_timeout_s, timing=timing)
        finally:
            env.close()
        return rows(
            episode,
            settings,
            gamma=float(self.config.algorithm.gamma),
            estimator=str(self.config.algorithm.adv_estimator),
            metrics=AgentLoopMetrics(generate_sequences=timing.generation_s, tool_calls=timing.env_s),
            extra_fields=versions.fields(),
            filler_token=self.tokenizer.eos_token_id,
        )

    def _task(self, settings: GemSettings, row: dict[str, Any]) -> tuple[str, dict[str, Any], int]:
        """Environment, arguments and seed of a row, from any dataset."""
        seed = row.get("env_seed")
        seed = settings.seed + int(row.get("index", 0)) if seed is None else int(seed)
        choice = settings.choose(seed)
        env_id = row.get("env_id")
        if env_id is None:
            return choice.env_id, choice.kwargs, seed
        kwargs = row.get("env_kwargs") or {}
        return str(env_id), json.loads(kwargs) if isinstance(kwargs, str) else dict(kwargs), seed

    def _renderer(self, settings: GemSettings) -> Renderer:
        key = (id(self.tokenizer), settings.history, settings.context)
        if key not in _RENDERERS:
            if settings.context == "rebuild" and "concat_chat" in settings.wrappers:
                _RENDERERS[key] = PlainRenderer(self.tokenizer)  # the wrapper has applied the chat template already
            else:
                kwargs = dict(self.apply_chat_template_kwargs or {})
                _RENDERERS[key] = ChatRenderer(self.tokenizer, history=settings.history, template_kwargs=kwargs)
        return _RENDERERS[key]

    def _is_end(self, token_ids: list[int]) -> bool:
        return bool(token_ids) and token_ids[-1] == self.tokenizer.eos_token_id


class _Versions:
    """The first and last weight version that an episode was sampled from; verl's staleness control reads them."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None

    def see(self, extra: dict[str, Any]) -> None:
        first, last = extra.get("min_global_steps"), extra.get("max_global_steps")
        self.first = first if self.first is None else self.first
        self.last = last if last is not None else self.last

    def fields(self) -> dict[str, Any]:
        return {"min_global_steps": self.first or 0, "max_global_steps": self.last or 0}
