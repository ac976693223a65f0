"""Rules and rewards of the guessing games and puzzles, move by move."""

from __future__ import annotations

import itertools
import random
from operator import sub
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core as gem
from gem_core.envs.game_env.fifteen_puzzle import Walks, scramble, sources
from gem_core.envs.game_env.game_2048 import slide
from gem_core.envs.game_env.mastermind import score
from gem_core.envs.game_env.puzzle_search import next_disk, next_slide
from gem_core.envs.game_env.word_lists import is_word, vocabulary, words
from gem_core.envs.game_env.wordle import mark
from gem_core.experts import expert, oracle, register_expert


def start(env_id: str, seed: int = 0, **state: Any) -> Any:
    kwargs = state.pop("kwargs", {})
    env = gem.make(env_id, **kwargs)
    env.reset(seed=seed)
    for name, value in state.items():
        setattr(env, name, value)
    return env


def rewards(env: Any, *actions: str) -> list[float]:
    return [env.step(f"\\boxed{{{a}}}")[1] for a in actions]


def test_guess_the_number() -> None:
    env = start("game:GuessTheNumber-v0", target=7, kwargs={"max_turns": 3})
    assert rewards(env, "3") == [0.0]
    assert env.step("\\boxed{12}")[:4] == ("The number is lower than 12.", 0.0, False, False)
    _, reward, terminated, truncated, info = env.step("\\boxed{9}")
    assert reward == pytest.approx(1 - 2 / 19)
    assert (terminated, truncated, info["success"]) == (False, True, False)
    env = start("game:GuessTheNumber-v0", target=7, kwargs={"max_turns": 2})
    assert rewards(env, "3", "99") == [0.0, 0.0]  # an illegal last guess earns nothing
    env = start("game:GuessTheNumber-v0", target=7, kwargs={"max_turns": 2})
    assert env.step("\\boxed{3}")[1] == 0.0
    _, reward, _, truncated, info = env.step("\\boxed{3}")  # nor does a repeated one
    assert (reward, truncated, info["action_is_valid"]) == (0.0, True, False)
    env = start("game:GuessTheNumber-v0", low=-5, high=5, target=0)
    assert env.step("\\boxed{0}")[1:3] == (1.0, True)  # 0 is a legal guess
    for bad in ({"min_number": 5, "max_number": 5}, {"min_number": None}, {"max_turns": 0}):
        with pytest.raises(ValueError, match=r"min_number|max_turns"):
            gem.make("game:GuessTheNumber-v0", **bad)


def test_mastermind() -> None:
    env = start("game:Mastermind-v0-hard", code=[1, 2, 3, 4])
    assert rewards(env, "1 5 6 7", "1 2 6 7", "2 1 4 3") == [0.25, 0.25, 0.0]
    assert env.step("\\boxed{1, 2, 4, 3}")[0] == "1 2 4 3: 2 exact, 2 misplaced."
    assert env.step("\\boxed{1 2 4 3}")[4]["action_is_valid"] is False  # guessed before
    _, reward, terminated, _, info = env.step("\\boxed{1 2 3 4}")
    assert (reward, terminated, info["success"]) == (0.5, True, True)
    env = start("game:Mastermind-v0-hard", code=[1, 2, 3, 4])
    assert env.step("\\boxed{1 1 1 4}")[:2] == ("1 1 1 4: 2 exact, 0 misplaced.", 0.5)  # a digit may repeat in a guess
    for illegal in ("1 1 1 4", "0 1 2 3", "1 2 3 9", "1 2 3", "1 2 3 4 5", "1 2 3 99999999"):
        _, reward, terminated, _, info = env.step(f"\\boxed{{{illegal}}}")
        assert (reward, terminated, info["action_is_valid"]) == (0.0, False, False)
    assert env.step("\\boxed{1 2 x 4}")[1:3] == (-0.1, True)
    with pytest.raises(ValueError, match="code_length=9 without duplicates"):
        gem.make("game:Mastermind-v0-easy", code_length=9)


@settings(deadline=None)
@given(
    code=st.lists(st.integers(1, 5), min_size=4, max_size=4), guess=st.lists(st.integers(1, 5), min_size=4, max_size=4)
)
def test_each_code_digit_is_counted_once(code: list[int], guess: list[int]) -> None:
    exact, misplaced = score(code, guess)
    assert exact == sum(a == b for a, b in zip(code, guess, strict=True))
    best = max(sum(a == b for a, b in zip(code, p, strict=True)) for p in itertools.permutations(guess))
    assert exact + misplaced == best


def test_minesweeper() -> None:
    env = start("game:Minesweeper-v0-easy", mines=[0, 4, 20, 22, 24])
    assert env.step("\\boxed{flag 0 0}")[1] == 0.0
    assert env.step("\\boxed{reveal 0 0}")[4]["action_is_valid"] is False  # flagged
    assert env.step("\\boxed{reveal 2 2}")[1] == pytest.approx(18 / 20)  # all but two cells between the lower mines
    assert rewards(env, "reveal 2 2", "reveal 9 9") == [0.0, 0.0]
    rest = [f"reveal {k // 5} {k % 5}" for k in range(25) if k not in env.mines and k not in env.shown]
    for action in rest[:-1]:
        assert env.step(f"\\boxed{{{action}}}")[1] > 0
    _, _, terminated, _, info = env.step(f"\\boxed{{{rest[-1]}}}")
    assert terminated
    assert info["success"]  # though not every mine is flagged
    env = start("game:Minesweeper-v0-easy", mines=[0, 4, 20, 22, 24])
    assert rewards(env, "flag 1 1", "reveal 2 2") == [0.0, pytest.approx(17 / 20)]  # the flagged one stays hidden
    assert rewards(env, "reveal 1 1", "flag 1 1", "reveal 1 1") == [0.0, 0.0, pytest.approx(1 / 20)]
    env = start("game:Minesweeper-v0-easy", mines=[0, 4, 20, 22, 24])
    assert env.step("\\boxed{reveal 0 4}")[1:4] == (0.0, True, False)
    with pytest.raises(ValueError, match="a 2x2 board holds at most 0 mines"):
        gem.make("game:Minesweeper-v0-easy", rows=2, cols=2, num_mines=1)


@pytest.mark.parametrize("env_id", ["game:Minesweeper-v0-easy", "game:Minesweeper-v0-hard"])
def test_the_first_reveal_and_its_neighbours_are_safe(env_id: str) -> None:
    for seed in range(100):
        env = start(env_id, seed)
        cell = random.Random(seed).randrange(env.rows * env.cols)
        env.step(f"\\boxed{{reveal {cell // env.cols} {cell % env.cols}}}")
        assert len(env.mines) == env.num_mines
        assert not {cell, *env.neighbours(cell)} & set(env.mines)


def test_wordle() -> None:
    env = start("game:Wordle-v0-hard", word="apple")
    text, reward, *_ = env.step("\\boxed{ample}")
    assert text == "AMPLE is marked GXGGG."
    assert reward == pytest.approx(0.4)
    assert rewards(env, "apply") == [pytest.approx(0.1)]  # one place more
    for illegal in ("ample", "qqqqq", "car"):
        _, reward, terminated, _, info = env.step(f"\\boxed{{{illegal}}}")
        assert (reward, terminated, info["action_is_valid"]) == (0.0, False, False)
    _, reward, terminated, _, info = env.step("\\boxed{A P P L E}")
    assert (reward, terminated, info["success"]) == (0.5, True, True)
    with pytest.raises(ValueError, match="word_length must be an integer from 3 to 10, got 12"):
        gem.make("game:Wordle-v0-easy", word_length=12)


@pytest.mark.parametrize(
    ("word", "guess", "marks"),
    [
        ("apple", "poppy", "YXGXX"),
        ("abbey", "babes", "YYGGX"),
        ("speed", "erase", "YXXYY"),
        ("crane", "crane", "GGGGG"),
    ],
)
def test_a_repeated_letter_is_marked_only_as_often_as_it_remains(word: str, guess: str, marks: str) -> None:
    assert mark(word, guess) == marks


def test_hangman() -> None:
    env = start("game:Hangman-v0-hard", word="balloon")
    assert rewards(env, "l", "L", "z", "xxxxxxx", "xx") == [pytest.approx(1 / 7), 0.0, 0.0, 0.0, 0.0]
    _, reward, terminated, _, info = env.step("\\boxed{Balloon}")
    assert reward == pytest.approx(0.5 + 0.5 * 5 / 7)
    assert terminated
    assert info["success"]
    env = start("game:Hangman-v0-easy", word="egg")
    assert rewards(env, "g") == [pytest.approx(1 / 3)]
    _, reward, terminated, _, info = env.step("\\boxed{e}")
    assert (reward, terminated, info["success"]) == (pytest.approx(0.5 + 1 / 6), True, True)


def test_tower_of_hanoi() -> None:
    env = start("game:TowerofHanoi-v0-easy")
    assert rewards(env, "A B", "A B", "B B", "C A") == [0.0] * 4
    assert env.towers == {"A": [3, 2], "B": [1], "C": []}
    env = start("game:TowerofHanoi-v0-easy", kwargs={"max_turns": 3})
    assert rewards(env, "A C", "A B", "C B") == [0.0, 0.0, 0.0]
    env = start("game:TowerofHanoi-v0-easy", kwargs={"max_turns": 1})
    assert rewards(env, "A -> C") == [pytest.approx(1 / 3)]
    for disks in range(1, 7):
        towers: dict[str, list[int]] = {"A": list(range(disks, 0, -1)), "B": [], "C": []}
        moves = 0
        while (move := next_disk(towers)) is not None:
            towers[move[1]].append(towers[move[0]].pop())
            moves += 1
        assert moves == 2**disks - 1


def test_fifteen_puzzle() -> None:
    env = start("game:FifteenPuzzle-v0-random", size=3, cells=[1, 2, 3, 4, 5, 6, 7, 0, 8], max_turns=20)
    assert env.step("\\boxed{Left}")[1:3] == (1.0, True)  # the tile moves into the hole
    env = start("game:FifteenPuzzle-v0-random", size=3, cells=[1, 2, 3, 4, 5, 6, 7, 0, 8], max_turns=20)
    _, reward, _, _, info = env.step("\\boxed{up}")
    assert (reward, info["action_is_valid"]) == (0.0, False)
    env.max_turns = 2
    _, reward, terminated, truncated, _ = env.step("\\boxed{right}")
    assert (reward, terminated, truncated) == (pytest.approx(6 / 9), False, True)
    with pytest.raises(ValueError, match="num_rows must be an integer from 2 to 20, got 1"):
        gem.make("game:FifteenPuzzle-v0-easy", num_rows=1)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_scrambles_are_solvable_and_never_solved(size: int) -> None:
    env = gem.make("game:FifteenPuzzle-v0-easy", num_rows=size)
    for seed in range(60):
        env.reset(seed=seed)
        cells = env.cells  # type: ignore[attr-defined]
        assert sorted(cells) == list(range(size * size))
        assert cells != env.solved()  # type: ignore[attr-defined]
        flat = [x for x in cells if x]
        inversions = sum(a > b for a, b in itertools.combinations(flat, 2))
        hole_row = cells.index(0) // size
        assert (inversions + (0 if size % 2 else size - 1 - hole_row)) % 2 == 0
    if size == 2:
        assert next_slide(cells) is not None


def test_each_move_of_a_scramble_is_uniform_among_those_that_do_not_undo_the_last() -> None:
    # The hole in the middle of 3x3, after the tile below it went up: three ways on.
    after = looked_ahead(3, 1, (4, "up"))
    assert after.bounds == pytest.approx([1 / 3, 2 / 3])
    assert {then.at for _, then in after.ways} == {(7, "up"), (5, "left"), (3, "right")}
    # Five moves at once are five single moves.
    expected: dict[Any, float] = {((), (8, "")): 1.0}
    for _ in range(5):
        further: dict[Any, float] = {}
        for (path, at), share in expected.items():
            single = looked_ahead(3, 1, at).ways
            for step, then in single:
                key = (*path, *step), then.at
                further[key] = further.get(key, 0.0) + share / len(single)
        expected = further
    block = looked_ahead(3, 5, (8, ""))
    shares: dict[Any, float] = {}
    for share, (path, then) in zip(map(sub, [*block.bounds, 1.0], [0.0, *block.bounds]), block.ways, strict=True):
        shares[path, then.at] = share
    assert shares == pytest.approx(expected)


def looked_ahead(size: int, moves: int, at: tuple[int, str]) -> Walks:
    node = Walks(size, moves, at)
    node.look_ahead()
    return node


def test_a_scramble_is_a_hundred_moves() -> None:
    for n in (2, 3):
        for share in (0.0, 0.999):  # the first walk of all, and the last
            shares = iter([share] * 100)
            assert scramble(n, lambda: next(shares)) == move_by_move(n, first=share == 0.0)  # noqa: B023


def move_by_move(n: int, first: bool) -> list[int]:
    cells, last = [*range(1, n * n), 0], ""
    opposite = {"": "", "up": "down", "down": "up", "left": "right", "right": "left"}
    for _ in range(100):
        hole = cells.index(0)
        name, source = [(m, s) for m, s in sources(n, hole).items() if m != opposite[last]][0 if first else -1]
        cells[hole], cells[source], last = cells[source], 0, name
    return cells


def test_2048() -> None:
    assert slide([2, 2, 2, 2, *[0] * 12], "left") == [4, 4, 0, 0, *[0] * 12]
    assert slide([4, 2, 2, 0, *[0] * 12], "left") == [4, 4, 0, 0, *[0] * 12]
    assert slide([2, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0], "down")[12::-4] == [8, 4, 0, 0]
    env = start("game:Game2048-v0-easy", cells=[2, 2, *[0] * 14], start_tile=2, best=2)
    assert rewards(env, "left") == [pytest.approx(1 / 5)]
    env = start("game:Game2048-v0-easy", cells=[32, 32, *[0] * 14], start_tile=2, best=32)
    _, reward, terminated, _, info = env.step("\\boxed{left}")
    assert (reward, terminated, info["success"]) == (pytest.approx(1 / 5), True, True)
    stuck = [2, 4, 2, 4, 4, 2, 4, 2, 2, 4, 2, 4, 4, 2, 8, 8]
    env = start("game:Game2048-v0-easy", cells=[*stuck], start_tile=2)
    assert env.step("\\boxed{up}")[4]["action_is_valid"] is False
    env = start("game:Game2048-v0-easy", cells=[4, 4, *[0] * 14], start_tile=4, best=4, target_tile=8)
    assert env.step("\\boxed{right}")[1:3] == (1.0, True)
    # A 4 that appeared beside twos is paid for with the next move.
    env = start("game:Game2048-v0-easy", cells=[2, 4, *[0] * 14], start_tile=2, best=2)
    assert rewards(env, "down", "up") == [pytest.approx(1 / 5), 0.0]
    for bad in (4, 48):
        with pytest.raises(ValueError, match="target_tile must be"):
            gem.make("game:Game2048-v0-easy", target_tile=bad)


def test_2048_pays_all_progress_once_whatever_appears() -> None:
    act = expert("game:Game2048-v0-easy")
    for seed in range(12):
        env = gem.make("game:Game2048-v0-random", target_tile=16, max_turns=60)
        observation, info = env.reset(seed=seed)
        total, done = 0.0, False
        while not done:
            action = act([{"role": "user", "content": f"{observation}\n{info['suffix']}"}], random.Random(0))
            observation, reward, terminated, truncated, info = env.step(action)
            total, done = total + reward, terminated or truncated
        assert info["success"]
        assert total == pytest.approx(1.0)


def test_word_lists() -> None:
    for n in range(3, 8):
        assert len(words(n)) >= 300
        assert set(words(n)) <= set(words(n, common=False))
        assert all(len(w) == n and w.isascii() and w.islower() and w.isalpha() for w in words(n, common=False))
    assert is_word("Apple")
    assert not is_word("xqzzy")
    assert len(vocabulary(False)) > 2000
    assert len(vocabulary(True)) > 1000
    with pytest.raises(ValueError, match="no words of 40 letters"):
        words(40)


@pytest.mark.parametrize("name", ["Mastermind", "Wordle", "Hangman", "TowerofHanoi", "GuessTheNumber"])
def test_experts_win_from_the_conversation_alone(name: str) -> None:
    act = expert(f"game:{name}-v0-easy")
    env = gem.make(f"game:{name}-v0-easy")
    won = 0
    for seed in range(10):
        observation, info = env.reset(seed=seed)
        messages = [{"role": "user", "content": f"{observation}\n{info['suffix']}"}]
        done = False
        while not done:
            action = act(messages, random.Random(seed))
            observation, _, terminated, truncated, info = env.step(action)
            done = terminated or truncated
            text = f"{observation}\n{info.get('suffix', '')}"
            messages += [{"role": "assistant", "content": action}, {"role": "user", "content": text}]
        won += info["success"]
    assert won >= (6 if name == "Hangman" else 10)  # ten turns are few for some three-letter words


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_sliding_expert_solves_what_can_be_solved_in_time(size: int) -> None:
    env: Any = gem.make("game:FifteenPuzzle-v0-easy", num_rows=size, max_turns=80)
    for seed in range(3):
        env.reset(seed=seed)
        done = False
        while not done:
            _, reward, done, truncated, _ = env.step(oracle(env) or "")
            assert not truncated
        assert reward == 1.0


def test_experts_of_ones_own_games(monkeypatch: pytest.MonkeyPatch) -> None:
    from gem_core import experts

    monkeypatch.setattr(experts, "_EXPERTS", dict(experts._EXPERTS))
    gem.register("own:Maze-v0", gem.spec("game:Wordle-v0-easy").entry_point)
    try:
        with pytest.raises(ValueError, match="no expert plays 'own:Maze-v0'"):
            expert("own:Maze-v0")
        register_expert("Maze", lambda messages, rng: "left")
        assert expert("own:Maze-v0")([], random.Random(0)) == "left"
        with pytest.raises(ValueError, match="'Wordle' has an expert already"):
            register_expert("Wordle", lambda messages, rng: "")
    finally:
        gem.unregister("own:Maze-v0")
