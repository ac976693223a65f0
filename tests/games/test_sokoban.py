"""Sokoban: rooms solvable within the turns, rewards, parameters."""

from __future__ import annotations

import pytest

import gem_core as gem
from gem_core.envs.game_env.oracles import oracle_action
from gem_core.envs.game_env.sokoban import SokobanEnv
from gem_core.envs.game_env.sokoban_rooms import shortest_solution

WORDS = {"u": "up", "d": "down", "l": "left", "r": "right"}
VARIANTS = ["easy", "hard", "random"]


def independent_search(rows: list[str], most: int) -> int | None:
    """Moves of a shortest solution, level by level over (player, boxes) read from the board as printed."""
    cells = {(r, c): sign for r, row in enumerate(rows) for c, sign in enumerate(row.split())}
    walls = {at for at, sign in cells.items() if sign == "#"}
    goals = frozenset(at for at, sign in cells.items() if sign in "O√S")
    boxes = frozenset(at for at, sign in cells.items() if sign in "X√")
    player = next(at for at, sign in cells.items() if sign in "PS")
    level, seen = {(player, boxes)}, {(player, boxes)}
    for moves in range(most + 1):
        if any(now == goals for _, now in level):
            return moves
        following = set()
        for (r, c), now in level:
            for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                there, beyond = (r + dr, c + dc), (r + 2 * dr, c + 2 * dc)
                after = now
                if there in now:
                    if beyond in walls or beyond in now:
                        continue
                    after = now - {there} | {beyond}
                if there not in walls and (there, after) not in seen:
                    seen.add((there, after))
                    following.add((there, after))
        level = following
    return None


def place(env: SokobanEnv, text: str) -> None:
    """Puts a hand-made room into an environment that has been reset."""
    rows = [row.split() for row in text.strip().splitlines()]
    signs = [sign for row in rows for sign in row]
    env.height, env.width = len(rows), len(rows[0])
    env.fixed = "".join({"X": "_", "P": "_", "√": "O", "S": "O"}.get(s, s) for s in signs)
    env.boxes = [i for i, s in enumerate(signs) if s in "X√"]
    env.player = next(i for i, s in enumerate(signs) if s in "PS")
    env.num_boxes = len(env.boxes)
    env.start_boxes, env.start_player, env.solution = list(env.boxes), env.player, ""


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_stored_solution_solves_every_room_within_the_turns(variant: str) -> None:
    env = gem.make(f"game:Sokoban-v0-{variant}")
    assert isinstance(env, SokobanEnv)
    rooms, far_from_home = set(), 0
    for seed in range(250):
        env.reset(seed=seed)
        assert 1 <= len(env.solution) <= env.max_turns
        assert env.on_goals() < env.num_boxes
        assert env.fixed.count("O") == len(env.boxes) == env.num_boxes
        rooms.add(env.render())
        far_from_home += env.on_goals() == 0
        for i, letter in enumerate(env.solution, 1):
            _, reward, terminated, truncated, info = env.step(f"\\boxed{{{WORDS[letter]}}}")
            assert info["action_is_valid"]
            assert (terminated, truncated) == (i == len(env.solution), False)
        assert (reward, info["success"]) == (1.0, True)
    assert len(rooms) > 240
    assert far_from_home > 225  # a box that begins on a goal is rare


@pytest.mark.parametrize("variant", VARIANTS)
def test_floors_are_walled_in_one_piece_and_varied(variant: str) -> None:
    env = gem.make(f"game:Sokoban-v0-{variant}")
    assert isinstance(env, SokobanEnv)
    walls = set()
    for seed in range(60):
        env.reset(seed=seed)
        w, floor = env.width, {i for i, sign in enumerate(env.fixed) if sign != "#"}
        assert all(0 < i // w < env.height - 1 and 0 < i % w < w - 1 for i in floor)
        reached, queue = {env.player}, [env.player]
        for i in queue:
            new = {i - 1, i + 1, i - w, i + w} & floor - reached
            reached |= new
            queue += sorted(new)
        assert reached == floor
        walls.add(env.fixed.count("#"))
    assert len(walls) > 2


def test_an_independent_search_agrees() -> None:
    env = SokobanEnv((6, 6), 20, 2)
    for seed in range(12):
        env.reset(seed=seed)
        found = independent_search(env.render().splitlines(), env.max_turns)
        ours = shortest_solution(env.fixed, env.width, env.boxes, env.player)
        assert found is not None
        assert ours is not None
        assert found == len(ours) <= len(env.solution)


def test_rewards_and_rules() -> None:
    env = SokobanEnv((6, 6), 9, 2)
    env.reset(seed=0)
    place(env, "# # # # # # #\n# P X _ O _ #\n# O X X _ _ #\n# # # # # # #")
    env.num_boxes = 3
    table = [
        ("UP", 0.0, False),  # wall
        ("Right", 0.0, True),  # pushes
        ("down", 0.0, False),  # the box below stands against the wall
        ("left", 0.0, True),
        ("down", 0.0, True),
        ("right", 0.0, False),  # box behind box
        ("up", 0.0, True),
        ("right", 0.0, True),
    ]
    for word, reward, legal in table:
        _, got, terminated, truncated, info = env.step(f"\\boxed{{{word}}}")
        assert (got, terminated, truncated, info["action_is_valid"]) == (reward, False, False, legal), word
    assert env.render().splitlines()[1] == "# _ P X O _ #"
    _, reward, terminated, truncated, info = env.step("\\boxed{right}")  # the last turn: one box of three at home
    assert (reward, terminated, truncated) == (pytest.approx(1 / 3), False, True)
    assert env.render().splitlines()[1] == "# _ _ P √ _ #"
    assert not info["success"]


def test_solving_on_the_last_turn_is_success() -> None:
    env = SokobanEnv((6, 6), 1, 1)
    env.reset(seed=0)
    place(env, "# # # # #\n# P X O #\n# # # # #")
    _, reward, terminated, truncated, info = env.step("\\boxed{right}")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)


def test_the_oracle_finds_back_from_a_detour_and_knows_a_lost_room() -> None:
    env = SokobanEnv((6, 6), 40, 2)
    for seed in range(10):
        env.reset(seed=seed)
        for _ in range(3):
            env.step(env.sample_random_action())
        done = False
        while (action := oracle_action(env)) is not None and not done:
            _, _, done, truncated, _ = env.step(action)
            if truncated:
                break
    env.reset(seed=0)
    place(env, "# # # # #\n# X _ P #\n# _ _ O #\n# # # # #")
    assert oracle_action(env) is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dim_room": (6, 6), "num_boxes": 6}, "num_boxes=6"),
        ({"dim_room": (4, 4), "num_boxes": 1}, "dim_room=\\(4, 4\\)"),
        ({"dim_room": (2, 8)}, "dim_room"),
        ({"dim_room": (6,)}, "dim_room"),
        ({"dim_room": 6}, "dim_room"),
        ({"dim_room": (6, 6.0)}, "dim_room"),
        ({"dim_room": (600, 600)}, "dim_room"),
        ({"dim_room": None, "num_boxes": 9}, "num_boxes=9"),
        ({"num_boxes": 0}, "num_boxes"),
        ({"max_turns": -5}, "max_turns"),
    ],
)
def test_nonsense_is_refused_by_name(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SokobanEnv(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="room_size"):
        gem.make("game:Sokoban-v0-random", room_size=None)


@pytest.mark.parametrize(
    ("dim_room", "boxes", "turns"),
    [((3, 5), 1, 1), ((5, 3), 1, 1), ((6, 6), 5, 1), ((5, 5), 3, 2), ((8, 8), 12, 3), ((12, 30), 8, 400)],
)
def test_tight_rooms_are_still_solvable(dim_room: tuple[int, int], boxes: int, turns: int) -> None:
    env = SokobanEnv(dim_room, turns, boxes)
    for seed in range(8):
        env.reset(seed=seed)
        assert len(env.solution) <= turns
        for letter in env.solution:
            _, _, terminated, _, _ = env.step(f"\\boxed{{{WORDS[letter]}}}")
        assert terminated


def test_a_given_room_draws_its_boxes() -> None:
    env = SokobanEnv((8, 8), None, None)
    counts = set()
    for seed in range(30):
        env.reset(seed=seed)
        counts.add(env.num_boxes)
        assert env.max_turns == 10 * env.num_boxes
    assert counts == {3, 4, 5}
