"""The repository's own code on GEM episodes; runs where RL2 is installed from the repository."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from pathlib import Path
from typing import Any

import gem_rl2
import pytest
import torch
from gem_rl2 import repository
from gem_rl2.dataset import rows
from gem_rl2.trainer import extend, write_advantages
from omegaconf import OmegaConf
from RL2.datasets import RLDataset, Sample, SampleGroup, pack_tensor_dicts
from RL2.utils import algorithms, communication
from rl2_helpers import hanging_row, serving, train_config
from rl2_recorded import CONTRACT
from rl2_runs import logged, rows_file, run, same_weights
from test_standins import logprobs

from gem_core import Episode
from gem_core import advantages as adv
from gem_core.tiny import load_tiny

G = 4


@pytest.mark.l1
def test_the_record_is_what_the_repository_asks_for() -> None:
    from RL2.workers.fsdp.actor import FSDPActor
    from RL2.workers.rollout import Rollout

    sample = Sample()
    assert {k: type(v).__name__ for k, v in vars(sample).items()} == CONTRACT["sample_fields"]
    assert {s.name: s.value for s in Sample.Status} == CONTRACT["status"]
    assert CONTRACT["commit"] == gem_rl2.REPOSITORY_COMMIT
    assert gem_rl2.contract() == "repository"

    def parameters(function: Any) -> list[str]:
        return list(inspect.signature(inspect.unwrap(function)).parameters)

    assert parameters(communication.async_request) == CONTRACT["async_request"]
    assert parameters(algorithms.compute_advantages) == CONTRACT["compute_advantages"]
    assert parameters(FSDPActor.ppo_update) == CONTRACT["actor_update"]
    assert parameters(Rollout.__call__) == CONTRACT["rollout_call"]
    assert parameters(gem_rl2.generate) == CONTRACT["generate"]


class Rolled:
    """Groups that the real ``SampleGroup`` played against the stand-in server, and the episodes behind them."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        gem_rl2.configure(gem_rl2.GemSettings(env_timeout_s=20.0, **settings))
        self.model, self.tokenizer = load_tiny(folder)
        self.episodes: dict[str, Episode] = {}
        self.config = train_config(sampling_params={"temperature": 0.7, "max_new_tokens": 6, "stop": None})
        data = [*rows("test:Talk-v0", 5), hanging_row(2)]
        dataset = RLDataset(self.config, self.tokenizer, data)
        original = repository.state_dicts

        def record(episode: Episode, *args: Any) -> Any:
            made = original(episode, *args)
            self.episodes[json.dumps(made)] = episode
            return made

        repository.state_dicts = record
        try:
            self.groups: list[SampleGroup] = asyncio.run(
                communication.with_session(self._play)([dataset[i] for i in range(len(data))])
            )
        finally:
            repository.state_dicts = original

    async def _play(self, groups: list[SampleGroup]) -> list[SampleGroup]:
        async with serving(self.model, self.tokenizer) as (url, _):
            return list(await asyncio.gather(*(g.generate(url, gem_rl2.generate) for g in groups)))

    def batch(self) -> tuple[list[Episode], list[list[dict[str, torch.Tensor]]], dict[str, list[Any]]]:
        episodes, all_dicts, metrics = [], [], {}
        for group in self.groups:
            dicts, some = group.to_all_tensor_dicts_and_metrics()
            all_dicts += dicts
            for k, v in some.items():
                metrics.setdefault(k, []).extend(v)
            episodes += [self.episodes[json.dumps(s.state_dicts)] for s in group.samples]
        return episodes, all_dicts, metrics


@pytest.fixture(scope="module", params=["append", "rebuild"])
def rolled(request: pytest.FixtureRequest, tiny_folder: Path) -> Rolled:
    wrappers = "request_once" if request.param == "append" else "concat_with_action"
    return Rolled(tiny_folder, context=request.param, wrappers=wrappers)


@pytest.mark.l2
def test_every_field_that_rl2_makes_of_an_episode(rolled: Rolled) -> None:
    episodes, all_dicts, metrics = rolled.batch()
    assert len(episodes) == len(all_dicts) == 6 * G
    for i, (episode, dicts) in enumerate(zip(episodes, all_dicts, strict=True)):
        assert episode.failed == (i >= 5 * G)  # the last group's environment raises
        sequences = episode.to_sequences()
        assert len(dicts) == len(sequences)
        for d, s in zip(dicts, sequences, strict=True):
            assert {k: str(v.dtype) for k, v in d.items()} == CONTRACT["tensor_dict"]
            n, length = len(s.prompt_ids), len(s)
            mask = [m * (not episode.failed) for m in s.response_mask]
            # RL2 predicts the next token: states without the last, everything else without the first.
            assert d["states"].tolist() == s.input_ids[:-1]
            assert d["action_mask"].tolist() == [0] * (n - 1) + mask
            sampled = [t * m for t, m in zip(s.response_ids, s.response_mask, strict=True)]
            assert d["actions"].tolist() == [0] * (n - 1) + sampled
            assert d["llm_logps"].tolist() == pytest.approx([0.0] * (n - 1) + s.logprobs, abs=1e-6)
            assert d["rewards"].tolist() == pytest.approx([0.0] * (n - 1) + s.rewards, abs=1e-6)
            assert d["eos_mask"].tolist() == [0] * (length - 2) + [1]
            assert d["position_ids"].tolist() == list(range(length - 1))
    assert metrics["rewards"] == [e.total_reward for e in episodes]
    assert metrics["turns"] == [len(e.turns) for e in episodes]
    assert sum(metrics["gem/failed"]) == G
    assert {e.seed for e in episodes[:G]} == {0}
    assert len({e.group_id for e in episodes}) == 6


@pytest.mark.l2
def test_the_log_probabilities_are_the_models_own(rolled: Rolled) -> None:
    _, all_dicts, _ = rolled.batch()
    checked = 0
    for d in [d for dicts in all_dicts for d in dicts][::5]:
        ids = d["states"].tolist()
        where = d["action_mask"].bool()
        table = logprobs(rolled.model, ids[:1], [*ids[1:], int(d["actions"][-1])], 0.7)
        assert d["llm_logps"][where].tolist() == pytest.approx(torch.tensor(table)[where].tolist(), abs=1e-4)
        checked += int(where.sum())
    assert checked > 50


@pytest.mark.l2
@pytest.mark.parametrize("name", ["rebn", "grpo", "rloo_turn"])
def test_packing_and_advantages_by_rl2_and_by_gem(rolled: Rolled, name: str) -> None:
    episodes, all_dicts, _ = rolled.batch()
    tensors = pack_tensor_dicts([d for dicts in all_dicts for d in dicts])
    cu_seqs = torch.cumsum(torch.tensor([0, *(len(d) for d in all_dicts)]), 0)
    config = OmegaConf.create(
        {
            "actor": {"kl": {"coef": 0.0, "type": None}},
            "adv": {
                "estimator": "reinforce",
                "gamma": 0.9,
                "lamda": 1.0,
                "responses_per_prompt": G,
                "global_norm": False,
                "norm_var": False,
            },
        }
    )
    algorithms.compute_advantages(config, tensors, cu_seqs, 0)
    # RL2's own: the episode's return minus its group's mean, on every sampled token.
    returns = torch.tensor([0.0 if e.failed else e.total_reward for e in episodes]).view(-1, G)
    centred = (returns - returns.mean(1, keepdim=True)).flatten()
    mask = tensors["action_mask"].bool()
    for i, (a, b) in enumerate(itertools.pairwise(cu_seqs)):
        own = tensors["advantages"][a:b][mask[a:b]]
        torch.testing.assert_close(own, centred[i].expand_as(own), atol=1e-5, rtol=1e-5)
    write_advantages(config, tensors, cu_seqs, name)
    expected = adv.estimate_episodes(name, episodes, gamma=0.9)
    assert tensors["advantages"][~mask].abs().sum() == 0
    distinct = 0
    for episode, per_turn, a in zip(episodes, expected, cu_seqs.tolist(), strict=False):
        for row, s in enumerate(episode.to_sequences()):
            n = len(s.prompt_ids) - 1
            got = tensors["advantages"][a + row, n : n + len(s.response_ids)].tolist()
            assert got == pytest.approx(s.spread(per_turn.tolist()), abs=1e-5)
        distinct += len(set(per_turn.tolist())) > 1
    assert distinct or name == "grpo"


@pytest.mark.l2
def test_a_group_is_printed_and_saved(rolled: Rolled, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from copy import deepcopy

    for group in (rolled.groups[0], rolled.groups[-1]):
        group.print()
        group = deepcopy(group)
        group.config.save_dir = str(tmp_path)
        group.save(3)
    assert "[Reward]" in capsys.readouterr().out
    saved = [json.loads(line) for line in (tmp_path / "step3.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [len(samples) for samples in saved] == [G, G]
    assert saved[0][0]["status"] == "done"


@pytest.mark.l1
def test_mistakes_of_the_estimator_are_named() -> None:
    class Trainer:
        config = OmegaConf.create({"adv": {"estimator": "gae"}})

    with pytest.raises(ValueError, match=r"gem\.estimator must be one of"):
        extend(Trainer(), "rebm")
    with pytest.raises(ValueError, match=r"gem\.estimator=rl2"):
        extend(Trainer(), "rebn")
    extend(Trainer(), "rl2")


def overrides(folder: Path, model: Path, **more: Any) -> list[str]:
    data = rows_file(folder / "train.jsonl", ["test:Talk-v0", "test:FlakyTalk-v0"], 48)
    made: dict[str, Any] = {
        "rollout.train.path": data,
        "rollout.test.path": data,
        "rollout.env_path": Path(__file__).with_name("rl2_trainer_env.py"),
        "rollout.train.prompts_per_rollout": 6,
        "rollout.train.responses_per_prompt": 4,
        "rollout.train.dynamic_filtering": "false",
        "rollout.train.sampling_params.max_new_tokens": 6,
        "actor.model_name": model,
        "actor.dtype": "float32",
        "actor.max_length_per_device": 1024,
        "actor.enable_gradient_checkpointing": "false",
        "actor.offload_model": "false",
        "actor.offload_optimizer": "false",
        "actor.optimizer.lr": 1e-3,
        "adv.gamma": 0.9,
        "trainer.total_steps": 3,
        "trainer.use_wandb": "false",
        "trainer.project": "test",
        "trainer.experiment_name": "test",
        "+gem.wrappers": "request_once",
        "+gem.estimator": "rebn",
        **more,
    }
    return [f"{k}={v}" for k, v in made.items()]


@pytest.mark.l3
@pytest.mark.timeout(300)
def test_three_iterations_of_the_real_trainer(tmp_path: Path, tiny_folder: Path) -> None:
    output = run(tmp_path, overrides(tmp_path, tiny_folder, **{"rollout.train.partial_rollout": "true"}))
    assert len(logged(output, "actor/loss")) == 3
    assert all(norm > 0.0 for norm in logged(output, "actor/grad_norm"))
    # The engine's log probabilities are the actor's, under the new weights too.
    assert all(abs(kl) < 1e-4 for kl in logged(output, "actor/llm_old_approx_kl"))
    assert 0.0 < max(logged(output, "gem/failed/train")) < 1.0
    assert not same_weights(tiny_folder, tmp_path / "ckpts" / "test" / "actor")
    saved = (tmp_path / "ckpts" / "test" / "train" / "step3.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(saved) >= 6
    assert all(s["status"] == "done" for line in saved for s in json.loads(line))
