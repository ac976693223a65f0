"""``GemGRPOTrainer``: TRL's GRPOTrainer on multi-turn environments, with one advantage a turn."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import TrainerCallback
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from gem_core.advantages import Array, Moments, estimate_episodes
from gem_core.chat import ChatRenderer, Renderer
from gem_core.core import Env
from gem_core.episode import Episode, summarize
from gem_core.policies import Policy, Sampling, TransformersPolicy
from gem_core.registration import make
from gem_core.run_folder import RunFolder, token_texts
from gem_trl._compat import logps_result
from gem_trl.config import GemConfig
from gem_trl.logps import sampled_logps
from gem_trl.rollouts import (
    HELD_OUT_SEED,
    EpisodePlayer,
    Row,
    VLLMPolicy,
    filler_row,
    play,
    rows_of,
    spread_over_rows,
    training_seed,
)


class GemGRPOTrainer(GRPOTrainer):
    """Trains a policy on a :mod:`gem_core` environment through TRL's GRPOTrainer.

    Each batch plays ``per_device_train_batch_size * steps_per_generation`` episodes a process. Their turns' advantages
    come from the estimator ``args.advantage`` and go to TRL's loss as a tensor of shape (rows, completion tokens), zero
    on environment tokens. An episode is one row; where its context was rebuilt or its history rewritten, one row a
    sequence, and the batch is filled up with rows that train nothing.

    Evaluation (:meth:`evaluate`, ``eval_strategy``) plays ``args.eval_episodes`` held-out seeds.

    Args:
        model: A model, or a name or path for ``from_pretrained``.
        args: See :class:`~gem_trl.GemConfig`; ``max_steps`` sets the length of the training.
        processing_class: The tokenizer; loaded with the model if None.
        make_env: Builds an environment, for wrappers and the like; None = ``gem_core.make(args.env_id)``.
        renderer: Writes token ids; None = the tokenizer's chat template.
        run_folder: Gets metrics and sampled episodes; ignored on all processes but the main one.
        callbacks: As for ``transformers.Trainer``.
        optimizers: As for ``transformers.Trainer``.
        peft_config: As for ``GRPOTrainer``.

    Raises:
        ValueError: no ``max_steps``, no environment, or an option that the generation backend does not have.
    """

    args: Any  # a GemConfig
    model: Any
    vllm_generation: Any
    processing_class: Any

    def __init__(
        self,
        model: Any,
        args: GemConfig,
        processing_class: Any = None,
        *,
        make_env: Callable[[], Env] | None = None,
        renderer: Renderer | None = None,
        run_folder: RunFolder | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        peft_config: Any = None,
    ) -> None:
        if args.advantage == "gae" and not hasattr(self, "_values"):
            raise ValueError("advantage='gae' needs a critic: use GemPPOTrainer")
        if args.max_steps <= 0:
            raise ValueError("set max_steps: environments have no epochs")
        if make_env is None:
            if not args.env_id:
                raise ValueError("give args.env_id or make_env")
            make(args.env_id, **(args.env_kwargs or {})).close()  # an unknown id or argument is named here, not later
        if args.use_vllm is False and (args.min_p or args.repetition_penalty != 1.0):
            raise ValueError("min_p and repetition_penalty need use_vllm=True")
        # TRL draws its batches from a dataset; here the environment's seeds are the data.
        rows = (args.generation_batch_size or 1) // (args.num_generations or 1)
        placeholder = Dataset.from_dict({"prompt": [[{"role": "user", "content": args.env_id or "episode"}]] * rows})
        self._gem_rows: list[Row] = []
        self._gem_episodes: list[Episode] = []
        self._gem_batch = (-1, 0)  # optimizer step, batches generated since
        self._gem_logps: torch.Tensor | None = None
        self._gem_mask: torch.Tensor | None = None
        self._gem_sampled_logps: torch.Tensor | None = None
        self._gem_stopped = False
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*'rollout_func', which is an experimental.*")
            parent: Any = super()
            parent.__init__(
                model=model,
                reward_funcs=episode_return,
                args=args,
                train_dataset=placeholder,
                eval_dataset=placeholder if args.eval_strategy != "no" else None,
                processing_class=processing_class,
                callbacks=callbacks,
                optimizers=optimizers,
                peft_config=peft_config,
                rollout_func=rollout,
            )
        if self.is_fsdp_enabled and not args.use_vllm:
            raise ValueError("with FSDP, episodes are sampled by vLLM: set use_vllm=True")
        self._gem_tokenizer = getattr(self.processing_class, "tokenizer", self.processing_class)
        if renderer is None:
            template_kwargs: Any = self.chat_template_kwargs
            renderer = ChatRenderer(self._gem_tokenizer, template_kwargs=template_kwargs)
        if args.executor is not None and self._collective_generation:
            raise ValueError("executor needs an engine that each process calls by itself; leave it None")
        self._gem_player = EpisodePlayer(args, make_env, renderer)
        self.run_folder = run_folder if self.accelerator.is_main_process else None
        self.add_callback(_RewindOnResume(self.run_folder))

    # -- playing ----------------------------------------------------------------------------------------------

    def play_episodes(
        self, seeds: Sequence[int], episode_ids: Sequence[str], group_ids: Sequence[str], *, greedy: bool = False
    ) -> list[Episode]:
        """Plays one episode a seed with the current weights.

        With several processes each gives its own seeds, and all call this together.
        """
        with self._policy(greedy) as policy:
            if (executor := self.args.executor) is not None:
                return self._gem_player.play_apart(seeds, episode_ids, group_ids, policy, executor)
            sessions = self._gem_player.sessions(seeds, episode_ids, group_ids)
            play(sessions, policy, self._largest_anywhere if self._collective_generation else None)
        return [s.episode for s in sessions]

    def play_held_out(self, episodes: int | None = None, *, greedy: bool | None = None) -> list[Episode]:
        """Plays held-out seeds, shared out over the processes, and returns all episodes in the order of their seeds.

        Args:
            episodes: How many; ``args.eval_episodes`` if None.
            greedy: ``args.eval_greedy`` if None.
        """
        count = self.args.eval_episodes if episodes is None else episodes
        index = range(self.accelerator.process_index, count, self.accelerator.num_processes)
        ids = [f"eval-{self.state.global_step}-{i}" for i in index]
        played = self.play_episodes(
            [HELD_OUT_SEED + i for i in index], ids, ids, greedy=self.args.eval_greedy if greedy is None else greedy
        )
        return sorted(gather_object(played), key=lambda e: e.seed or 0)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Plays the held-out seeds; returns and logs ``eval_success``, ``eval_return``, ``eval_turns``, ..."""
        episodes = self.play_held_out()
        metrics = summarize(episodes)
        if self.run_folder is not None:
            self.run_folder.log_metrics(self.state.global_step, metrics, split="eval")
            self._log_episodes(episodes[: self.args.sampled_episodes], None, "eval")
        named = {f"{metric_key_prefix}_{k}": v for k, v in metrics.items()}
        was_training = self.model.training
        self.model.eval()  # TRL's log() takes the split from it
        self.log(dict(named))
        self.model.train(was_training)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, named)
        return named

    @contextlib.contextmanager
    def _policy(self, greedy: bool) -> Iterator[Policy]:
        args = self.args
        most = args.max_tokens_per_turn or args.max_completion_length
        sampling = Sampling(args.temperature, args.top_p, max(0, args.top_k or 0), greedy)
        if args.use_vllm:
            if self.state.global_step != self._last_loaded_step:
                self.vllm_generation.sync_weights()
                self._last_loaded_step = self.state.global_step
            stop = {self._gem_tokenizer.eos_token_id, *_ids(self.model.generation_config.eos_token_id)}
            yield VLLMPolicy(self.vllm_generation, max_new_tokens=most, stop_token_ids=sorted(stop), sampling=sampling)
            return
        with (
            unwrap_model_for_generation(
                self.model_wrapped, self.accelerator, gather_deepspeed3_params=args.ds3_gather_for_generation
            ) as model,
            self.accelerator.autocast(),  # as the training pass, whose log probabilities these are
        ):
            yield TransformersPolicy(model, self._gem_tokenizer, sampling=sampling, max_new_tokens=most, seed=args.seed)

    @property
    def _collective_generation(self) -> bool:
        """All processes must call the engine together."""
        args = self.args
        shared = args.use_vllm and (args.vllm_mode == "server" or args.vllm_tensor_parallel_size > 1)
        return bool(shared) and self.accelerator.num_processes > 1

    def _largest_anywhere(self, n: int) -> int:
        return int(self.accelerator.gather(torch.tensor([n], device=self.accelerator.device)).max())

    # -- the training batch -----------------------------------------------------------------------------------

    def _play_batch(self, size: int) -> list[Row]:
        """Plays this process's episodes of one batch."""
        args, step = self.args, self.state.global_step
        last, count = self._gem_batch
        self._gem_batch = (step, count + 1 if last == step else 0)
        first = self.accelerator.process_index * size
        number = range(first, first + size)
        groups = [i // args.num_generations for i in number]
        share = args.groups_share_seed
        seeds = [
            training_seed(args.seed, *self._gem_batch, g if share else i) for i, g in zip(number, groups, strict=True)
        ]
        name = f"{step}.{self._gem_batch[1]}"
        episodes = self.play_episodes(seeds, [f"{name}-{i}" for i in number], [f"{name}-group{g}" for g in groups])
        self._gem_episodes = episodes
        rows = rows_of(episodes, self._kept(episodes), self._gem_tokenizer.eos_token_id)
        # TRL cuts the batch into steps_per_generation equal parts, on every process alike.
        parts = args.steps_per_generation if self.model.training else 1
        longest = int(self.accelerator.gather(torch.tensor([len(rows)], device=self.accelerator.device)).max())
        rows += [filler_row(self._gem_tokenizer.eos_token_id)] * (-(-longest // parts) * parts - len(rows))
        self._gem_rows = rows
        shape = (len(rows), max(len(r.mask) for r in rows))
        self._gem_mask, logps = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
        for i, r in enumerate(rows):
            self._gem_mask[i, : len(r.mask)] = torch.tensor(r.mask)
            logps[i, : len(r.mask)] = torch.tensor(r.logprobs)
        known = all(r.sequence is None or r.sequence.has_logprobs for r in rows)
        self._gem_sampled_logps = logps if args.reuse_logprobs and known else None
        return rows

    def _kept(self, episodes: Sequence[Episode]) -> list[bool]:
        args = self.args
        return [
            (args.keep_failed or not e.failed) and not (args.mask_truncated and e.truncated and not e.failed)
            for e in episodes
        ]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        parent: Any = super()
        try:
            output: dict[str, Any] = parent._generate_and_score_completions(inputs)
        finally:
            self._gem_sampled_logps = None
        self._gem_stopped = False
        per_turn = self._advantages(self._gem_episodes)
        advantages = torch.tensor(spread_over_rows(self._gem_rows, per_turn, output["completion_ids"].shape[1]))
        output["advantages"] = advantages.to(output["completion_ids"].device)
        self._log_batch(per_turn)
        return output

    def _advantages(self, episodes: Sequence[Episode]) -> list[Array]:
        """One array of shape (turns,) an episode."""
        args = self.args
        kept = self._kept(episodes)
        if all(kept):
            return estimate_episodes(
                args.advantage, episodes, gamma=args.gamma, keep_failed=True, reduce=self._reduce_moments
            )
        from gem_core.advantages import estimate

        return estimate(
            args.advantage,
            [e.rewards for e in episodes],
            [e.group_id for e in episodes],
            gamma=args.gamma,
            keep=kept,
            reduce=self._reduce_moments,
        )

    def _reduce_moments(self, moments: Moments) -> Moments:
        """Adds up over all processes."""
        if self.accelerator.num_processes == 1:
            return moments
        local = torch.tensor(moments.as_tuple(), dtype=torch.float64, device=self.accelerator.device)
        return Moments(*self.accelerator.reduce(local, reduction="sum").tolist())

    # -- the update -------------------------------------------------------------------------------------------

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        every = self.args.steps_per_generation * self.num_iterations
        if self._gem_stopped and self._step % every and self._buffered_inputs is not None:
            self._step += 1
            return torch.zeros((), device=self.accelerator.device)
        parent: Any = super()
        loss: torch.Tensor = parent.training_step(model, inputs, num_items_in_batch)
        if self._gem_stopped:
            # No gradient, rather than a zero one: AdamW would go on along its momentum.
            model.zero_grad(set_to_none=True)
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        *args: Any,
        **kw: Any,
    ) -> Any:
        mask = self._gem_mask
        old = self._gem_sampled_logps
        if old is not None and model is self.model and old.shape == (input_ids.shape[0], logits_to_keep):
            return logps_result(old.to(input_ids.device), torch.zeros_like(old) if kw.get("compute_entropy") else None)
        if mask is None or mask.shape != (input_ids.shape[0], logits_to_keep) or not self._gem_sampled_only(kw):
            parent: Any = super()
            result = parent._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *args, **kw
            )
        else:
            with self.accelerator.autocast():
                logps, entropies = sampled_logps(model, input_ids, attention_mask, mask, self.temperature)
            result = logps_result(logps, entropies if kw.get("compute_entropy") else None)
        self._gem_logps = result[0].detach()
        return result

    def _gem_sampled_only(self, kw: dict[str, Any]) -> bool:
        """On a CPU the LM head at every environment token takes as long as half of the model."""
        plain = {"batch_size", "compute_entropy"}
        return self.accelerator.device.type == "cpu" and not any(
            v is not None and v for k, v in kw.items() if k not in plain
        )

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        inputs = _trim(inputs)
        self._gem_mask = inputs["completion_mask"] * inputs["tool_mask"]
        parent: Any = super()
        loss: torch.Tensor = parent._compute_loss(model, inputs)
        old = inputs.get("old_per_token_logps")
        if self.args.kl_stop is None or old is None or not self.model.training:
            return loss
        assert self._gem_logps is not None
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        log_ratio = (self._gem_logps - old) * mask
        # Schulman's k3 estimate: never negative, low variance.
        sums = torch.stack([(log_ratio.exp() - 1 - log_ratio).sum(), mask.sum().float()])
        total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
        kl = total / max(count, 1.0)
        self._metrics["train"]["kl_from_sampling"].append(kl)
        self._gem_stopped = kl > self.args.kl_stop
        self._metrics["train"]["kl_stop"].append(float(self._gem_stopped))
        return loss * 0.0 if self._gem_stopped else loss

    # -- records ----------------------------------------------------------------------------------------------

    def _log_batch(self, per_turn: Sequence[Array]) -> None:
        metrics = summarize(gather_object([_light(e) for e in self._gem_episodes]))
        mode = "train" if self.model.training else "eval"
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)
        if self.run_folder is not None and mode == "train":
            self.run_folder.log_metrics(self.state.global_step, metrics)
            n = self.args.sampled_episodes
            self._log_episodes(self._gem_episodes[:n], [a.tolist() for a in per_turn[:n]], "train")

    def _log_episodes(self, episodes: Sequence[Episode], advantages: Any, split: Any) -> None:
        assert self.run_folder is not None
        tokens = [token_texts(e, self._gem_tokenizer) for e in episodes]
        self.run_folder.log_episodes(self.state.global_step, episodes, advantages, split, tokens)


def rollout(prompts: list[Any], trainer: GemGRPOTrainer) -> dict[str, Any]:
    """TRL's ``rollout_func``: plays as many episodes as there are prompts, whose text does not matter."""
    rows = trainer._play_batch(len(prompts))
    return {
        "prompt_ids": [r.prompt_ids for r in rows],
        "completion_ids": [r.completion_ids for r in rows],
        "logprobs": [r.logprobs for r in rows],
        "env_mask": [r.mask for r in rows],
        "episode_return": [e.total_reward for e in trainer._gem_episodes],
    }


def episode_return(prompts: list[Any], episode_return: list[float], **kwargs: Any) -> list[float]:
    """TRL's reward function: each episode's undiscounted return, for TRL's own logs."""
    return episode_return


class _RewindOnResume(TrainerCallback):
    """A run that goes on from a checkpoint forgets what was recorded after it."""

    def __init__(self, run_folder: RunFolder | None) -> None:
        self._run_folder = run_folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._run_folder is not None and state.global_step > 0:
            self._run_folder.rewind(state.global_step)


def _ids(value: Any) -> list[int]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _light(episode: Episode) -> Episode:
    """What the metrics need of an episode, without its texts."""
    from dataclasses import replace

    turns = [replace(t, observation="", action="", context_ids=(), logprobs=(), info={}) for t in episode.turns]
    return replace(episode, turns=turns, final_observation="", metadata={})


def _trim(inputs: dict[str, Any]) -> dict[str, Any]:
    """Cuts the columns that are padding in every row of a micro-batch; the batch was padded to its longest row."""
    completion, prompt = inputs["completion_mask"], inputs["prompt_mask"]
    used = int(completion.sum(1).max()) if completion.numel() else 0
    unused = prompt.shape[1] - int(prompt.sum(1).max())
    width = completion.shape[1]
    trimmed = dict(inputs)
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or value.dim() != 2:
            continue
        if name in ("prompt_ids", "prompt_mask"):
            trimmed[name] = value[:, unused:]
        elif value.shape[1] == width and width > 1:
            trimmed[name] = value[:, : max(used, 1)]
    return trimmed
