"""Sokoban: push every box onto a goal. Rooms come from reverse play and are solvable within the turn limit."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.envs.game_env import sokoban_rooms
from gem_core.envs.game_env.sokoban_rooms import GOAL, MOVES, WALL
from gem_core.envs.text_game import Outcome, TextGame, check_positive

_RANDOM_ROOMS = (((6, 6), 2), ((8, 8), 5))  # rooms and boxes of the -random id
_TURNS_PER_BOX = 10
_LARGEST_SIDE = 50


class SokobanEnv(TextGame[str]):
    """Rewards: 1.0 once every box is on a goal; on the last turn without that, boxes on goals / boxes.

    Args:
        dim_room: Height and width with the outer walls; None draws (6, 6) or (8, 8) at each reset.
        max_turns: Moves allowed; None gives 10 a box.
        num_boxes: Boxes and goals; None draws: 2 and 5 in the two rooms above, else by the size of the room.

    Raises:
        ValueError: sides that are no room, more boxes than fit (a third of the inner cells).
    """

    state_fields = (
        "height",
        "width",
        "num_boxes",
        "fixed",
        "boxes",
        "player",
        "start_boxes",
        "start_player",
        "solution",
    )

    def __init__(
        self,
        dim_room: Sequence[int] | None = (6, 6),
        max_turns: int | None = 100,
        num_boxes: int | None = 3,
    ) -> None:
        super().__init__(max_turns)
        check_positive(num_boxes=num_boxes)
        if dim_room is not None:
            dim_room = _check_sides(dim_room)
        for height, width in [dim_room] if dim_room else [room for room, _ in _RANDOM_ROOMS]:
            most = sokoban_rooms.most_boxes(height, width)
            if most < 1 or (num_boxes or 1) > most:
                raise ValueError(
                    f"num_boxes={num_boxes} does not fit dim_room=({height}, {width}), which holds at most {most}"
                    + ("" if most else ": a room needs three inner cells in a line")
                )
        self._fixed = (dim_room, num_boxes, max_turns)
        self.height = self.width = self.num_boxes = self.player = self.start_player = 0
        #: ``#``, ``_`` or ``O`` (wall, floor, goal) for each cell, row by row; boxes and player are cell numbers.
        self.fixed = ""
        self.boxes: list[int] = []
        self.start_boxes: list[int] = []
        #: One solution from the start, a letter of ``udlr`` a move; at most ``max_turns`` long.
        self.solution = ""

    def deal(self) -> None:
        sides, boxes, turns = self._fixed
        if sides is None:
            sides, drawn = self.rng.choice(_RANDOM_ROOMS)
        else:
            inner = (sides[0] - 2) * (sides[1] - 2)
            drawn = boxes or max(1, self.rng.randint(inner // 12, max(1, inner // 7)))
        self.height, self.width = sides
        self.num_boxes = boxes or drawn
        self.max_turns = turns or _TURNS_PER_BOX * self.num_boxes
        room = sokoban_rooms.draw_room(self.rng, self.height, self.width, self.num_boxes, self.max_turns)
        self.fixed, self.solution = room.fixed, room.solution
        self.start_boxes, self.start_player = list(room.boxes), room.player
        self.boxes, self.player = list(room.boxes), room.player

    def rules(self) -> str:
        return (
            f"This is Sokoban with {self.num_boxes} box{'es' if self.num_boxes > 1 else ''}. Walk with up, down, left "
            f"and right; walking into a box pushes it one cell on, if the cell behind it holds neither wall nor box. "
            f"Boxes cannot be pulled. Solved means every box on a goal; you have {self.max_turns} moves.\n"
            f"Signs: # wall, _ floor, O goal, X box, √ box on a goal, P you, S you on a goal.\n"
            f"Think as you like, then give one move as {self.format_hint()}, for example \\boxed{{left}}."
        )

    def request(self) -> str:
        return (
            f"{self.render()}\n{self.on_goals()} of {self.num_boxes} boxes are on goals. Move {self.turn + 1} of "
            f"{self.max_turns}: answer with {self.format_hint()}."
        )

    def render(self) -> str:
        """The room, one sign a cell, with blanks between."""
        cells = list(self.fixed)
        for box in self.boxes:
            cells[box] = "√" if cells[box] == GOAL else "X"
        cells[self.player] = "S" if cells[self.player] == GOAL else "P"
        w = self.width
        return "\n".join(" ".join(cells[r * w : r * w + w]) for r in range(self.height))

    def on_goals(self) -> int:
        """How many boxes are on goals."""
        return sum(self.fixed[box] == GOAL for box in self.boxes)

    def format_hint(self) -> str:
        return r"\boxed{direction}"

    def parse(self, content: str) -> str | None:
        # No letter but these lowers to one of the four words, so an odd Unicode capital cannot slip in.
        move = content.lower()
        return move if move in MOVES else None

    def play(self, move: str) -> Outcome:
        step = sokoban_rooms.steps(self.width)[move[0]]
        there = self.player + step
        if self.fixed[there] == WALL:
            return Outcome(f"A wall is in the way: you cannot go {move}.", legal=False)
        pushed = there in self.boxes
        if pushed:
            beyond = there + step
            if self.fixed[beyond] == WALL or beyond in self.boxes:
                what = "a wall" if self.fixed[beyond] == WALL else "another box"
                return Outcome(f"The box cannot be pushed {move}: {what} is behind it.", legal=False)
            self.boxes[self.boxes.index(there)] = beyond
        self.player = there
        if pushed and self.on_goals() == self.num_boxes:
            return Outcome(f"You pushed the last box {move} onto its goal: solved.", reward=1.0, success=True)
        return Outcome(f"You {'pushed a box' if pushed else 'went'} {move}.")

    def soft_reward(self, outcome: Outcome) -> float:
        return self.on_goals() / self.num_boxes

    def sample_move(self) -> str:
        return self.action_rng.choice(MOVES)


def _check_sides(dim_room: Sequence[int]) -> tuple[int, int]:
    sides = tuple(dim_room) if isinstance(dim_room, (tuple, list)) else ()
    if len(sides) != 2 or any(isinstance(s, bool) or not isinstance(s, int) for s in sides):
        raise ValueError(f"dim_room must be (height, width) or None (drawn at each reset), got {dim_room!r}")
    if not all(3 <= s <= _LARGEST_SIDE for s in sides):
        raise ValueError(f"dim_room={dim_room!r}: each side must be from 3 to {_LARGEST_SIDE}, outer walls included")
    return sides
