from __future__ import annotations

import pathlib
import time

import pytest

import gem_core as gem
from gem_core.envs.terminal import TerminalEnv, TerminalTask
from gem_core.envs.terminal.terminal_env import find_command
from gem_core.sandbox import Sandbox, SandboxError, default_sandbox

IDS = [i for i in gem.list_envs() if i.startswith("terminal:")]
SUBMIT = "```bash\nsubmit\n```"
COUNT = TerminalTask(
    name="Count",
    instruction="Write the number of lines of a.txt to n.txt.",
    files={"a.txt": "x\n" * 7},
    check="assert open('n.txt').read().strip() == '7'",
)


def bash(command: str) -> str:
    return f"I will run this:\n```bash\n{command}\n```"


@pytest.fixture(autouse=True)
def _needs_namespaces() -> None:
    try:
        default_sandbox().require("namespace")
    except SandboxError as e:
        pytest.skip(str(e))


def test_there_are_tasks() -> None:
    assert len(IDS) >= 8


@pytest.mark.parametrize("env_id", IDS)
def test_each_task_is_solved_by_its_solution_only(env_id: str) -> None:
    env = gem.make(env_id)
    for seed in (0, 1, 2):
        observation, info = env.reset(seed=seed)
        task = env.task
        assert isinstance(task, TerminalTask)
        assert task.instruction in observation
        assert info["suffix"].endswith("$")
        info = env.step(bash(task.solution))[4]
        assert info["exit_code"] == 0, info
        observation, reward, terminated, truncated, info = env.step(SUBMIT)
        assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True), info["check_output"]
        assert "suffix" not in info
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(SUBMIT)
    assert reward < 1.0
    assert terminated
    assert not info["success"]
    env.close()


def test_seeds_fix_the_task() -> None:
    first, second = TerminalEnv("LogErrors"), TerminalEnv("LogErrors")
    first.reset(seed=5)
    second.reset(seed=5)
    assert first.task == second.task
    second.reset(seed=6)
    assert first.task != second.task
    first.close()
    second.close()


def test_folder_and_variables_go_on_and_processes_do_not() -> None:
    env = TerminalEnv(COUNT)
    env.reset()
    _, _, _, _, info = env.step(bash("mkdir -p d/e; cd d/e; export NAME='a b'; sleep 50 &"))
    assert info["suffix"] == "Turn 2 of 10. ~/d/e $"
    observation = env.step(bash('echo "$NAME"; pwd; cd; ls'))[0]
    assert observation == "a b\n/tmp/work/d/e\na.txt\nd"
    assert env.step(bash("exit 3"))[0] == "[exit code 3]"
    assert env.step(bash("pwd"))[0] == "/tmp/work"
    env.close()


def test_the_last_turn_is_checked_too() -> None:
    env = TerminalEnv(COUNT, max_turns=2)
    env.reset()
    observation, reward, terminated, truncated, info = env.step("no command here")
    assert (reward, terminated, truncated, info["action_is_valid"]) == (0.0, False, False, False)
    assert "No command was found" in observation
    observation, reward, terminated, truncated, info = env.step(bash("wc -l < a.txt > n.txt"))
    assert (reward, terminated, truncated, info["success"]) == (1.0, False, True, True)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(SUBMIT)


def test_limits_of_time() -> None:
    env = TerminalEnv(COUNT, command_timeout=0.3, episode_timeout=0.5)
    env.reset()
    started = time.monotonic()
    observation, _, _, truncated, info = env.step(bash("echo early; sleep 20"))
    assert time.monotonic() - started < 1.5
    assert observation.startswith("early\n[stopped after 0.3 s]")
    assert info["verdict"] == "timeout"
    if not truncated:
        time.sleep(0.3)
        observation, _, _, truncated, _ = env.step(bash("echo x"))
    assert truncated
    assert "The time is over." in observation


def test_partial_scores_and_floods() -> None:
    task = TerminalTask("Half", "?", "print('note')\nprint(0.5)")
    env = TerminalEnv(task, max_output_chars=100)
    env.reset()
    assert "bytes left out" in env.step(bash("yes | head -5000"))[0]
    observation, reward, *_, info = env.step(SUBMIT)
    assert (reward, info["success"], info["score"]) == (0.5, False, 0.5)
    assert observation == "Not solved (0.5 of 1)."


@pytest.mark.parametrize(
    "attack",
    [
        "echo 'import os; os._exit(0)' | tee json.py os.py builtins.py sitecustomize.py usercustomize.py > /dev/null",
        "export PYTHONSTARTUP=x PATH=/nowhere; alias python3=true",
        "(while true; do echo 7 > n.txt; sleep 0.01; done) &",
        "ln -s /dev/stdin n.txt",
    ],
)
def test_the_check_cannot_be_talked_into_it(attack: str) -> None:
    task = TerminalTask("Json", "?", "import json, os\nassert json.load(open('n.txt')) == 8", {"n.txt": "1"})
    env = TerminalEnv(task)
    env.reset()
    env.step(bash(attack))
    assert env.step(SUBMIT)[1] == 0.0


def test_a_submitted_program_cannot_report_its_own_score() -> None:
    env = TerminalEnv("FixProgram")
    env.reset(seed=0)
    assert env.task is not None
    (name,) = env.task.files
    env.step(bash(f"echo 'import os; print(1, flush=True); os._exit(0)' > {name}"))
    assert env.step(SUBMIT)[1] == 0.0


def test_state_moves_to_another_instance() -> None:
    env = TerminalEnv("SalesTotals")
    env.reset(seed=3)
    env.step(bash("mkdir d; cd d; export A=7; echo x > f"))
    copy = env.spawn(same_state=True)
    for one in (env, copy):
        observation, *_, info = one.step(bash('cat f; echo "$A"; pwd'))
        assert observation == "x\n7\n/tmp/work/d"
        assert info["turn"] == 2
    env.step(bash("cd; rm -r d"))
    assert copy.step(bash("cat f"))[0] == "x"
    assert copy.task is not None
    copy.step(bash(f"cd; {copy.task.solution}"))
    assert copy.step(SUBMIT)[1] == 1.0
    env.close()


def test_tasks_from_a_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"instruction\.md and check\.py"):
        TerminalEnv(str(tmp_path))
    (tmp_path / "files" / "sub").mkdir(parents=True)
    (tmp_path / "files" / "sub" / "a.bin").write_bytes(b"\x00\xff")
    (tmp_path / "instruction.md").write_text("Make `done`.\n")
    (tmp_path / "setup.sh").write_text("mkdir made; chmod 700 made")
    (tmp_path / "check.sh").write_text("test -f done && test -d made && test $(wc -c < sub/a.bin) = 2")
    env = TerminalEnv(str(tmp_path))
    assert env.reset()[0].startswith("Make `done`.\n")
    env.step(bash("touch done"))
    assert env.step(SUBMIT)[1] == 1.0
    env.reset()
    assert env.step(SUBMIT)[1] == 0.0


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ("```bash\nls\n```", "ls"),
        ("```sh\nls\n```\nthen\n```bash\npwd\n```", "pwd"),
        ("```\nls -l\n```", "ls -l"),
        ("<bash>ls</bash>", "ls"),
        ("<bash>\nls\n", "ls"),
        ("```bash\ncat <<'E'\n`x`\nE\n```", "cat <<'E'\n`x`\nE"),
        ("```python\nprint(1)\n```", None),
        ("```bash\n\n```", None),
        ("ls", None),
    ],
)
def test_commands_are_found(action: str, command: str | None) -> None:
    assert find_command(action) == command


def test_nonsense_is_refused() -> None:
    for keyword in ({"max_turns": 0}, {"command_timeout": -1}, {"episode_timeout": 0}):
        with pytest.raises(ValueError, match=r"max_turns|timeout"):
            TerminalEnv(COUNT, **keyword)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no task is called 'Nothing'"):
        TerminalEnv("Nothing")
    with pytest.raises(ValueError, match="did you mean"):
        gem.make("terminal:LogErrors-v0", max_turn=3)


def test_a_host_without_isolation_is_refused() -> None:
    with Sandbox(preload=(), level="process") as weak:
        env = TerminalEnv(COUNT, sandbox=weak)
        with pytest.raises(SandboxError, match="isolation of level 'namespace' is needed"):
            env.reset()


def test_random_actions_play_to_the_end() -> None:
    env = gem.make("terminal:FindFile-v0", max_turns=3)
    env.reset(seed=1)
    for _ in range(3):
        _, reward, terminated, truncated, _ = env.step(env.sample_random_action())
        assert 0.0 <= reward <= 1.0
        if terminated or truncated:
            break
    assert terminated or truncated
