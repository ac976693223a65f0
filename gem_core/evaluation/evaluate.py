"""``evaluate``: plays the tasks, keeps every finished episode on disk, and sums up."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_core.episode import Episode, StopReason
from gem_core.evaluation.errors import PolicyUnusableError
from gem_core.evaluation.human import PlayerQuitError
from gem_core.evaluation.plan import Plan, different_random_samples, plan_tasks
from gem_core.evaluation.players import Player, as_player
from gem_core.evaluation.records import USAGE, EpisodeRecord, drop_failed, iter_episodes
from gem_core.evaluation.responses import AsyncRecorded, Recorded, ResponseLog
from gem_core.evaluation.results import STOP, EvalResult, Intervals
from gem_core.rollout import Rollout, RolloutOptions
from gem_core.run_folder import RunFolder
from gem_core.session import Limits

if TYPE_CHECKING:
    from gem_core.chat import Renderer
    from gem_core.registration import WrapperFn

logger = logging.getLogger(__name__)

#: Parts of the configuration in which a run and its continuation may differ: where the model is served, and how much
#: is played.
_MAY_DIFFER = ("env_ids", "episodes", "seeds", "samples")
_POLICY_MAY_DIFFER = ("base_url",)


def evaluate(
    env_ids: str | Sequence[str],
    policy: Any,
    *,
    episodes: int | None = None,
    seeds: int | Sequence[int] | None = None,
    samples: int = 1,
    concurrency: int = 64,
    log: str | Path | None = None,
    resume: bool = True,
    retry_failed: bool = True,
    renderer: Renderer | None = None,
    limits: Limits | None = None,
    system_prompt: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: str | Sequence[WrapperFn] = (),
    intervals: Intervals | None = None,
    progress: bool = False,
    on_episode: Callable[[Episode], None] | None = None,
    **rollout_options: Any,
) -> EvalResult:
    """Plays ``episodes`` starts of each environment, ``samples`` times each, and sums up.

    With ``log``, every finished episode is appended to the folder's ``episodes.jsonl`` before it counts, and every
    paid answer to ``responses.jsonl`` before it is used. The same call goes on where an earlier one stopped: recorded
    episodes are not played again, and an episode that was cut short takes its answers from disk as long as the
    environment asks the same questions. Failed episodes (``Episode.failed``) are played again. The folder is a run
    folder: :mod:`gem_core.report` reads it.

    Args:
        env_ids: One or several ids.
        policy: ``"random"``, ``"scripted"``, ``"human"``, a model's Hugging Face id or folder, a
            :class:`~gem_core.evaluation.Player` (:func:`~gem_core.evaluation.load_player` builds one), or any object
            with ``generate(prompts)``, plain or awaitable.
        episodes: See :func:`~gem_core.evaluation.plan_tasks`; so for ``seeds`` and ``samples``.
        seeds: The starts' seeds, or the first of them.
        samples: Episodes from each start.
        concurrency: Episodes in flight.
        log: The run's folder; None = nothing is kept.
        resume: False: what the folder holds is replaced.
        retry_failed: False: failed episodes of the log stay as they are.
        renderer: For a policy that reads token ids and is given as an object.
        limits: See :class:`~gem_core.session.Limits`.
        system_prompt: Put before the first observation.
        env_kwargs: For the environments' constructors.
        wrappers: Names as :func:`gem_core.wrappers.wrapper_factory.get_wrapper_fns` takes them, or callables.
        intervals: How confidence intervals are made.
        progress: Show a progress bar.
        on_episode: Called with every newly played episode, after it was recorded.
        **rollout_options: Further fields of :class:`~gem_core.rollout.RolloutOptions` (``executor``,
            ``step_timeout_s``, ``context``, ``length_stop``, ...).

    Raises:
        PolicyUnusableError: no answer can be had; what was played is recorded, the same call goes on.
        PlayerQuitError: the person who played has stopped.
        ValueError: a value that makes no sense, or a folder that holds another run.
    """
    fns, wrapper_names = _wrappers(wrappers)
    plan = plan_tasks(env_ids, episodes, seeds, samples, env_kwargs, fns)
    given_player = isinstance(policy, Player)
    player = as_player(policy, plan.env_ids, renderer)
    if player.max_concurrency is not None:
        concurrency = min(concurrency, player.max_concurrency)
    limits = limits or Limits()
    if limits.max_context_tokens is None and player.max_context_tokens is not None:
        limits = replace(limits, max_context_tokens=player.max_context_tokens)
    if player.policy == "random":
        plan = replace(plan, tasks=different_random_samples(plan.tasks))
    config = {
        "kind": "evaluation",
        "env_id": ", ".join(plan.env_ids),
        "env_ids": plan.env_ids,
        "episodes": plan.starts[0] if len(set(plan.starts)) == 1 else plan.starts,
        "seeds": seeds if seeds is None or isinstance(seeds, int) else list(seeds),
        "samples": samples,
        "policy": dict(player.config),
        "limits": {k: v for k, v in asdict(limits).items() if v is not None},
        "system_prompt": system_prompt,
        "env_kwargs": dict(env_kwargs or {}),
        "wrappers": wrapper_names,
        "rollout": {k: rollout_options[k] for k in ("context", "length_stop") if k in rollout_options},
    }
    rollout_options.setdefault("max_batch", player.max_batch)
    options = RolloutOptions(
        concurrency=concurrency,
        limits=limits,
        system_prompt=system_prompt,
        progress=progress,
        on_policy_error="record",
        **rollout_options,
    )
    store = None if log is None else _Store(Path(log), config, resume, retry_failed, player.paid)
    try:
        return _run(plan, player, options, config, store, intervals or Intervals(), on_episode)
    finally:
        if store is not None:
            store.close()
        if not given_player:
            player.close()


def _run(
    plan: Plan,
    player: Player,
    options: RolloutOptions,
    config: dict[str, Any],
    store: _Store | None,
    intervals: Intervals,
    on_episode: Callable[[Episode], None] | None,
) -> EvalResult:
    planned = {t.episode_id for t in plan.tasks}
    records = {} if store is None else {k: r for k, r in store.records.items() if k in planned}
    tasks = [t for t in plan.tasks if t.episode_id not in records]
    watched = _Watched(player.policy) if player.policy != "random" else None
    policy: Any = player.policy
    if watched is not None:
        policy = watched.policy
        if store is not None and store.responses is not None:
            kind = AsyncRecorded if inspect.iscoroutinefunction(policy.generate) else Recorded
            policy = kind(policy, store.responses)
    stats = None
    if tasks:
        with _loop(player.policy) as loop, Rollout(tasks, policy, player.renderer, options, loop=loop) as run:
            stats, lost = run.stats, 0
            for episode in run:
                if watched is not None and watched.fatal is not None:
                    raise watched.fatal
                if store is not None:
                    store.add(episode)
                records[episode.episode_id] = EpisodeRecord.of(episode)
                if on_episode is not None:
                    on_episode(episode)
                lost = lost + 1 if episode.stop_reason is StopReason.POLICY_ERROR else -len(tasks)
                if lost >= min(_HOPELESS, len(tasks)):
                    raise PolicyUnusableError(f"the first {lost} episodes all failed: {episode.error}")
    result = EvalResult(config, [records[t.episode_id] for t in plan.tasks], intervals, stats)
    result.requests = _requests(player, store)
    if store is not None:
        result.folder = store.folder.path
        store.finish(result)
    return result


class _Watched:
    """Remembers the error that no other request can escape; the rollout records it as one episode's."""

    def __init__(self, inner: Any) -> None:
        self.fatal: Exception | None = None
        watched = self

        class Plain:
            def generate(self, prompts: list[Any]) -> Any:
                try:
                    return inner.generate(prompts)
                except _FATAL as e:
                    watched.fatal = watched.fatal or e
                    raise

        class Awaitable:
            async def generate(self, prompts: list[Any]) -> Any:
                try:
                    return await inner.generate(prompts)
                except _FATAL as e:
                    watched.fatal = watched.fatal or e
                    raise

        self.policy: Any = Awaitable() if inspect.iscoroutinefunction(inner.generate) else Plain()


_FATAL = (PolicyUnusableError, PlayerQuitError, ImportError)
#: Where so many episodes fail at the policy and none has come to its end, the rest would fail too.
_HOPELESS = 8


class _Store:
    """The run's folder: episodes, paid answers, results; one process at a time."""

    def __init__(self, path: Path, config: dict[str, Any], resume: bool, retry_failed: bool, paid: bool) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(path)
        self._responses_path = path / "responses.jsonl"
        try:
            if resume:
                _check_same(path / "run.json", config)
                if retry_failed:
                    drop_failed(path / "episodes.jsonl")
            else:
                self._responses_path.unlink(missing_ok=True)
            self.folder = RunFolder(path, config, resume=resume, tensorboard=False)
            self.records = {}
            for episode in iter_episodes(self.folder.episodes_path):
                self.records[episode.episode_id] = EpisodeRecord.of(episode)
            # A failed episode may be played again later: its answers stay.
            done = [k for k, r in self.records.items() if not r.failed]
            self.responses = ResponseLog(self._responses_path, done) if paid else None
        except BaseException:
            self._lock.close()
            raise

    def add(self, episode: Episode) -> None:
        if self.responses is not None and (usage := self.responses.take_usage(episode.episode_id)):
            episode.metadata[USAGE] = usage
        self.folder.log_episodes(0, [episode], split="eval")

    def finish(self, result: EvalResult) -> None:
        """Every episode is recorded."""
        self.folder.metrics_path.unlink(missing_ok=True)  # of the part before a resumption
        for env in result.envs:
            figures = {k: v.value for k, v in env.metrics.items() if not k.startswith(STOP)}
            stops = {k: v.value for k, v in env.metrics.items() if k.startswith(STOP)}
            counts = {"episodes": env.episodes, "failed": env.failed / env.episodes}
            self.folder.log_metrics(0, {"env_id": env.env_id, **figures, **stops, **counts}, split="eval")
        result.save(self.folder.path)
        if self.responses is not None:
            # Those of failed episodes are kept for the next try.
            self.responses.close(delete=not result.failed)

    def close(self) -> None:
        if self.responses is not None:
            self.responses.close()
        self.folder.close()
        self._lock.close()


def _lock(path: Path) -> Any:
    """Two evaluations into one folder would record every episode twice."""
    file = (path / ".lock").open("w")
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(f"another evaluation is writing into {path}; wait for it or use another folder") from None
    return file


def _check_same(path: Path, config: dict[str, Any]) -> None:
    if not path.exists():
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} is damaged; evaluate into another folder or with resume=False") from None
    now = json.loads(json.dumps(config, default=str))
    names = {f"policy.{k}" for c in (before, now) for k in c.get("policy", {})} | {"policy"}
    for name in sorted((set(now) | names) - {"policy", "env_id", *_MAY_DIFFER}):
        outer, _, inner = name.partition(".")
        if inner in _POLICY_MAY_DIFFER:
            continue
        old, new = before.get(outer), now.get(outer)
        if inner:
            old, new = (old or {}).get(inner), (new or {}).get(inner)
        if old != new:
            raise ValueError(
                f"{path.parent} holds an evaluation with {name}={old!r}, this one has {new!r}; "
                "use another folder, or resume=False to replace it"
            )


@contextlib.contextmanager
def _loop(policy: Any) -> Iterator[asyncio.AbstractEventLoop | None]:
    """A loop for a policy that has connections to close in it; None where the rollout's own will do."""
    if not callable(getattr(policy, "aclose", None)):
        yield None
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="gem-evaluation-loop", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(policy.aclose(), loop).result(5.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _requests(player: Player, store: _Store | None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    stats = getattr(player.policy, "stats", None)
    if stats is not None and hasattr(stats, "failed_tries"):
        out = asdict(stats)
        out["failed_tries"] = dict(stats.failed_tries)
        out["held_back_s"] = round(player.policy.limiter.waited_s, 3)  # type: ignore[union-attr]
    if store is not None and store.responses is not None:
        out["reused_answers"] = store.responses.reused
    return out


def _wrappers(wrappers: str | Sequence[WrapperFn]) -> tuple[list[WrapperFn], str]:
    if isinstance(wrappers, str):
        from gem_core.wrappers.wrapper_factory import get_wrapper_fns

        return get_wrapper_fns(wrappers), wrappers
    return list(wrappers), ", ".join(getattr(w, "__qualname__", str(w)) for w in wrappers)
