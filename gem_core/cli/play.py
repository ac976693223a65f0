"""``gem play``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from gem_core.cli.common import (
    ApiKeyEnv,
    Backend,
    BaseUrl,
    EnvArgs,
    EnvId,
    Extra,
    MaxTokens,
    Mode,
    Policy,
    Temperature,
    TokenizerName,
    TopP,
    Wrappers,
    model_options,
    settings,
)

if TYPE_CHECKING:
    from gem_core.cli.terminal import Screen
    from gem_core.evaluation import Player
    from gem_core.rollout import Task
    from gem_core.session import EpisodeSession, Generation, Limits, Prompt

    Answer = Callable[[Prompt], Generation]


def play_command(
    env_id: EnvId,
    policy: Policy = "human",
    seed: Annotated[int | None, typer.Option(help="Fixes the episode; drawn if not given.")] = None,
    env_arg: EnvArgs = None,
    wrappers: Wrappers = "",
    max_turns: Annotated[int | None, typer.Option(help="Stop after so many turns.")] = None,
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = "OPENAI_API_KEY",
    mode: Mode = "chat",
    backend: Backend = None,
    tokenizer: TokenizerName = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = None,
    extra: Extra = None,
) -> int:
    r"""Plays one episode: you do, or you watch a policy.

    A line is an action. Games want \boxed{...}: a line without it is put into one. /raw TEXT sends TEXT as it is,
    /random plays a random action, /quit stops.

    Examples:

        gem play game:Wordle-v0-easy

        gem play game:Sokoban-v0-easy --policy scripted --seed 3

        gem play game:Mastermind-v0-easy --policy Qwen/Qwen3-8B --base-url http://localhost:8000/v1
    """
    from gem_core.cli.terminal import Screen
    from gem_core.evaluation import load_player, plan_tasks
    from gem_core.session import Limits
    from gem_core.wrappers.wrapper_factory import get_wrapper_fns

    if seed is None:
        import random

        seed = random.SystemRandom().randrange(10**6)
    [task] = plan_tasks(
        env_id, 1, [seed], kwargs=settings(env_arg, "--env-arg"), wrappers=get_wrapper_fns(wrappers)
    ).tasks
    options = model_options(
        base_url=base_url,
        api_key_env=api_key_env,
        mode=mode,
        backend=backend,
        tokenizer=tokenizer,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        seed=0,
        extra=settings(extra, "--set"),
    )
    screen = Screen()
    player = load_player(policy, [str(task.env)], options)
    try:
        session = _session(task, player, Limits(max_turns=max_turns))
        screen.title(f"{task.env}, seed {seed}, played by {'you' if policy == 'human' else policy}")
        with session.env:  # type: ignore[union-attr]
            finished = _play(session, _answer(player, session), screen, player.name != "human")
        return 0 if finished else 130
    finally:
        player.close()


def _session(task: Task, player: Player, limits: Limits) -> EpisodeSession:
    import gem_core
    from gem_core.session import EpisodeSession

    env = gem_core.make(str(task.env), **task.kwargs)
    for wrap in task.wrappers:
        env = wrap(env)
    return EpisodeSession(
        env,
        player.renderer,
        seed=task.seed,
        options=task.options,
        limits=limits,
        episode_id=task.episode_id,
        on_env_error="raise",
    )


def _play(session: EpisodeSession, answer: Answer, screen: Screen, show_actions: bool) -> bool:
    """False: the person has stopped."""
    from gem_core.evaluation import PlayerQuitError

    prompt = session.start()
    while prompt is not None:
        screen.observation(prompt.messages[-1]["content"], prompt.turn + 1)
        try:
            generation = answer(prompt)
        except PlayerQuitError:
            screen.note("stopped")
            return False
        prompt = session.submit(generation)
        if session.episode.turns:
            screen.turn(session.episode.turns[-1], show_action=show_actions)
    screen.end(session.episode)
    return True


def _answer(player: Player, session: EpisodeSession) -> Answer:
    """The policy as a function of one prompt."""
    import asyncio
    import inspect
    from typing import Any

    from gem_core.cli.terminal import ask_person
    from gem_core.session import Generation

    env, policy = session.env, player.policy
    assert env is not None
    if player.name == "human":
        return lambda prompt: Generation(text=ask_person(env, prompt))
    if isinstance(policy, str):  # "random"
        return lambda prompt: Generation(text=env.sample_random_action())
    generate: Any = policy.generate
    if not inspect.iscoroutinefunction(generate):
        return lambda prompt: generate([prompt])[0]
    loop = asyncio.new_event_loop()
    return lambda prompt: loop.run_until_complete(generate([prompt]))[0]
