"""OpenEnv servers (https://github.com/meta-pytorch/OpenEnv) as gem_core environments."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from gem_core.core import Cost, Env, Info, StepTuple, rng_from_state, rng_state

logger = logging.getLogger(__name__)

_SCHEMA_TIMEOUT_S = 10.0
#: Fields of every OpenEnv observation and action that are not content.
_COMMON = ("done", "reward", "metadata")


class OpenEnvEnv(Env):
    r"""An environment behind an OpenEnv server.

    The server's action schema says how an action's text is sent: an action with one required text field gets the whole
    text in it; one with several gets the last JSON object in the text (an action without one costs the turn and says
    so). An observation with one text field is that text; others are written one field a line.

    Args:
        server: ``http://host:port`` of a running server, or a name for OpenEnv's ``AutoEnv`` (an installed environment
            package, or a Hub repository: that starts a container).
        action_field: The action's field that takes the text, where the schema leaves a choice.
        to_action: From the action's text to the action's fields, instead of the above.
        to_text: From the observation's fields to the observation's text, instead of the above.
        connect_timeout_s: For the connection.
        message_timeout_s: For each reset and step.
        auto_env_kwargs: For ``AutoEnv.from_env``.
    """

    cost: ClassVar[Cost] = "waits"

    def __init__(
        self,
        server: str,
        action_field: str | None = None,
        to_action: Callable[[str], Mapping[str, Any]] | None = None,
        to_text: Callable[[Mapping[str, Any]], str] | None = None,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 60.0,
        auto_env_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            from openenv.core import GenericEnvClient
        except ModuleNotFoundError as e:
            raise ImportError(f"openenv: needs the package {e.name!r}: pip install openenv-core", name=e.name) from e
        self.server = server
        self.to_action = to_action
        self.to_text = to_text
        if server.startswith(("http://", "https://", "ws://", "wss://")):
            client: Any = GenericEnvClient(
                base_url=server, connect_timeout_s=connect_timeout_s, message_timeout_s=message_timeout_s
            )
            self._properties = _action_properties(server, bool(to_action or action_field))
        else:
            from openenv import AutoEnv

            client = AutoEnv.from_env(server, **dict(auto_env_kwargs or {}))
            self._properties = {}
        self.action_field = action_field
        if to_action is None and action_field is None:
            self.action_field = _only_text_field(self._properties)
        if self._properties and action_field is not None and action_field not in self._properties:
            raise ValueError(
                f"the action of {server} has no field {action_field!r} (it has: {', '.join(self._properties)})"
            )
        self._client = client.sync()
        self._connected = False
        self._seed = 0
        self._log: list[str] = []
        self._over = True

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """``options`` are passed to the server's reset."""
        if seed is not None:
            self.seed(seed)
        self._seed = self.rng.randrange(2**31)
        return self._start(options)

    def step(self, action: str) -> StepTuple:
        if self._over:
            raise RuntimeError(f"{type(self).__name__}: the episode is over or was never started; call reset()")
        self._log.append(action)
        try:
            payload = self._to_payload(action)
        except ValueError as e:
            return str(e), 0.0, False, False, {"action_is_valid": False}
        result = self._client.step(payload)
        self._over = bool(result.done)
        return self._text(result.observation), float(result.reward or 0.0), self._over, False, self._info(result)

    def sample_random_action(self) -> str:
        """A random value of the action's type, where the schema says enough."""
        fields = {
            name: _sample(self.action_rng, schema)
            for name, schema in self._properties.items()
            if name == self.action_field or self.action_field is None
        }
        if self.action_field is not None:
            return str(fields.get(self.action_field, ""))
        return json.dumps(fields)

    def get_state(self) -> dict[str, Any]:
        """The seed and the actions so far; :meth:`set_state` plays them again on the server."""
        return {
            "rng": rng_state(self.rng),
            "action_rng": rng_state(self.action_rng),
            "seed": self._seed,
            "actions": list(self._log),
            "over": self._over,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._rng = rng_from_state(state["rng"])
        self._action_rng = rng_from_state(state["action_rng"])
        self._seed = state["seed"]
        if state["actions"] or not state["over"]:
            self._start(None)
            for action in state["actions"]:
                self.step(action)
        self._over = state["over"]

    def close(self) -> None:
        if self._connected:
            self._connected = False
            self._client.close()
        self._over = True

    # -- inside -----------------------------------------------------------------------------------------------

    def _start(self, options: dict[str, Any] | None) -> tuple[str, Info]:
        if not self._connected:
            self._client.connect()
            self._connected = True
        result = self._client.reset(seed=self._seed, **(options or {}))
        self._log, self._over = [], bool(result.done)
        return self._text(result.observation), self._info(result)

    def _to_payload(self, action: str) -> dict[str, Any]:
        if self.to_action is not None:
            return dict(self.to_action(action))
        if self.action_field is not None:
            kind = self._properties.get(self.action_field, {}).get("type", "string")
            return {self.action_field: _typed(action, kind)}
        payload = _last_object(action)
        if payload is None:
            fields = ", ".join(self._properties) or "the action's fields"
            raise ValueError(f"An action is a JSON object with {fields}; none was found, so the turn is lost.")
        return payload

    def _text(self, observation: Any) -> str:
        fields = _fields(observation)
        if self.to_text is not None:
            return self.to_text(fields)
        content = {k: v for k, v in fields.items() if k not in _COMMON and v is not None}
        if len(content) == 1 and isinstance(value := next(iter(content.values())), str):
            return value
        lines = (f"{k}: {v if isinstance(v, str) else json.dumps(v, default=str)}" for k, v in content.items())
        return "\n".join(lines)

    def _info(self, result: Any) -> Info:
        metadata = _fields(result.observation).get("metadata")
        return dict(metadata) if isinstance(metadata, Mapping) else {}


def _fields(observation: Any) -> dict[str, Any]:
    if isinstance(observation, Mapping):
        return dict(observation)
    if hasattr(observation, "model_dump"):
        return dict(observation.model_dump())
    return dict(vars(observation)) if hasattr(observation, "__dict__") else {"observation": str(observation)}


def _action_properties(server: str, optional: bool) -> dict[str, Any]:
    """The action's fields from the server's ``/schema``."""
    base = "http" + server[2:] if server.startswith("ws") else server
    try:
        with urllib.request.urlopen(f"{base.rstrip('/')}/schema", timeout=_SCHEMA_TIMEOUT_S) as response:
            schema = json.load(response)
    except urllib.error.HTTPError as e:
        if optional:
            return {}
        raise ValueError(f"{server} publishes no schema ({e}); give action_field=... or to_action=...") from e
    except (OSError, ValueError) as e:
        raise ValueError(f"no OpenEnv server answers at {server}: {e}") from e
    properties = schema.get("action", {}).get("properties", {})
    return {k: v for k, v in properties.items() if k not in _COMMON}


def _only_text_field(properties: Mapping[str, Any]) -> str | None:
    """The field to put the text in: the only field, or the only one without a default that takes text."""
    if len(properties) == 1:
        return next(iter(properties))
    required = [k for k, v in properties.items() if v.get("type") == "string" and "default" not in v]
    others = [k for k, v in properties.items() if k not in required and "default" not in v]
    return required[0] if len(required) == 1 and not others else None


def _typed(text: str, kind: str) -> Any:
    if kind in ("integer", "number", "boolean", "array", "object"):
        try:
            return json.loads(text.strip())
        except ValueError:
            raise ValueError(f"An action is a JSON value of type {kind}; the turn is lost.") from None
    return text


def _last_object(text: str) -> dict[str, Any] | None:
    """The last JSON object in a text that is not inside another one."""
    decoder = json.JSONDecoder(strict=False)
    found: dict[str, Any] | None = None
    at, tries = text.find("{"), 0
    while at >= 0 and tries < 256:  # bounded: a text of braces alone would cost time quadratic in its length
        tries += 1
        try:
            value, end = decoder.raw_decode(text, at)
            found = value if isinstance(value, dict) else found
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    return found


def _sample(rng: Any, schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "integer":
        return rng.randint(int(schema.get("minimum", 0)), int(schema.get("maximum", 9)))
    if kind == "number":
        return rng.uniform(float(schema.get("minimum", 0.0)), float(schema.get("maximum", 1.0)))
    if kind == "boolean":
        return rng.random() < 0.5
    return rng.choice(("hello", "look", "1", "yes"))
