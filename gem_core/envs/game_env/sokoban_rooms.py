"""Sokoban rooms by reverse play: boxes start on the goals and are pulled away, so the way back is a solution.

Cells are row-major indices into a room that is walled all round. Only lists and a seeded generator decide (no set or
dict order), so a seed gives the same room in any process.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

WALL, FLOOR, GOAL = "#", "_", "O"
MOVES = ("up", "down", "left", "right")
_TRIES = 20


@dataclass(frozen=True)
class Room:
    """A puzzle with one known solution.

    ``fixed`` has one of ``# _ O`` (wall, floor, goal) per cell; ``solution`` one letter of ``udlr`` per move.
    """

    height: int
    width: int
    fixed: str
    boxes: tuple[int, ...]
    player: int
    solution: str


def steps(width: int) -> dict[str, int]:
    """Letter of a direction -> what it adds to a cell index."""
    return {"u": -width, "d": width, "l": -1, "r": 1}


def most_boxes(height: int, width: int) -> int:
    """The most boxes a room takes: a third of its inner cells, and none where three in a line do not fit."""
    if min(height, width) < 3 or max(height, width) < 5:
        return 0
    return (height - 2) * (width - 2) // 3


def draw_room(rng: random.Random, height: int, width: int, num_boxes: int, max_moves: int) -> Room:
    """Draws a room whose known solution takes at most ``max_moves`` moves and is never empty.

    Rooms with every box off its goal and more pushes than boxes are drawn again up to ``_TRIES`` times; what comes
    closest counts. ``num_boxes`` must not exceed :func:`most_boxes`.
    """
    best: Room | None = None
    best_score = (-1, -1)
    for _ in range(_TRIES):
        floor = _draw_floor(rng, height, width, num_boxes)
        drawn = _play_back(rng, height, width, floor, num_boxes, max_moves)
        if drawn is None:
            continue
        room, off_goal, pushes = drawn
        if (off_goal, pushes) > best_score:
            best, best_score = room, (off_goal, pushes)
        if off_goal == num_boxes and pushes > num_boxes:
            break
    return best or _smallest_room(rng, height, width, num_boxes)


def _draw_floor(rng: random.Random, height: int, width: int, num_boxes: int) -> list[bool]:
    """Which cells are floor: the inside, minus random walls that leave it in one piece."""
    inner = [r * width + c for r in range(1, height - 1) for c in range(1, width - 1)]
    floor = [False] * (height * width)
    for cell in inner:
        floor[cell] = True
    spare = len(inner) - (3 * num_boxes + 2)
    walls = min(spare, rng.randint(len(inner) // 8, len(inner) // 3))
    if walls <= 0:
        return floor
    mask = sum(1 << cell for cell in inner)
    rng.shuffle(inner)
    for cell in inner:
        smaller = mask ^ (1 << cell)
        if _connected(smaller, width):
            mask = smaller
            floor[cell] = False
            walls -= 1
            if not walls:
                break
    return floor


def _connected(mask: int, width: int) -> bool:
    """Whether the cells of a bit mask hang together (the walled border keeps shifts from wrapping round)."""
    reached, before = mask & -mask, 0
    while reached != before:
        before = reached
        reached |= (reached << 1 | reached >> 1 | reached << width | reached >> width) & mask
    return reached == mask


def _play_back(
    rng: random.Random, height: int, width: int, floor: list[bool], num_boxes: int, max_moves: int
) -> tuple[Room, int, int] | None:
    """Draws goals and pulls the boxes away; returns the room, its boxes off goal and its pushes."""
    directions = tuple(steps(width).values())
    cells = [c for c, is_floor in enumerate(floor) if is_floor]
    # `floor[c + s]` first: it keeps the second index inside the room.
    pullable = [c for c in cells if any(floor[c + s] and floor[c + 2 * s] for s in directions)]
    if len(pullable) < num_boxes:
        return None
    goals = rng.sample(pullable, num_boxes)
    is_goal = [False] * len(floor)
    free = floor[:]  # floor without a box
    for cell in goals:
        is_goal[cell] = True
        free[cell] = False
    boxes = goals[:]
    limit = max(1, int(max_moves * rng.uniform(0.5, 0.8)))
    trail: list[int] = []  # the player's steps, backwards in time
    player = -1  # until the first pull the player may be anywhere
    pulls = far = 0
    off_goal = 0
    where = sum(1 << box for box in boxes)
    seen = {where}
    best: tuple[int, int] | None = None  # boxes off goal, distance of all from where they began
    kept: tuple[list[int], int, int, int] = (boxes, player, 0, 0)
    distance, came = [0 if f else -1 for f in free], [0] * len(free)
    while True:
        options: list[tuple[int, int]] = []
        weights: list[float] = []
        spare = limit - len(trail) - 1
        for i, box in enumerate(boxes):
            for s in directions:
                away = distance[box + s]
                if 0 <= away <= spare and free[box + 2 * s] and where ^ (1 << box) ^ (1 << (box + s)) not in seen:
                    options.append((i, s))
                    # Boxes still at home first, and mostly what is near: long walks use up the moves.
                    weights.append((16.0 if is_goal[box] else 1.0) / (1 + away))
        if not options:
            break
        i, s = rng.choices(options, weights)[0]
        box = boxes[i]
        if player >= 0:
            trail += _path(came, player, box + s)
        trail.append(s)
        player = box + 2 * s
        boxes[i] = box + s
        free[box], free[box + s] = True, False
        pulls += 1
        where ^= (1 << box) ^ (1 << (box + s))
        seen.add(where)
        off_goal += is_goal[box] - is_goal[box + s]
        far += _apart(box + s, goals[i], width) - _apart(box, goals[i], width)
        if off_goal and (best is None or (off_goal, far) > best):
            best = (off_goal, far)
            kept = (boxes[:], player, pulls, len(trail))
        distance, came = _walk(free, directions, player)
    if best is None:
        return None
    boxes, player, pulls, moves = kept
    # The player starts a few steps off, not beside the box to push first.
    free = floor[:]
    for box in boxes:
        free[box] = False
    distance, came = _walk(free, directions, player)
    start = rng.choice([c for c in cells if 0 <= distance[c] <= min(5, max_moves - moves)])
    trail = trail[:moves] + _path(came, player, start)
    fixed = "".join(GOAL if is_goal[c] else FLOOR if f else WALL for c, f in enumerate(floor))
    letters = {-s: letter for letter, s in steps(width).items()}  # backwards in time is the other way round
    solution = "".join(letters[s] for s in reversed(trail))
    return Room(height, width, fixed, tuple(sorted(boxes)), start, solution), best[0], pulls


def _apart(a: int, b: int, width: int) -> int:
    return abs(a // width - b // width) + abs(a % width - b % width)


def _walk(free: list[bool], directions: tuple[int, ...], start: int) -> tuple[list[int], list[int]]:
    """Distances from ``start`` over free cells (-1 = out of reach) and the step into each."""
    distance, came = [-1] * len(free), [0] * len(free)
    distance[start] = 0
    queue = [start]
    for cell in queue:
        onward = distance[cell] + 1
        for s in directions:
            there = cell + s
            if free[there] and distance[there] < 0:
                distance[there] = onward
                came[there] = s
                queue.append(there)
    return distance, came


def _path(came: list[int], start: int, end: int) -> list[int]:
    path: list[int] = []
    while end != start:
        path.append(came[end])
        end -= came[end]
    return path[::-1]


def _smallest_room(rng: random.Random, height: int, width: int, num_boxes: int) -> Room:
    """An open room with one box one push from its goal and the rest at home: what always fits."""
    along, letter = (1, "l") if width >= 5 else (width, "u")
    goal = width + 1
    inner = [r * width + c for r in range(1, height - 1) for c in range(1, width - 1)]
    rest = rng.sample([c for c in inner if c not in (goal, goal + along, goal + 2 * along)], num_boxes - 1)
    fixed = [WALL] * (height * width)
    for cell in inner:
        fixed[cell] = FLOOR
    for cell in (goal, *rest):
        fixed[cell] = GOAL
    boxes = tuple(sorted([goal + along, *rest]))
    return Room(height, width, "".join(fixed), boxes, goal + 2 * along, letter)


def shortest_solution(
    fixed: str, width: int, boxes: list[int] | tuple[int, ...], player: int, max_states: int = 400_000
) -> str | None:
    """A shortest solution in moves, by breadth-first search from any state.

    Returns:
        Letters of ``udlr``; None where there is none, or none was met within ``max_states`` states.
    """
    step = steps(width)
    goals = tuple(c for c, kind in enumerate(fixed) if kind == GOAL)
    alive = _alive(fixed, step, goals)
    start = (player, tuple(sorted(boxes)))
    came: dict[tuple[int, tuple[int, ...]], tuple[tuple[int, tuple[int, ...]], str] | None] = {start: None}
    queue = deque([start])
    while queue and len(came) < max_states:
        state = queue.popleft()
        here, now = state
        if now == goals:
            letters = ""
            while (link := came[state]) is not None:
                state, letter = link
                letters += letter
            return letters[::-1]
        for letter, s in step.items():
            there = here + s
            if fixed[there] == WALL:
                continue
            after = now
            if there in now:
                beyond = there + s
                if not alive[beyond] or beyond in now:
                    continue
                after = tuple(sorted([*(b for b in now if b != there), beyond]))
            follow = (there, after)
            if follow not in came:
                came[follow] = (state, letter)
                queue.append(follow)
    return None


def _alive(fixed: str, step: dict[str, int], goals: tuple[int, ...]) -> list[bool]:
    """Cells from which a box alone could be pushed to some goal; elsewhere it is stuck for good."""
    alive = [False] * len(fixed)
    queue = list(goals)
    for cell in goals:
        alive[cell] = True
    for cell in queue:
        for s in step.values():
            if fixed[cell + s] != WALL and fixed[cell + 2 * s] != WALL and not alive[cell + s]:
                alive[cell + s] = True
                queue.append(cell + s)
    return alive
