"""Policies by name, with what an evaluation needs to run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gem_core.evaluation.human import HumanPolicy
from gem_core.policies import Sampling, ScriptedPolicy, TextPolicy

if TYPE_CHECKING:
    from gem_core.chat import Renderer
    from gem_core.rollout import AnyPolicy
    from gem_core.session import Prompt

Backend = Literal["endpoint", "transformers", "vllm"]
#: Names that need no model.
BUILT_IN = ("random", "scripted", "human")


@dataclass(frozen=True)
class Player:
    """A policy and how it is run."""

    policy: AnyPolicy
    name: str
    #: What the answers depend on; a run is resumed only with the same.
    config: Mapping[str, Any] = field(default_factory=dict)
    renderer: Renderer | None = None
    #: Answers cost something: they are kept on disk until their episode is.
    paid: bool = True
    #: Most prompts in one call.
    max_batch: int | None = None
    #: Most episodes at once; None = as the caller says.
    max_concurrency: int | None = None
    #: The model's context window, where it is known.
    max_context_tokens: int | None = None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class ModelOptions:
    """How a model is run; those that a backend does not use are refused."""

    backend: Backend | None = None
    base_url: str | None = None
    api_key: str | None = None
    #: Endpoints only: chat messages, or token ids.
    mode: Literal["chat", "completions"] = "chat"
    #: Renders token ids; None = the model's own.
    tokenizer: str | None = None
    #: For the chat template, such as ``{"enable_thinking": False}``.
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: None = the endpoint's default, 1.0 for local models. 0 = the likeliest token.
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    #: Sampled in one turn.
    max_tokens: int | None = None
    seed: int = 0
    #: For the endpoint, see :class:`~gem_core.evaluation.OpenAIPolicy`; for vLLM, its engine arguments.
    extra: Mapping[str, Any] = field(default_factory=dict)
    #: Local models: ``"cpu"``, ``"cuda"``, ...; None = a GPU where there is one.
    device: str | None = None


def load_player(name: str, env_ids: Sequence[str], options: ModelOptions | None = None) -> Player:
    """Builds a player.

    Args:
        name: ``"random"``, ``"scripted"``, ``"human"``, or a model: its name at the endpoint where ``options.base_url``
            is given, else a Hugging Face id or folder.
        env_ids: What it will play.
        options: For models.

    Raises:
        ValueError: no expert for an environment (``"scripted"``), no such model, options that do not fit.
        ImportError: a package is missing.
    """
    how = options or ModelOptions()
    if name in BUILT_IN:
        if how.base_url is not None:
            raise ValueError(f"{name!r} is played here, not at an endpoint; leave base_url out or name a model")
        if name == "random":
            return Player("random", name, {"policy": name}, paid=False)
        if name == "human":
            return Player(HumanPolicy(), name, {"policy": name}, max_batch=1, max_concurrency=1)
        return Player(scripted(env_ids, how.seed), name, {"policy": name, "seed": how.seed}, paid=False)
    backend = how.backend or ("endpoint" if how.base_url is not None else "transformers")
    if backend == "endpoint":
        return _endpoint(name, how)
    if how.base_url is not None:
        raise ValueError(f"base_url is for endpoints, not for backend {backend!r}")
    if backend == "transformers":
        return _transformers(name, how)
    if backend == "vllm":
        return _vllm(name, how)
    raise ValueError(f"backend must be 'endpoint', 'transformers' or 'vllm', got {backend!r}")


def as_player(policy: Any, env_ids: Sequence[str], renderer: Renderer | None = None) -> Player:
    """Takes what :func:`~gem_core.evaluation.evaluate` is given for a policy."""
    if isinstance(policy, Player):
        return policy
    if isinstance(policy, str):
        return load_player(policy, env_ids)
    generate = getattr(policy, "generate", None)
    if not callable(generate):
        raise ValueError(f"a policy is a name, a Player, or has a method generate(prompts); got {policy!r}")
    config = dict(getattr(policy, "config", None) or {"policy": type(policy).__name__})
    many = inspect.iscoroutinefunction(generate)
    # One prompt a call: the slowest answer of a call would hold up the others, and one failure would fail them all.
    return Player(policy, str(config.get("policy")), config, renderer, max_batch=1 if many else None)


def scripted(env_ids: Sequence[str], seed: int = 0) -> TextPolicy:
    """The experts of several environments; episodes are told apart by their ids, as :mod:`.plan` writes them."""
    experts = {e: ScriptedPolicy(e, seed=seed) for e in env_ids}

    def answer(prompt: Prompt) -> str:
        text = experts[prompt.episode_id.rsplit(":", 2)[0]].generate([prompt])[0].text
        assert text is not None
        return text

    return TextPolicy(answer)


def _endpoint(name: str, how: ModelOptions) -> Player:
    from gem_core.evaluation.endpoint import OpenAIPolicy

    extra = dict(how.extra)
    if how.top_k is not None:
        extra["extra_body"] = {**extra.get("extra_body", {}), "top_k": how.top_k}
    policy = OpenAIPolicy(
        name,
        base_url=how.base_url,
        api_key=how.api_key,
        mode=how.mode,
        temperature=how.temperature,
        top_p=how.top_p,
        max_tokens=how.max_tokens,
        seed=how.seed or None,
        **extra,
    )
    renderer = None
    if how.mode == "completions":
        from gem_core.evaluation.local import load_tokenizer, make_renderer

        renderer = make_renderer(load_tokenizer(how.tokenizer or name), how.template_kwargs)
    elif how.template_kwargs:
        raise ValueError(
            "template_kwargs are for token-level modes; for chat send extra_body={'chat_template_kwargs': ...}"
        )
    return Player(policy, name, policy.config, renderer, max_batch=1)


def _sampling(how: ModelOptions) -> Sampling:
    greedy = how.temperature == 0
    temperature = 1.0 if how.temperature is None or greedy else how.temperature
    return Sampling(temperature, 1.0 if how.top_p is None else how.top_p, how.top_k or 0, greedy)


def _local_config(name: str, how: ModelOptions, backend: Backend) -> dict[str, Any]:
    keys = ("temperature", "top_p", "top_k", "max_tokens", "seed")
    return {"policy": name, "backend": backend, **{k: getattr(how, k) for k in keys}}


def _transformers(name: str, how: ModelOptions) -> Player:
    if how.extra:
        raise ValueError(f"backend 'transformers' takes no further options, got {sorted(how.extra)}")
    from gem_core.evaluation.local import load_model, load_tokenizer, make_renderer
    from gem_core.policies import TransformersPolicy

    tokenizer = load_tokenizer(how.tokenizer or name)
    model = load_model(name, how.device)
    policy = TransformersPolicy(
        model, tokenizer, sampling=_sampling(how), max_new_tokens=how.max_tokens or 1024, seed=how.seed
    )
    return Player(
        policy,
        name,
        _local_config(name, how, "transformers"),
        make_renderer(tokenizer, how.template_kwargs),
        max_batch=64,  # a batch pads to its longest prompt and waits for its longest answer
        max_context_tokens=getattr(model.config.get_text_config(), "max_position_embeddings", None),
    )


def _vllm(name: str, how: ModelOptions) -> Player:
    from gem_core.evaluation.local import load_tokenizer, make_renderer
    from gem_core.evaluation.vllm_policy import VLLMPolicy

    tokenizer = load_tokenizer(how.tokenizer or name)
    policy = VLLMPolicy(
        name, sampling=_sampling(how), max_new_tokens=how.max_tokens or 1024, seed=how.seed, engine=dict(how.extra)
    )
    renderer = make_renderer(tokenizer, how.template_kwargs)
    config = _local_config(name, how, "vllm")
    return Player(policy, name, config, renderer, max_batch=1, close=policy.close)
