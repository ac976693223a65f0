"""``GemActor``: plays episodes on Oat's actor node and hands over one sample a turn."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

from oat.algorithms.ppo import PPOActor

from gem_core.advantages import GROUP_ESTIMATORS
from gem_core.episode import Episode, StopReason, summarize
from gem_core.rollout import Rollout, RolloutOptions, Task, rollout
from gem_oat.args import GemArgs
from gem_oat.environments import eval_tasks, limits, make_renderer, training_tasks, wrapper_fns
from gem_oat.policy import VllmPolicy
from gem_oat.transitions import GemTransition, pick, transitions, turn_values

logger = logging.getLogger(__name__)

#: A step gives up once this many episodes in a row gave nothing to train on.
MOST_UNUSABLE = 100


class GemActor(PPOActor):  # type: ignore[misc]
    """Oat's PPO actor, whose prompts and rewards come from environments.

    The prompts that the learner sends are place holders; as many turns go back.
    """

    args: GemArgs

    def init(self, actor_id: int, save_path: str) -> None:
        """Starts vLLM (as Oat's actor does) and sets up the environments."""
        super().init(actor_id, save_path)
        for params in (self.sampling_params, self.eval_sampling_params):
            params.n = 1
            params.logprobs = 1  # of the sampled token
        self.step_count = 0
        self.renderer = make_renderer(self.args, self.tokenizer)
        self.wrappers = wrapper_fns(self.args.wrappers, self.args, self.tokenizer)

    # -- training ---------------------------------------------------------------------------------------------

    def step(
        self,
        prompts: Sequence[str] | None = None,
        formatted_prompts: Sequence[str] | None = None,
        references: Sequence[str] | None = None,
    ) -> Any:
        """Plays until there are enough turns.

        Args:
            prompts: Their number is that of the samples that go back; None = ``rollout_batch_size_per_device``.
            formatted_prompts: Not read.
            references: Not read.

        Returns:
            The handle of a list of :class:`~gem_oat.transitions.GemTransition` in Oat's shared memory.
        """
        del formatted_prompts, references
        if self.eval_mode:
            raise RuntimeError("step() was called during an evaluation")
        args = self.args
        size = len(prompts) if prompts is not None else args.rollout_batch_size_per_device
        started = time.perf_counter()
        tasks = training_tasks(args, self.actor_id, self.step_count, self.wrappers)
        groups, dropped = self.collect(tasks, size)
        episodes = [e for group in groups for e in group]
        samples = samples_of(episodes, args, self.tokenizer)
        rng = random.Random(f"pick:{args.seed}:{args.group_rank}:{self.actor_id}:{self.step_count}")
        batch = pick(samples, size, rng, last_turns=args.advantage == "ppo")
        metrics = {f"actor/{k}": v for k, v in summarize(episodes).items() if not k.startswith("stop/")}
        metrics.setdefault("actor/success", 0.0)  # the keys are the same in every batch, so that ranks can average them
        metrics["actor/dropped_episodes"] = float(dropped)
        metrics["actor/collect_time"] = time.perf_counter() - started
        for sample in batch:
            sample.info.update(metrics)
        self._dump(episodes)
        logger.info("actor %s, step %s: %s episodes, %s", self.actor_id, self.step_count, len(episodes), metrics)
        self.step_count += 1
        return self.ipc_client.serialize_ipc(batch)

    def collect(self, tasks: Iterable[Task], turns: int) -> tuple[list[list[Episode]], int]:
        """Plays tasks until the usable episodes have at least ``turns`` turns with tokens.

        Episodes are taken in the order of the tasks, not of their ends, so long ones are as likely as short ones; a
        group is taken whole. Failed episodes are left out, and those that ran out of context unless ``keep_overlong``.

        Returns:
            ``(groups, dropped)``: the usable episodes of each group, and how many were left out.

        Raises:
            RuntimeError: nothing usable comes; the message has the last episode's fault.
        """
        size = self.args.group_size if self.args.advantage in GROUP_ESTIMATORS else 1
        groups: list[list[Episode]] = []
        group: list[Episode] = []
        have = members = dropped = in_a_row = 0
        policy = VllmPolicy(self, self.sampling_params)
        with Rollout(tasks, policy, self.renderer, self._options()) as run:
            for episode in run:
                members += 1
                if self._usable(episode):
                    group.append(episode)
                    in_a_row = 0
                else:
                    dropped, in_a_row = dropped + 1, in_a_row + 1
                    if in_a_row >= MOST_UNUSABLE:
                        raise RuntimeError(
                            f"{in_a_row} episodes of {episode.env_id} in a row gave nothing to train on; the last one: "
                            f"{episode.stop_reason} after {len(episode.turns)} turns ({episode.error or 'no error'})"
                        )
                if members == size:
                    groups.append(group)
                    have += sum(1 for e in group for t in e.turns if t.response_ids)
                    group, members = [], 0
                    if have >= turns:
                        break
        return groups, dropped

    def _usable(self, episode: Episode) -> bool:
        overlong = episode.stop_reason is StopReason.CONTEXT_LENGTH and not self.args.keep_overlong
        return not episode.failed and not overlong and episode.num_sampled_tokens > 0

    def _options(self, *, evaluation: bool = False) -> RolloutOptions:
        args = self.args
        return RolloutOptions(
            concurrency=args.num_envs,
            order="task",
            limits=limits(args, evaluation=evaluation),
            context=args.context,
            system_prompt=args.system_prompt or None,
            length_stop="invalid",  # as in the paper's baselines
            executor=args.executor,
            step_timeout_s=args.step_timeout_s,
            reset_timeout_s=args.step_timeout_s,
        )

    def _dump(self, episodes: Iterable[Episode]) -> None:
        every = self.args.dump_episodes_every
        if every < 1 or self.step_count % every:
            return
        folder = os.path.join(self.save_path, "episodes")
        os.makedirs(folder, exist_ok=True)
        name = f"step{self.step_count:05}-actor{self.args.group_rank}-{self.actor_id}.jsonl"
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.writelines(e.to_json() + "\n" for e in episodes)

    # -- evaluation -------------------------------------------------------------------------------------------

    def evaluate_envs(self, shard: int, shards: int) -> dict[str, list[str]]:
        """Plays this actor's share of the held-out episodes of every environment in ``eval_envs``.

        Args:
            shard: Number of the share, from 0.
            shards: How many shares there are.

        Returns:
            For each environment its finished episodes as JSON lines, failed ones included.
        """
        policy = VllmPolicy(self, self.eval_sampling_params)
        options = vars(self._options(evaluation=True))
        played: dict[str, list[str]] = {}
        for env_id, tasks in eval_tasks(self.args, shard, shards, self.tokenizer).items():
            episodes = rollout(tasks, policy, self.renderer, **options) if tasks else []
            played[env_id] = [e.to_json() for e in episodes]
        return played


def samples_of(episodes: Sequence[Episode], args: GemArgs, tokenizer: Any) -> list[GemTransition]:
    """One sample a turn, with its value on the last token."""
    values = turn_values(args.advantage, episodes, args.gamma)
    return [
        sample
        for episode, value in zip(episodes, values, strict=True)
        for sample in transitions(episode, value, tokenizer, mask_cut=args.ignore_no_eos)
    ]
