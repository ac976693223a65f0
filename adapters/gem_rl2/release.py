"""rl-square 0.0.2: ``reset(extra_info)`` and ``step(state, action, extra_info)``.

This RL2 does the tokens itself: an environment gets and gives text, and can neither mask an episode nor learn that it
was given up. :func:`gem_rl2.trainer.extend` adds both where the run is started by :mod:`gem_rl2.trainer`.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from gem_core.chat import ChatRenderer, PlainRenderer, Renderer
from gem_core.episode import Episode, StopReason
from gem_core.session import EpisodeSession, Generation, Limits, Prompt
from gem_rl2.player import PLAYERS, Player
from gem_rl2.settings import GemSettings, Task, current
from gem_rl2.text import TextTokenizer

logger = logging.getLogger(__name__)

#: Finished episodes, by player number, until the trainer takes them (:func:`take_episode`); the latest only.
_FINISHED: dict[int, Episode] = {}
_MOST_FINISHED = 65536
_TOKENIZERS: dict[str, tuple[Any, TextTokenizer]] = {}
_RENDERERS: dict[tuple[str, str, str], Renderer] = {}
#: Answers seen, and how many of them ended with the end-of-turn token's text.
_seen = {"answers": 0, "ended": 0}
_WARN_AFTER = 64


async def reset(extra_info: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Starts the episode of a row of :mod:`gem_rl2.dataset`.

    Returns:
        The first prompt as text, chat template applied, and ``extra_info`` with the number of the episode. A reset that
        fails gives a stand-in prompt, and the first :func:`step` then ends the episode with reward 0.0.

    Raises:
        ValueError: the row names no environment or seed, or one that does not exist.
    """
    await _close_idle()
    settings, task = current(), Task.from_row({"extra_info": extra_info})
    real, text = _tokenizer(settings)
    session = EpisodeSession(
        task.make_env(settings, real),
        _renderer(settings, text),
        seed=task.seed,
        limits=Limits(max_turns=settings.max_turns),  # limits in tokens would count characters here
        context=settings.context,
        system_prompt=settings.system_prompt,
        episode_id=uuid.uuid4().hex,
        group_id=task.group,
        env_id=task.env_id,
    )
    player = Player(session, settings.env_timeout_s)
    prompt = await player.prompt()
    if prompt is None:
        _finish(player.number, player.episode)
        ids = _renderer(settings, text).start([{"role": "user", "content": "The environment failed."}])
    else:
        ids = prompt.token_ids
    return text.text(ids), {**extra_info, "gem_player": player.number}


async def step(state: str, action: str, extra_info: dict[str, Any]) -> dict[str, Any]:
    """Gives the answer to the environment.

    Args:
        state: The text that was generated from.
        action: The answer's text. It must keep its end-of-turn token (sampling parameter
            ``skip_special_tokens=false``, which the launcher sets): without it a second one is put after it.
        extra_info: As :func:`reset` returned it.

    Returns:
        ``next_state`` (begins with ``state + action`` unless the context is rebuilt), ``reward`` and ``score`` (both
        this turn's), ``done``, ``extra_info``.
    """
    number = extra_info["gem_player"]
    player = PLAYERS.get(number)
    if player is None:  # the reset failed, or nothing was heard of the episode for gem.idle_s
        return _response("", 0.0, True, extra_info)
    settings = current()
    real, text = _tokenizer(settings)
    ids = text.encode(action)
    _watch_ends(bool(ids) and ids[-1] == text.eos_token_id)
    if settings.length_stop == "invalid" and (not ids or ids[-1] != text.eos_token_id):
        player.session.length_stop = "invalid"
        player.answer(Generation(ids, finish_reason="length"))
    else:
        player.answer(Generation(ids))
    prompt = await player.prompt()
    if prompt is not None and not _fits(prompt, settings, real, text):
        player.session.fail(StopReason.CONTEXT_LENGTH, "the next prompt leaves no room in gem.max_context_tokens")
        await player.close()
        prompt = None
    episode = player.episode
    reward = episode.turns[-1].reward if episode.turns else 0.0
    if prompt is None:
        _finish(number, episode)
        return _response("", reward, True, extra_info)
    return _response(text.text(prompt.token_ids), reward, False, extra_info)


def take_episode(extra_info: dict[str, Any]) -> Episode | None:
    """The finished episode of ``extra_info``, once; None where it was given up before its end."""
    return _FINISHED.pop(extra_info.get("gem_player", 0), None)


async def drop(extra_info: dict[str, Any]) -> None:
    """Closes an episode that RL2 gave up, if it is still open."""
    player = PLAYERS.get(extra_info.get("gem_player", 0))
    if player is not None:
        await player.close()


def _response(state: str, reward: float, done: bool, extra_info: dict[str, Any]) -> dict[str, Any]:
    return {"next_state": state, "reward": reward, "score": reward, "done": done, "extra_info": extra_info}


def _finish(number: int, episode: Episode) -> None:
    while len(_FINISHED) >= _MOST_FINISHED:
        del _FINISHED[next(iter(_FINISHED))]
    _FINISHED[number] = episode


def _fits(prompt: Prompt, settings: GemSettings, real: Any, text: TextTokenizer) -> bool:
    if settings.max_context_tokens is None:
        return True
    # Encoded as one string; RL2 encodes piece by piece, which may take a few tokens more, so an answer's room is kept.
    used = len(real.encode(text.text(prompt.token_ids), add_special_tokens=False))
    return used + (settings.max_tokens_per_turn or 1) <= settings.max_context_tokens


async def _close_idle() -> None:
    now, limit = time.monotonic(), current().idle_s
    for player in [p for p in PLAYERS.values() if now - p.touched > limit]:
        logger.warning("episode %s: no action for %s s; closed", player.episode.episode_id, limit)
        await player.close()


def _watch_ends(ended: bool) -> None:
    _seen["answers"] += 1
    _seen["ended"] += ended
    if _seen["answers"] == _WARN_AFTER and not _seen["ended"]:
        logger.warning(
            "none of the first %d answers ended with the end-of-turn token: set "
            "+rollout.train_sampling_params.skip_special_tokens=false (and for test), or it appears twice",
            _WARN_AFTER,
        )


def _tokenizer(settings: GemSettings) -> tuple[Any, TextTokenizer]:
    name = settings.tokenizer
    if name is None:
        raise ValueError(
            "rl-square 0.0.2 gives environments no tokenizer: start the run with `-m gem_rl2.trainer`, or set "
            'GEM_RL2_SETTINGS=\'{"tokenizer": "NAME"}\''
        )
    if name not in _TOKENIZERS:
        from transformers import AutoTokenizer

        real = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
        _TOKENIZERS[name] = (real, TextTokenizer(real))
    return _TOKENIZERS[name]


def _renderer(settings: GemSettings, text: TextTokenizer) -> Renderer:
    key = (settings.tokenizer or "", settings.history, settings.context)
    if key not in _RENDERERS:
        made: Renderer
        if settings.context == "rebuild" and "concat_chat" in settings.wrappers:
            made = PlainRenderer(text)
        else:
            made = ChatRenderer(text, history=settings.history)
        _RENDERERS[key] = made
    return _RENDERERS[key]
