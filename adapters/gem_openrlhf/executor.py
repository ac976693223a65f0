"""``GemAgentExecutor``: one GEM episode against OpenRLHF's engine, token in, token out."""

from __future__ import annotations

import asyncio
import logging
import uuid
from copy import copy
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

import gem_core as gem
from gem_core.chat import ChatRenderer, PlainRenderer, Renderer
from gem_core.core import Env
from gem_core.play import Timing, in_thread, play
from gem_core.session import EpisodeSession, Generation, Limits, Prompt
from gem_openrlhf.output import response
from gem_openrlhf.settings import GemSettings

logger = logging.getLogger(__name__)


class GemAgentExecutor(AgentExecutorBase):  # type: ignore[misc]  # OpenRLHF has no type information
    """For ``--train.agent_func_path``: a file that defines ``AgentExecutor``, this class or a subclass of it.

    OpenRLHF builds one in each engine's process and awaits :meth:`execute` once for every sample. Not on OpenRLHF's
    ``MultiTurnAgentExecutor``, which adds the turns' rewards up and tokenises observations and answers as text.

    Args:
        settings: What a row's label does not say; None reads the ``GEM_*`` environment variables.
    """

    def __init__(self, settings: GemSettings | None = None) -> None:
        self.settings = settings if settings is not None else GemSettings.from_environ()
        self._renderers: dict[tuple[Any, ...], Renderer] = {}

    async def execute(
        self,
        prompt: str,
        label: Any,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Plays the row's episode and returns :func:`gem_openrlhf.output.response`.

        An environment that raises or hangs, when it is built, reset or stepped, gives a masked sample; an exception of
        the engine propagates.
        """
        settings = self.settings.for_row(prompt, label)
        tokenizer = getattr(hf_tokenizer, "tokenizer", hf_tokenizer)  # a processor holds its tokenizer
        env, error = await self._build(settings, tokenizer)
        session = EpisodeSession(
            env,
            self._renderer(tokenizer, settings),
            seed=settings.seed,
            limits=Limits(
                max_turns=settings.max_turns,
                max_tokens_per_turn=settings.max_tokens_per_turn or sampling_params.max_tokens,
                max_context_tokens=max_length,
            ),
            context=settings.context,
            system_prompt=settings.system_prompt,
            length_stop=settings.length_stop,
            episode_id=f"{settings.group_id}-{uuid.uuid4().hex[:12]}",
            group_id=settings.group_id,
            env_id=settings.env_id,
        )
        timing = Timing()

        async def generate(request: Prompt) -> Generation:
            if request.images:
                raise NotImplementedError(f"{settings.env_id} shows images; gem_openrlhf carries text only")
            params = copy(sampling_params)
            params.max_tokens = request.max_new_tokens
            params.min_tokens = min(params.min_tokens, params.max_tokens)
            result = (await llm_engine.generate(request.token_ids, params)).outputs[0]
            ids = list(result.token_ids)
            reason = result.finish_reason
            return Generation(ids, _logprobs(ids, result.logprobs), reason if reason in ("length", "abort") else "stop")

        if env is None:
            session.begin_failed(error)
            logger.warning("episode %s: %s", session.episode.episode_id, error)
            episode = session.episode
        else:
            try:
                episode = await play(session, generate, env_timeout_s=settings.env_timeout_s, timing=timing)
            finally:
                await _close(env)
        return response(
            episode,
            settings,
            prompt=prompt,
            label=label,
            logprobs=sampling_params.logprobs is not None,
            filler_token=tokenizer.eos_token_id,
            extra_logs={"gem/generation_s": timing.generation_s, "gem/env_s": timing.env_s},
        )

    async def _build(self, settings: GemSettings, tokenizer: Any) -> tuple[Env | None, str]:
        """The environment, or None and why it could not be built. An unknown id raises: that is no fault of a task."""
        assert settings.env_id is not None
        gem.spec(settings.env_id)
        try:
            return await in_thread(lambda: settings.make_env(tokenizer), settings.env_timeout_s), ""
        except asyncio.TimeoutError:
            return None, f"make: no answer within {settings.env_timeout_s} s"
        except Exception as e:
            return None, f"make: {type(e).__name__}: {e}"

    def _renderer(self, tokenizer: Any, settings: GemSettings) -> Renderer:
        """Renderers probe their template once; OpenRLHF sends a new copy of the tokenizer with every row."""
        template = str(getattr(tokenizer, "chat_template", None))
        options = tuple(sorted((k, repr(v)) for k, v in settings.template_kwargs.items()))
        plain = settings.context == "rebuild" and "concat_chat" in settings.wrappers  # the wrapper applies the template
        key = (tokenizer.name_or_path, len(tokenizer), template, settings.history, options, plain)
        if key not in self._renderers:
            self._renderers[key] = (
                PlainRenderer(tokenizer)
                if plain
                else ChatRenderer(tokenizer, history=settings.history, template_kwargs=dict(settings.template_kwargs))
            )
        return self._renderers[key]


def _logprobs(ids: list[int], given: Any) -> list[float] | None:
    """vLLM gives a mapping from token ids, the sampled one among them, to log probabilities for each sampled token."""
    if given is None:
        return None
    return [float(candidates[token].logprob) for token, candidates in zip(ids, given, strict=True)]


async def _close(env: Env) -> None:
    """The episode is over: what a close raises costs nothing."""
    try:
        await in_thread(env.close, 10.0)
    except Exception as e:
        logger.warning("closing %s: %s: %s", type(env).__name__, type(e).__name__, e)
