"""rl-square 0.0.2, from the package index: ``reset`` and ``step`` under its own rollout, packing and trainer."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gem_rl2
import pytest
import torch
from contract import episodes
from gem_rl2 import release
from gem_rl2.advantages import turn_spans
from gem_rl2.player import PLAYERS
from gem_rl2.rows import masked
from gem_rl2.text import TextTokenizer
from gem_rl2.trainer import extend, write_advantages
from omegaconf import OmegaConf
from RL2.datasets import RLDataset, pack_tensor_dicts
from RL2.utils.algorithms import compute_advantages
from RL2.workers import Rollout
from rl2_helpers import CLOSED, GUESS, Scripted, hanging_row, listening, serving
from rl2_runs import logged, rows_file, run, same_weights
from support import DROPS_REASONING, QWEN_LIKE, build_tokenizer

from gem_core import Episode
from gem_core import advantages as adv
from gem_core.chat import ChatRenderer
from gem_core.tiny import load_tiny

G = 4
ADV = {
    "estimator": "reinforce",
    "gamma": 0.9,
    "lamda": 1.0,
    "responses_per_prompt": G,
    "global_norm": False,
    "norm_var": False,
}


def rollout_of(tokenizer: Any, url: str, max_turns: int = 8, **sampling: Any) -> Any:
    """RL2's rollout without its processes: what its own ``rollout`` method reads."""
    rollout = Rollout.__new__(Rollout)
    rollout.config = OmegaConf.create({"max_turns": max_turns, "env_path": gem_rl2.ENV_PATH})
    rollout.prepare_environment()
    rollout.tokenizer, rollout.router_url = tokenizer, url
    params = {"temperature": 1.0, "max_new_tokens": 6, "no_stop_trim": True, "skip_special_tokens": False, **sampling}
    rollout.train_sampling_params = rollout.test_sampling_params = params
    config = OmegaConf.create({"adv": ADV, "actor": {"kl": {"coef": 0.0}}})
    extend(SimpleNamespace(config=config, rollout=rollout), "rebn")
    return rollout


@pytest.fixture(autouse=True)
def _tokenizer(tiny_folder: Path) -> None:
    gem_rl2.configure(gem_rl2.GemSettings(tokenizer=str(tiny_folder), env_timeout_s=20.0))


def use(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets ``release`` find a tokenizer that lies in no folder."""
    settings = gem_rl2.GemSettings(tokenizer="test", env_timeout_s=20.0)
    monkeypatch.setitem(release._TOKENIZERS, "test", (tokenizer, TextTokenizer(tokenizer)))
    monkeypatch.setattr(release, "_RENDERERS", {})
    gem_rl2.configure(settings)
    return settings


@pytest.mark.l1
def test_this_is_the_release() -> None:
    assert gem_rl2.contract() == "0.0.2"
    spec = importlib.util.spec_from_file_location("custom_module", gem_rl2.ENV_PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.reset is gem_rl2.reset
    assert module.step is gem_rl2.step
    assert not hasattr(module, "generate")


class Replay:
    """An environment that says what an episode's environment said."""

    env_id, cost = "test:Replay-v0", "cheap"

    def __init__(self, episode: Episode) -> None:
        self.episode, self.turn = episode, 0
        self.actions: list[str] = []

    def reset(self, seed: int | None = None, **_: Any) -> tuple[str, dict[str, Any]]:
        return self.episode.turns[0].observation, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        turn, self.turn = self.episode.turns[self.turn], self.turn + 1
        last = self.turn == len(self.episode.turns)
        if last and self.episode.failed:
            raise RuntimeError("the environment broke")
        following = "" if last else self.episode.turns[self.turn].observation
        ended = last and self.episode.terminated
        return following, turn.reward, ended, last and not ended, {}

    def close(self) -> None: ...


@pytest.mark.l1
@pytest.mark.parametrize("template", [QWEN_LIKE, DROPS_REASONING])
def test_the_contract_episodes_come_through_as_text(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = build_tokenizer(template)
    settings = use(tokenizer, monkeypatch)
    real = ChatRenderer(tokenizer)
    several = 0

    async def play(episode: Episode, env: Replay) -> tuple[list[tuple[str, str, bool]], list[float], Episode]:
        monkeypatch.setattr(release.Task, "make_env", lambda *_: env)
        state, info = await gem_rl2.reset({"env_id": "test:Replay-v0", "seed": 0, "group": episode.group_id})
        seen, rewards = [(state, "", True)], []
        for turn in episode.turns:
            action = tokenizer.decode(list(turn.response_ids))
            response = await gem_rl2.step(state, action, info)
            rewards.append(response["reward"])
            assert response["score"] == response["reward"]
            if response["done"]:
                break
            appended = response["next_state"].startswith(state + action)
            state, info = response["next_state"], response["extra_info"]
            seen.append((state, action, not appended))
        assert response["done"]
        played = release.take_episode(info)
        assert played is not None
        return seen, rewards, played

    for episode in episodes(50):
        env = Replay(episode)
        seen, rewards, played = asyncio.run(play(episode, env))
        assert rewards == episode.rewards
        assert played.group_id == episode.group_id
        assert played.failed == episode.failed == masked(played, settings)
        assert len(seen) == len(episode.turns)
        # The states are the prompts that token ids would have given, as text.
        messages: list[dict[str, str]] = []
        ids: list[int] = []
        for (state, _, new), turn in zip(seen, episode.turns, strict=True):
            user = {"role": "user", "content": turn.observation}
            if not messages:
                ids, fresh = real.start([user]), True
            else:
                context = real.extend(messages, turn.observation, ids[-1])
                ids, fresh = (context.ids if context.new_sequence else ids + context.ids), context.new_sequence
            assert (state, new) == (tokenizer.decode(ids), fresh)
            several += fresh and bool(messages)
            messages += [user, {"role": "assistant", "content": real.decode(turn.response_ids)}]
            ids = [*ids, *turn.response_ids]
    assert several > 3 or template == QWEN_LIKE


@pytest.mark.l1
def test_an_end_of_turn_token_appears_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = build_tokenizer(QWEN_LIKE)
    use(tokenizer, monkeypatch)

    async def second(action: str) -> str:
        state, info = await gem_rl2.reset(dict(GUESS))
        response = await gem_rl2.step(state, action, info)
        await release.drop(info)
        assert response["next_state"].startswith(state + action)
        return str(response["next_state"][len(state) :])

    ended, cut = (asyncio.run(second("\\boxed{99}" + end)) for end in ("<|im_end|>", ""))
    assert ended == cut
    assert ended.count("<|im_end|>") == 2  # the answer's and the observation's


@pytest.mark.l1
def test_answers_without_their_end_are_warned_of(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr(release, "_seen", {"answers": 0, "ended": 0})
    with caplog.at_level(logging.WARNING):
        for _ in range(release._WARN_AFTER):
            release._watch_ends(False)
    assert "skip_special_tokens=false" in caplog.text


@pytest.mark.l1
def test_an_episode_that_rl2_gave_up_is_closed() -> None:
    gem_rl2.configure(gem_rl2.GemSettings(tokenizer=gem_rl2.settings.current().tokenizer, idle_s=0.05))
    CLOSED.clear()

    async def main() -> None:
        await gem_rl2.reset(hanging_row(3)["extra_info"])
        await asyncio.sleep(0.1)
        _, info = await gem_rl2.reset(hanging_row(4)["extra_info"])
        assert len(PLAYERS) == 1
        await release.drop(info)
        response = await gem_rl2.step("", "1", info)
        assert response["done"]
        assert response["reward"] == 0.0

    asyncio.run(main())
    assert CLOSED == [3, 4]


@pytest.mark.l1
def test_the_context_limit_counts_the_models_tokens(tiny_folder: Path) -> None:
    tokenizer = load_tiny(tiny_folder)[1]

    async def turns(limit: int | None) -> tuple[int, Any]:
        gem_rl2.configure(gem_rl2.GemSettings(tokenizer=str(tiny_folder), max_context_tokens=limit))
        state, info = await gem_rl2.reset({"env_id": "test:Talk-v0", "seed": 2, "group": "g"})
        for turn in itertools.count(1):
            response = await gem_rl2.step(state, "7" + tokenizer.eos_token, info)
            if response["done"]:
                return turn, release.take_episode(info)
            state = response["next_state"]
            if limit is not None:
                assert len(tokenizer.encode(state, add_special_tokens=False)) < limit
        raise AssertionError

    whole, _ = asyncio.run(turns(None))
    cut, episode = asyncio.run(turns(40))
    assert cut < whole
    assert str(episode.stop_reason) == "context_length"


@pytest.mark.l1
def test_a_tokenizer_is_asked_for() -> None:
    gem_rl2.configure(gem_rl2.GemSettings())
    with pytest.raises(ValueError, match=r"gem_rl2\.trainer"):
        asyncio.run(gem_rl2.reset(dict(GUESS)))


@pytest.mark.l2
def test_a_hang_or_an_exception_costs_its_own_episode_only(tiny_folder: Path) -> None:
    tokenizer = load_tiny(tiny_folder)[1]
    gem_rl2.configure(gem_rl2.GemSettings(tokenizer=str(tiny_folder), env_timeout_s=0.4))
    CLOSED.clear()

    async def main() -> Any:
        async with listening(Scripted(tokenizer, "7").app()) as url:
            rollout = rollout_of(tokenizer, url)
            return await asyncio.gather(*(rollout.rollout(hanging_row(seed), True) for seed in range(5)))

    started = time.monotonic()
    outputs = asyncio.run(main())
    assert time.monotonic() - started < 4.0
    assert [metric["gem/failed"] for _, metric in outputs] == [[1.0]] * 3 + [[0.0]] * 2
    assert [metric["scores"] for _, metric in outputs] == [[0.0], [0.5], [0.5], [3.0], [3.0]]
    assert [sum(int(d["action_mask"].sum()) for d in dicts) > 0 for dicts, _ in outputs] == [False] * 3 + [True] * 2
    assert len({frozenset(metric) for _, metric in outputs}) == 1  # RL2 reads the first one's keys
    assert sorted(CLOSED) == [2, 3, 4]


@pytest.mark.l2
def test_running_out_of_rl2s_turns_closes_the_environment(tiny_folder: Path) -> None:
    tokenizer = load_tiny(tiny_folder)[1]
    CLOSED.clear()

    async def main() -> Any:
        async with listening(Scripted(tokenizer, "7").app()) as url:
            return await rollout_of(tokenizer, url, max_turns=2).rollout(hanging_row(3), True)

    _, metric = asyncio.run(main())
    assert metric["n_turns"] == [2]
    assert metric["scores"] == [1.5]
    assert CLOSED == [3]


class Rolled:
    """What RL2's own rollout made of GEM episodes that the stand-in server's tiny model played."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        gem_rl2.configure(gem_rl2.GemSettings(tokenizer=str(folder), env_timeout_s=20.0, **settings))
        self.model, self.tokenizer = load_tiny(folder)
        from gem_rl2.dataset import rows

        data = RLDataset.__new__(RLDataset)
        data.config = OmegaConf.create({"responses_per_prompt": G})
        data.dataset = [*rows("test:Talk-v0", 5), hanging_row(2)]
        self.data = data.collate_fn([data[i] for i in range(6)])
        self.episodes: dict[int, Episode] = {}
        original = release._finish

        def record(number: int, episode: Episode) -> None:
            self.episodes[number] = episode
            original(number, episode)

        release._finish = record
        try:
            self.outputs = asyncio.run(self._play())
        finally:
            release._finish = original
        self.in_order = [self.episodes[d["extra_info"]["gem_player"]] for d in self.data]

    async def _play(self) -> Any:
        async with serving(self.model, self.tokenizer) as (url, _):
            rollout = rollout_of(self.tokenizer, url, temperature=0.7)
            return await asyncio.gather(*(rollout.rollout(d, True) for d in self.data))


@pytest.fixture(scope="module", params=["append", "rebuild"])
def rolled(request: pytest.FixtureRequest, tiny_folder: Path) -> Rolled:
    wrappers = "request_once" if request.param == "append" else "concat_with_action"
    return Rolled(tiny_folder, context=request.param, wrappers=wrappers)


@pytest.mark.l2
def test_every_field_that_rl2_makes_of_an_episode(rolled: Rolled) -> None:
    text = TextTokenizer(rolled.tokenizer)
    assert len(rolled.outputs) == 6 * G
    for i, (episode, (dicts, metric)) in enumerate(zip(rolled.in_order, rolled.outputs, strict=True)):
        assert episode.failed == (i >= 5 * G)
        sequences = episode.to_sequences()  # in characters and special tokens; see gem_rl2.text
        assert len(dicts) == len(sequences)
        for d, s in zip(dicts, sequences, strict=True):
            ids = [*d["states"].tolist(), int(d["actions"][-1])]
            assert rolled.tokenizer.decode(ids) == text.text(s.input_ids)
            assert {int(v.shape[0]) for v in d.values()} == {len(ids) - 1}
            assert d["eos_mask"].tolist() == [0] * (len(ids) - 2) + [1]
            assert int(d["action_mask"][-1]) == (not episode.failed)
            sampled = d["llm_logps"] < 0  # token 0 may be sampled, so the actions do not tell
            assert torch.equal(d["llm_logps"] != 0, sampled)
            assert torch.equal(d["actions"], torch.tensor(ids[1:]) * sampled)
            assert torch.equal(d["action_mask"].bool(), sampled & (not episode.failed))
            # The runs of sampled tokens are the answers, each with its turn's reward on its last token.
            (spans,) = turn_spans(sampled[None], [0, 1])
            runs = [list(range(a, b)) for _, a, b in spans]
            assert len(runs) == len(s.turns)
            for run_, turn in zip(runs, s.turns, strict=True):
                answer = text.text(episode.turns[turn].response_ids)
                assert rolled.tokenizer.decode([int(d["actions"][k]) for k in run_]) == answer
                rewards = [float(d["rewards"][k]) for k in run_]
                assert rewards == pytest.approx([0.0] * (len(run_) - 1) + [episode.turns[turn].reward])
            assert float(d["rewards"].sum()) == pytest.approx(sum(s.rewards), abs=1e-6)
        assert metric["scores"] == pytest.approx([episode.total_reward])
        assert metric["n_turns"] == [len(episode.turns)]
        assert metric["gem/failed"] == [float(episode.failed)]
    assert len({e.group_id for e in rolled.in_order}) == 6


@pytest.mark.l2
@pytest.mark.parametrize("name", ["rebn", "grpo", "rloo_turn"])
def test_packing_and_advantages_by_rl2_and_by_gem(rolled: Rolled, name: str) -> None:
    all_dicts = [dicts for dicts, _ in rolled.outputs]
    tensors = pack_tensor_dicts([d for dicts in all_dicts for d in dicts])
    cu_seqs = torch.cumsum(torch.tensor([0, *(len(d) for d in all_dicts)]), 0)
    config = OmegaConf.create({"adv": ADV, "actor": {"kl": {"coef": 0.0, "type": None}}})
    compute_advantages(config.adv, tensors, cu_seqs, 0)
    returns = torch.tensor([0.0 if e.failed else e.total_reward for e in rolled.in_order]).view(-1, G)
    centred = (returns - returns.mean(1, keepdim=True)).flatten()
    mask = tensors["action_mask"].bool()
    for i, (a, b) in enumerate(itertools.pairwise(cu_seqs)):
        own = tensors["advantages"][a:b][mask[a:b]]
        torch.testing.assert_close(own, centred[i].expand_as(own), atol=1e-5, rtol=1e-5)
    write_advantages(config, tensors, cu_seqs, name)
    expected = adv.estimate_episodes(name, rolled.in_order, gamma=0.9)
    assert tensors["advantages"][~mask].abs().sum() == 0
    for i, (a, b) in enumerate(itertools.pairwise(cu_seqs.tolist())):
        firsts = [
            float(tensors["advantages"][row, k])
            for row in range(a, b)
            for k in range(mask.shape[1])
            if mask[row, k] and not (k and mask[row, k - 1])
        ]
        assert firsts == pytest.approx([] if rolled.in_order[i].failed else expected[i].tolist(), abs=1e-5)


@pytest.mark.l3
@pytest.mark.timeout(300)
def test_three_iterations_of_the_real_trainer(tmp_path: Path, tiny_folder: Path) -> None:
    data = rows_file(tmp_path / "train.jsonl", ["test:Talk-v0", "test:FlakyTalk-v0"], 18)
    test = rows_file(tmp_path / "test.jsonl", ["test:Talk-v0"], 4)
    overrides: dict[str, Any] = {
        "train_data.path": data,
        "train_data.prompts_per_rollout": 6,
        "train_data.responses_per_prompt": 4,
        "test_data.path": test,
        "rollout.env_path": Path(__file__).with_name("rl2_trainer_env.py"),
        "rollout.max_turns": 4,
        "rollout.dynamic_filtering": "false",
        "rollout.train_sampling_params.max_new_tokens": 6,
        "rollout.server_args.dtype": "float32",
        "actor.model_name": tiny_folder,
        "actor.max_length_per_device": 1024,
        "actor.gradient_checkpointing": "false",
        "actor.offload_model": "false",
        "actor.offload_optimizer": "false",
        "actor.lr": 1e-3,
        "adv.gamma": 0.9,
        "trainer.test_freq": 3,
        "trainer.use_wandb": "false",
        "trainer.project": "test",
        "trainer.experiment_name": "test",
        "+gem.wrappers": "request_once",
        "+gem.estimator": "rebn",
    }
    output = run(tmp_path, [f"{k}={v}" for k, v in overrides.items()])
    assert len(logged(output, "actor/loss")) == 3
    assert all(norm > 0.0 for norm in logged(output, "actor/grad_norm"))
    assert 0.0 < max(logged(output, "gem/failed/train")) < 1.0
    assert len(logged(output, "gem/success/test")) == 1
    assert not same_weights(tiny_folder, tmp_path / "ckpts" / "test")
