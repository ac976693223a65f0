"""WikiGame: get from one page to another by following links."""

from __future__ import annotations

import random

from gem_core.envs.game_env.page_stores import (
    GraphStore,
    Page,
    PageNotFound,
    PageStore,
    check_store_name,
    fold,
    open_store,
)
from gem_core.envs.text_game import Outcome, TextGame, check_positive

_DRAWS = 200


class WikiGameEnv(TextGame[str]):
    """Rewards: 1.0 on the target page, else 0.0. A title that the current page does not link to is illegal.

    Titles are compared without case and Unicode-normalised (NFKC).

    Start and target are drawn at a given distance in links. In a graph that distance is exact; in a ZIM file or a wiki,
    which are too large to search, the target is reached by a random walk of so many links, so a shorter way may exist.

    Args:
        store: None = the graph that ships with the package; the path of a ``.json`` graph or ``.zim`` file; the
            address of a wiki's ``api.php``; or any :class:`~gem_core.envs.game_env.page_stores.PageStore`.
        max_turns: Links that may be followed.
        min_distance: Fewest links from start to target.
        max_distance: Most links from start to target; None = ``max_turns``.

    Raises:
        ValueError: a store of no known kind, or distances that the turns do not allow.
    """

    state_fields = ("start", "target", "current", "path")

    def __init__(
        self,
        store: str | PageStore | None = None,
        max_turns: int = 30,
        min_distance: int = 2,
        max_distance: int | None = 3,
    ) -> None:
        super().__init__(max_turns)
        check_positive(min_distance=min_distance, max_distance=max_distance)
        if max_turns is None or min_distance is None:
            raise ValueError(f"max_turns={max_turns} and min_distance={min_distance} must be positive integers")
        furthest = min(max_turns, max_turns if max_distance is None else max_distance)
        if furthest < min_distance:
            raise ValueError(
                f"min_distance={min_distance} is more than max_distance={max_distance} or max_turns={max_turns} allow"
            )
        if store is None or isinstance(store, str):
            check_store_name(store)
        elif not isinstance(store, PageStore):
            raise ValueError(f"store must be a path, an address, a PageStore or None, got {type(store).__name__}")
        self._named = store
        self._distances = (min_distance, furthest)
        self.start = self.target = self.current = ""
        #: Titles visited so far, the start first.
        self.path: list[str] = []

    @property
    def store(self) -> PageStore:
        """The page store, opened when first asked for."""
        return open_store(self._named) if self._named is None or isinstance(self._named, str) else self._named

    def deal(self) -> None:
        pair = _draw_pair if isinstance(self.store, GraphStore) else _walk_pair
        self.start, self.target = pair(self.store, self.rng, *self._distances)
        self.current = self.start
        self.path = [self.start]

    def page(self) -> Page:
        """The current page."""
        return self.store.page(self.current)

    def rules(self) -> str:
        return (
            f'Find a way through an encyclopedia: from the page "{self.start}" to the page "{self.target}", only by '
            f"following links, with at most {self.max_turns} links. Each turn, name one title that the current page "
            f"links to (capitals do not matter); a title that it does not link to costs the turn. Think as you "
            f"like, then answer with {self.format_hint()}."
        )

    def request(self) -> str:
        page = self.page()
        return (
            f'Page: "{page.title}". {page.text}\nLinks: {"; ".join(page.links)}\nTarget: "{self.target}". Turn '
            f"{self.turn + 1} of {self.max_turns}: follow a link with {self.format_hint()}."
        )

    def format_hint(self) -> str:
        return r"\boxed{Page title}"

    def parse(self, content: str) -> str | None:
        return content or None

    def play(self, move: str) -> Outcome:
        wanted = fold(move)
        link = next((title for title in self.page().links if fold(title) == wanted), None)
        if link is None:
            shown = move if len(move) <= 100 else move[:100] + "..."
            return Outcome(f'The page "{self.current}" has no link to "{shown}".', legal=False)
        try:
            page = self.store.page(link)
        except PageNotFound:
            return Outcome(f'The link to "{link}" is dead: there is no such page.', legal=False)
        self.current = page.title
        self.path.append(page.title)
        if fold(page.title) == fold(self.target):
            return Outcome(f'You have reached "{page.title}".', reward=1.0, success=True)
        if not page.links:
            return Outcome(f'"{page.title}" links to nothing, so no way leads on.', over=True)
        return Outcome(f'You followed the link to "{page.title}".')

    def sample_move(self) -> str:
        return self.action_rng.choice(self.page().links)


def _draw_pair(store: PageStore, rng: random.Random, nearest: int, furthest: int) -> tuple[str, str]:
    """A start and a target at an exact distance."""
    assert isinstance(store, GraphStore)
    for _ in range(_DRAWS):
        start = store.draw_title(rng)
        targets = [title for title, links in store.distances(start).items() if nearest <= links <= furthest]
        if targets:
            return start, rng.choice(targets)
    raise ValueError(f"the graph has no two pages {nearest} to {furthest} links apart")


def _walk_pair(store: PageStore, rng: random.Random, nearest: int, furthest: int) -> tuple[str, str]:
    """A start, and a target that some walk of ``nearest`` to ``furthest`` links reaches."""
    furthest = min(furthest, nearest + 3)  # long random walks only drift; they make no harder targets
    for _ in range(_DRAWS):
        start = page = store.page(store.draw_title(rng))
        seen = {fold(start.title)}
        for _ in range(rng.randint(nearest, furthest)):
            onward = [link for link in page.links if fold(link) not in seen]
            if not onward:
                break
            try:
                page = store.page(rng.choice(onward))
            except PageNotFound:
                break
            if fold(page.title) in seen:  # a redirect to a page already passed
                break
            seen.add(fold(page.title))
        else:
            near = {fold(link) for link in start.links}
            if nearest == 1 or fold(page.title) not in near:
                return start.title, page.title
    raise RuntimeError(f"no pair of pages found in {_DRAWS} walks of {nearest} to {furthest} links")
