"""Sudoku: one solution, rewards, parameters."""

from __future__ import annotations

import random

import pytest

from gem_core.envs.game_env import sudoku_boards
from gem_core.envs.game_env.sudoku import SudokuEnv


def brute_force(board: list[int], n: int, limit: int = 2) -> list[list[int]]:
    """Solutions by plain backtracking over digits; nothing in common with the package's solver."""
    side = {4: 2, 9: 3}[n]
    grid = [board[r * n : r * n + n] for r in range(n)]
    found: list[list[int]] = []

    def allowed(r: int, c: int, d: int) -> bool:
        if d in grid[r] or any(grid[i][c] == d for i in range(n)):
            return False
        top, left = r - r % side, c - c % side
        return all(grid[top + i][left + j] != d for i in range(side) for j in range(side))

    def go(at: int) -> None:
        while at < n * n and grid[at // n][at % n]:
            at += 1
        if at == n * n:
            found.append([d for row in grid for d in row])
            return
        r, c = divmod(at, n)
        for d in range(1, n + 1):
            if allowed(r, c, d):
                grid[r][c] = d
                go(at + 1)
                grid[r][c] = 0
                if len(found) >= limit:
                    return

    go(0)
    return found


@pytest.mark.parametrize(
    ("n", "clues", "boards"), [(4, 10, 60), (4, 4, 40), (4, 15, 5), (9, 50, 60), (9, 36, 30), (9, 28, 6), (9, 80, 5)]
)
def test_every_board_has_exactly_one_solution_and_the_clues_asked_for(n: int, clues: int, boards: int) -> None:
    env = SudokuEnv(clues=clues, max_turns=100, scale=n)
    for seed in range(boards):
        env.reset(seed=seed)
        assert brute_force(env.board, n) == [env.solution]
        assert sum(map(bool, env.board)) == clues
        assert all(given in (0, right) for given, right in zip(env.board, env.solution, strict=True))


def test_few_clues_still_give_one_solution() -> None:
    rng = random.Random(0)
    board, solution = sudoku_boards.puzzle(rng, 9, 24)
    assert sudoku_boards.solve(board, 9) == [solution]
    assert sum(map(bool, board)) == 24


def test_boards_are_varied() -> None:
    rng = random.Random(0)
    grids = [sudoku_boards.solved_grid(rng, 9) for _ in range(400)]
    assert len({tuple(g) for g in grids}) == 400
    for cell in (0, 40, 80):  # each digit everywhere about 44 times in 400
        counts = [sum(g[cell] == d for g in grids) for d in range(1, 10)]
        assert min(counts) > 20
        assert max(counts) < 75


def test_the_solver_counts_solutions_of_open_and_impossible_boards() -> None:
    assert len(sudoku_boards.solve([0] * 16, 4, limit=1000)) == 288  # all 4x4 grids
    assert len(sudoku_boards.solve([0] * 81, 9, limit=3)) == 3
    assert sudoku_boards.solve([1, 1] + [0] * 14, 4) == []


def test_rewards() -> None:
    env = SudokuEnv(clues=10, max_turns=15, scale=4)
    env.reset(seed=0)
    hole, given = env.board.index(0), next(i for i, d in enumerate(env.board) if d)
    right = env.solution[hole]
    at = f"{hole // 4 + 1} {hole % 4 + 1}"
    table = [
        (f"\\boxed{{{at} {right % 4 + 1}}}", 0.0, True),  # wrong digit: the cell stays empty
        (f"\\boxed{{{given // 4 + 1} {given % 4 + 1} {env.board[given]}}}", 0.0, False),  # a given cell
        ("\\boxed{5 1 1}", 0.0, False),
        ("\\boxed{1 0 1}", 0.0, False),
        (f"\\boxed{{{at} 9}}", 0.0, False),
        (f"I take \\boxed{{{at} {right}}}", 1 / 6, True),
        (f"\\boxed{{{at} {right}}}", 0.0, False),  # filled before
        (f"\\boxed{{{at.replace(' ', ', ')}, {right}}}", 0.0, False),  # commas are read too
    ]
    for turn, (action, reward, legal) in enumerate(table, 1):
        _, got, terminated, truncated, info = env.step(action)
        assert (got, terminated, truncated, info["action_is_valid"]) == (pytest.approx(reward), False, False, legal)
        assert info["turn"] == turn
    _, reward, terminated, truncated, _ = env.step("the answer is 3")
    assert (reward, terminated, truncated) == (-0.1, True, False)


def test_the_last_turn_truncates_and_its_reward_counts() -> None:
    env = SudokuEnv(clues=10, max_turns=1, scale=4)
    env.reset(seed=0)
    hole = env.board.index(0)
    _, reward, terminated, truncated, info = env.step(f"\\boxed{{{hole // 4 + 1} {hole % 4 + 1} {env.solution[hole]}}}")
    assert (reward, terminated, truncated) == (pytest.approx(1 / 6), False, True)
    assert not info["success"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"scale": 5}, "scale"),
        ({"scale": True}, "scale"),
        ({"clues": 3, "scale": 4}, "clues=3"),
        ({"clues": 16, "scale": 4}, "clues=16"),
        ({"clues": 17, "scale": 9}, "clues=17"),
        ({"clues": 81, "scale": 9}, "clues=81"),
        ({"clues": 90, "scale": None}, "clues=90"),
        ({"clues": -1}, "clues"),
        ({"clues": 2.5}, "clues"),
        ({"max_turns": 0}, "max_turns"),
    ],
)
def test_nonsense_is_refused_by_name(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SudokuEnv(**arguments)  # type: ignore[arg-type]


def test_what_is_given_stays_and_the_rest_is_drawn() -> None:
    env = SudokuEnv(clues=30, max_turns=None, scale=None)  # 30 clues: 9x9 only
    env.reset(seed=0)
    assert (env.scale, env.clues, env.max_turns) == (9, 30, 70)
    env = SudokuEnv(clues=None, max_turns=7, scale=4)
    env.reset(seed=0)
    assert (env.scale, env.clues, env.max_turns) == (4, 10, 7)
