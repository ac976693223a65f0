"""What crosses the border of the vectorised execution: autoreset modes, faults, commands and replies."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict, cast, get_args

from gem_core.core import Info, StepTuple


class AutoresetMode(Enum):
    """When a finished environment is reset; names and values as in ``gymnasium.vector.AutoresetMode``."""

    #: The step after the last one resets instead of acting: its action is ignored, its reward is 0.0.
    NEXT_STEP = "NextStep"
    #: The last step resets at once: its observation and info are those of the new episode, and the last ones of the
    #: finished episode are in ``info["final_obs"]`` and ``info["final_info"]``.
    SAME_STEP = "SameStep"
    #: Never; stepping a finished environment is an error.
    DISABLED = "Disabled"

    @classmethod
    def parse(cls, mode: Any) -> AutoresetMode:
        """Takes a member of this or Gymnasium's enum, its value, or its name in any spelling (``"same-step"``)."""
        text = str(getattr(mode, "value", mode))
        plain = text.lower().replace("-", "").replace("_", "")
        for member in cls:
            if plain == member.value.lower():
                return member
        raise ValueError(f"autoreset_mode must be 'next-step', 'same-step' or 'disabled', got {mode!r}")


#: ``exception``: the environment raised. ``exit``: it ended its process or called ``sys.exit``. ``timeout``: a step or
#: reset passed its time limit. ``killed``: its worker was killed from outside (out of memory, say) or stopped
#: answering. ``lost``: its worker ended while the environment waited for an action: a fault of another environment in
#: the same worker, or of its node.
FaultKind = Literal["exception", "exit", "timeout", "killed", "lost"]


class _Fault(TypedDict):
    kind: FaultKind
    #: One line for people.
    message: str
    #: ``"reset"`` (building included) or ``"step"``.
    where: str


class EnvFault(_Fault, total=False):
    """``info["error"]`` of an episode that failed; it also has reward 0.0, ``truncated`` and an empty observation."""

    #: Of an exception.
    traceback: str


#: What a command asks of an environment:
#: ``build`` (factory); ``open`` (factory, seed, options): build if it is another factory, then reset;
#: ``reset`` (seed, options); ``step`` (action); ``call`` (name, args, kwargs).
Op = Literal["build", "open", "reset", "step", "call"]


class Command(NamedTuple):
    #: The environment's index.
    slot: int
    #: Returned with the reply; tells an answer from a late one to an earlier command.
    ticket: int
    op: Op
    payload: Any


#: The value is the five-tuple of a step; a reset's has reward 0.0 and neither flag set.
RESULT = 0
#: The value is what a call returned.
VALUE = 1
#: The value is an exception of a ``build`` or ``call``, to be raised at the caller.
RAISED = 2
#: A step's last result in same-step mode that was not followed by the reset (the environment is to move).
UNRESET = 3
#: The value is a timeout's failure; the environment's thread is still stuck.
HUNG = 4


class Reply(NamedTuple):
    slot: int
    ticket: int
    flag: int
    value: Any


def failure(kind: FaultKind, message: str, where: str, traceback: str | None = None) -> StepTuple:
    """The result that stands for an episode that failed."""
    fault: EnvFault = {"kind": kind, "message": message, "where": where}
    if traceback is not None:
        fault["traceback"] = traceback
    return "", 0.0, False, True, {"error": fault}


def fault_of(info: Info) -> EnvFault | None:
    """The fault that a failed episode's ``info`` tells of. Environments may use the key ``error`` for other things."""
    fault = info.get("error")
    if isinstance(fault, dict) and fault.get("kind") in get_args(FaultKind) and "where" in fault:
        return cast(EnvFault, fault)
    return None


def after_failed_autoreset(final: StepTuple, reset: StepTuple) -> StepTuple:
    """Same-step mode, where the reset after the last step failed: the next step tries again."""
    _, reward, terminated, truncated, info = final
    merged = {"final_obs": final[0], "final_info": info, "reset_error": reset[4]["error"]}
    if "error" in info:
        merged["error"] = info["error"]
    return "", reward, terminated, truncated, merged


def after_autoreset(final: StepTuple, reset: StepTuple) -> StepTuple:
    """Same-step mode: the last result of an episode and the first of the next in one."""
    if "error" in reset[4]:
        return after_failed_autoreset(final, reset)
    _, reward, terminated, truncated, info = final
    merged = {**reset[4], "final_obs": final[0], "final_info": info}
    if "error" in info:
        merged["error"] = info["error"]
    return reset[0], reward, terminated, truncated, merged
