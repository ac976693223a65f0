"""RL2's repository: ``generate(config, tokenizer, router_url, sample)``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from gem_core.chat import ChatRenderer, PlainRenderer, Renderer
from gem_core.episode import FinishReason
from gem_core.session import EpisodeSession, Generation, Limits, Prompt
from gem_rl2.player import PLAYERS, Player
from gem_rl2.rows import metrics, state_dicts
from gem_rl2.settings import GemSettings, Task, current

#: Renderers probe their template once; RL2 calls for every episode.
_RENDERERS: dict[tuple[int, str, str], tuple[Any, Renderer]] = {}


async def generate(config: Any, tokenizer: Any, router_url: str, sample: Any) -> None:
    """Plays the episode of one ``RL2.datasets.Sample`` against the router, or goes on with it after an abort.

    The sample is done with ``state_dicts`` and ``metrics`` of the whole episode (:mod:`gem_rl2.rows`). With
    ``partial_rollout`` RL2 interrupts running generations at the end of a rollout: then what was sampled is kept, the
    sample is marked aborted, and the next call goes on in the middle of the turn. Without it an interrupted generation
    goes on at once.

    Args:
        config: ``rollout.train`` or ``rollout.test`` of RL2's configuration.
        tokenizer: The model's.
        router_url: Of SGLang's router.
        sample: Its ``sample`` is a row of :mod:`gem_rl2.dataset`.

    Raises:
        ValueError: the row names no environment or seed, or one that does not exist.
        Exception: what the engine raised. Faults of the environment end the episode, not the call.
    """
    status = type(sample).Status
    if sample.status is status.DONE:
        return
    params = _plain(config["sampling_params"])
    if sample.status is status.ABORTED:
        player = PLAYERS[sample.sample["gem_player"]]
    else:
        player = Player(_session(tokenizer, params, sample.sample), current().env_timeout_s)
        sample.sample["gem_player"] = player.number
    sample.status = status.RUNNING
    try:
        while (prompt := await player.prompt()) is not None:
            generation = await _ask(router_url, prompt, params)
            player.answer(generation)
            if generation.finish_reason == "abort" and config.get("partial_rollout", False):
                sample.status = status.ABORTED
                return
    except BaseException:
        await player.close()
        raise
    episode, settings = player.episode, current()
    sample.state_dicts = state_dicts(episode, settings, tokenizer.eos_token_id)
    sample.turn = len(episode.turns)
    for name, values in metrics(episode).items():
        sample.metrics[name].extend(values)
    # RL2 prints a group's first sample.
    last = episode.turns[-1] if episode.turns else None
    ids = sample.state_dicts[-1]["states"]
    sample.action_text = tokenizer.decode(list(last.response_ids)) if last else ""
    sample.state_text = tokenizer.decode(ids[: len(ids) - len(last.response_ids)]) if last else str(episode.error)
    sample.status = status.DONE


def _session(tokenizer: Any, params: Mapping[str, Any], row: Mapping[str, Any]) -> EpisodeSession:
    settings, task = current(), Task.from_row(row)
    per_turn = [n for n in (settings.max_tokens_per_turn, params.get("max_new_tokens")) if n is not None]
    return EpisodeSession(
        task.make_env(settings, tokenizer),
        renderer(settings, tokenizer),
        seed=task.seed,
        limits=Limits(
            max_turns=settings.max_turns,
            max_tokens_per_turn=min(per_turn) if per_turn else None,
            max_context_tokens=settings.max_context_tokens,
        ),
        context=settings.context,
        system_prompt=settings.system_prompt,
        length_stop=settings.length_stop,
        episode_id=uuid.uuid4().hex,
        group_id=task.group,
        env_id=task.env_id,
    )


def renderer(settings: GemSettings, tokenizer: Any) -> Renderer:
    """The renderer that the settings ask for, one for each tokenizer."""
    key = (id(tokenizer), settings.history, settings.context)
    if key not in _RENDERERS:
        made: Renderer
        if settings.context == "rebuild" and "concat_chat" in settings.wrappers:
            made = PlainRenderer(tokenizer)  # the wrapper has applied the chat template already
        else:
            made = ChatRenderer(tokenizer, history=settings.history)
        _RENDERERS[key] = (tokenizer, made)  # the tokenizer is kept, so that its id stays its own
    return _RENDERERS[key][1]


async def _ask(router_url: str, prompt: Prompt, params: Mapping[str, Any]) -> Generation:
    """One request to SGLang's ``/generate``.

    Token ids go in and out: encoding the answer's text again need not give the ids that were sampled.
    """
    from RL2.utils.communication import async_request

    sampling = {k: v for k, v in params.items() if v is not None} | {"no_stop_trim": True}
    if prompt.max_new_tokens is not None:
        sampling["max_new_tokens"] = prompt.max_new_tokens
    response = await async_request(
        router_url,
        "generate",
        json={"input_ids": prompt.token_ids, "sampling_params": sampling, "return_logprob": True},
    )
    return read_generation(response)


def read_generation(response: Mapping[str, Any]) -> Generation:
    """Reads SGLang's answer: ``output_token_logprobs`` has ``[log probability, id, ...]`` for each sampled token.

    Raises:
        ValueError: the answer has no ``meta_info`` (the server refused the request); its text is quoted.
    """
    meta = response.get("meta_info") if isinstance(response, Mapping) else None
    if meta is None:
        raise ValueError(f"the rollout server answered without meta_info: {str(response)[:200]}")
    tokens = meta.get("output_token_logprobs") or []
    reason = meta["finish_reason"]["type"] if meta.get("finish_reason") else "stop"
    finish: FinishReason = "abort" if reason == "abort" else "length" if reason == "length" else "stop"
    return Generation(
        token_ids=[int(t[1]) for t in tokens],
        logprobs=[float(t[0]) for t in tokens],
        finish_reason=finish,
    )


def _plain(section: Any) -> dict[str, Any]:
    """A DictConfig or mapping as plain Python values."""
    if hasattr(section, "_metadata"):  # an OmegaConf node
        from omegaconf import OmegaConf

        section = OmegaConf.to_container(section, resolve=True)
    return dict(section)
