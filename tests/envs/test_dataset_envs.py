"""Every dataset id is made and played on local data; rows come as the contract says; faults are named."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import gem_core as gem
from gem_core.envs import dataset_loading
from gem_core.envs.code_env import CodeEnv, parse_tests
from gem_core.envs.dataset_catalogue import list_ids
from gem_core.envs.dataset_env import shuffled
from gem_core.envs.math_env import MathEnv
from gem_core.envs.math_visual_env import MathVisualEnv
from gem_core.envs.qa_env import QaEnv
from gem_core.envs.vision import IMAGE_PLACEHOLDER, chat_content

IDS = list(list_ids())
GRADED = [i for i in IDS if "code:" not in i and "Code" not in i]
ROWS = [{"problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(10)]


def right_answer(env: Any) -> str:
    if isinstance(env, QaEnv) and not env.extract_boxed:
        return f"<answer>{env.gold[0]}</answer>"
    return f"\\boxed{{{env.gold[0]}}}"


def test_the_ids_are_those_of_gem() -> None:
    expected = {
        *(f"math:{n}" for n in ("ASDiv2K", "GSM8K", "Math12K", "Math8K-3to5", "Orz57K", "DeepScaleR40K", "Geometry3K")),
        *(f"code:{n}" for n in ("CodeContest", "Taco8k", "PrimeIntellect15k")),
        *(f"logic:RuleTaker-d{d}" for d in (0, 1, 2, 3, 5)),
        *("qa:NaturalQuestions", "qa:HotpotQA"),
        *(f"eval:{n}" for n in ("MATH500", "AMC", "OlympiadBench", "Minerva", "AIME24", "CodeContest", "QaOpen")),
        *(f"eval:{n}" for n in ("2Wiki", "PopQA", "TriviaQA", "HotpotQA", "Bamboogle", "NaturalQuestions", "Musique")),
    }
    assert set(IDS) == expected
    assert expected <= set(gem.list_envs())
    assert gem.spec("math:GSM8K").kwargs["dataset_name"] == "axon-rl/GSM-8k"
    assert gem.spec("eval:TriviaQA").kwargs["split"] == "tq"


@pytest.mark.parametrize("env_id", GRADED)
def test_each_id_is_played_on_the_sample(env_id: str) -> None:
    env = gem.make(env_id, dataset_name="sample")
    observation, info = env.reset(seed=3)
    assert observation
    assert info["success"] is False
    assert info["correct"] is False
    _, reward, terminated, truncated, info = env.step(right_answer(env))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["success"] is info["correct"] is True
    assert info["verdict"] == "equal"
    with pytest.raises(RuntimeError, match="reset"):
        env.step("again")
    env.reset()
    assert env.step("I do not know.")[1:3] == (0.0, True)
    env.reset()
    _, reward, terminated, _, info = env.step(env.sample_random_action())
    assert terminated
    assert info["verdict"] in ("equal", "different")  # well-formed: an answer was found
    env.close()


@pytest.mark.parametrize("name", ["math", "geometry", "qa", "logic"])
def test_every_sample_row_grades_its_own_answer(name: str) -> None:
    env: Any = {"math": MathEnv, "geometry": MathVisualEnv, "qa": QaEnv, "logic": QaEnv}[name](
        "sample", eval=True, **({"extract_boxed": True} if name == "logic" else {})
    )
    seen = set()
    for _ in range(len(env.dataset)):
        seen.add(env.reset()[1]["index"])
        assert env.step(right_answer(env))[1] == 1.0
    assert len(seen) == len(env.dataset)


# -- which row ----------------------------------------------------------------------------------------------------


def test_a_pass_shows_every_row_once_and_the_next_in_another_order() -> None:
    env = MathEnv(dataset=ROWS)
    passes = [[env.reset()[1]["index"] for _ in range(10)] for _ in range(3)]
    assert [sorted(p) for p in passes] == [list(range(10))] * 3
    assert len({tuple(p) for p in passes}) == 3
    again = MathEnv(dataset=ROWS)
    assert [again.reset()[1]["index"] for _ in range(10)] == passes[0]
    other = MathEnv(dataset=ROWS, seed=1)
    assert [other.reset()[1]["index"] for _ in range(10)] != passes[0]


def test_eval_keeps_the_order_of_the_dataset() -> None:
    env = MathEnv(dataset=ROWS, eval=True)
    assert [env.reset()[1]["index"] for _ in range(12)] == [*range(10), 0, 1]


def test_a_seed_picks_a_row_whatever_came_before() -> None:
    a, b = MathEnv(dataset=ROWS), MathEnv(dataset=ROWS)
    for _ in range(7):
        a.reset()
    follow = [[e.reset(seed=5)[1]["index"], *(e.reset()[1]["index"] for _ in range(9))] for e in (a, b)]
    assert follow[0] == follow[1]
    assert sorted(follow[0]) == list(range(10))
    assert len({a.reset(seed=s)[1]["index"] for s in range(60)}) == 10


def test_an_index_picks_a_row_and_leaves_the_pass_alone() -> None:
    env = MathEnv(dataset=ROWS)
    first = [env.reset()[1]["index"] for _ in range(5)]
    observation, info = env.reset(options={"index": 3})
    assert (observation, info["index"]) == ("What is 3 + 1?", 3)
    assert sorted(first + [env.reset()[1]["index"] for _ in range(5)]) == list(range(10))


@pytest.mark.parametrize("options", [{"index": 10}, {"index": -1}, {"index": "3"}, {"index": True}, {"row": 1}])
def test_a_nonsense_option_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="index"):
        MathEnv(dataset=ROWS).reset(options=options)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 1000])
def test_the_shuffle_is_a_permutation(size: int) -> None:
    assert sorted(shuffled(i, size, "key") for i in range(size)) == list(range(size))


def test_the_global_random_state_is_untouched() -> None:
    before = random.getstate()
    env = MathEnv(dataset=ROWS)
    env.reset(seed=1)
    env.step(env.sample_random_action())
    env.reset()
    assert random.getstate() == before


# -- state --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["math:GSM8K", "qa:HotpotQA", "logic:RuleTaker-d2", "math:Geometry3K"])
def test_state_round_trips_through_json(env_id: str) -> None:
    env = gem.make(env_id, dataset_name="sample")
    env.reset(seed=4)
    env.reset()
    twin = env.spawn()
    twin.set_state(json.loads(json.dumps(env.get_state())))
    action = right_answer(env)
    assert twin.step(action) == env.step(action)
    assert twin.reset()[0] == env.reset()[0]
    assert twin.sample_random_action() == env.sample_random_action()
    copy: Any = env.spawn(same_state=True, **({"timeout": 1.0} if "math" in env_id else {}))
    assert copy.dataset is env.unwrapped.dataset  # type: ignore[attr-defined]
    assert copy.reset()[0] == env.reset()[0]


# -- where rows come from -----------------------------------------------------------------------------------------


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return str(path)


def test_local_files_and_folders(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "folder").mkdir()
    table = datasets.Dataset.from_list(ROWS)
    table.to_parquet(str(tmp_path / "rows.parquet"))
    table.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict(train=table, test=table.select([1])).save_to_disk(str(tmp_path / "splits"))
    write_jsonl(tmp_path / "folder" / "train.jsonl", ROWS)
    write_jsonl(tmp_path / "folder" / "test.jsonl", ROWS[2:3])
    (tmp_path / "rows.json").write_text(json.dumps(ROWS), encoding="utf-8")
    sources: list[tuple[Any, int]] = [
        ({"dataset_name": write_jsonl(tmp_path / "rows.jsonl", ROWS)}, 10),
        ({"dataset_name": str(tmp_path / "rows.json")}, 10),
        ({"dataset_name": str(tmp_path / "rows.parquet")}, 10),
        ({"dataset_name": str(tmp_path / "saved")}, 10),
        ({"dataset_name": str(tmp_path / "splits"), "split": "test"}, 1),
        ({"dataset_name": str(tmp_path / "folder"), "split": "test"}, 1),
        ({"dataset_name": str(tmp_path / "rows.jsonl"), "split": "train"}, 10),  # a file is its own split
        ({"dataset": ROWS}, 10),
        ({"dataset": table}, 10),
        ({"dataset": datasets.DatasetDict(train=table)}, 10),
        ({"dataset": {"a": ROWS, "b": ROWS[:2]}, "split": "b"}, 2),
    ]
    for arguments, size in sources:
        env = MathEnv(**arguments)
        assert len(env.dataset) == size
        observation, _ = env.reset(seed=2)
        assert observation.startswith("What is")
        assert env.step(f"\\boxed{{{env.gold[0]}}}")[1] == 1.0


def test_a_dataset_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    name = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    envs: list[MathEnv] = []
    threads = [threading.Thread(target=lambda: envs.append(MathEnv(name))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({id(e.dataset) for e in envs}) == 1
    time.sleep(0.01)
    write_jsonl(tmp_path / "rows.jsonl", ROWS[:4])
    assert len(MathEnv(name).dataset) == 4
    dataset_loading.clear_cache()
    assert MathEnv(name).dataset is not envs[0].dataset


# -- faults -------------------------------------------------------------------------------------------------------


def test_a_wrong_column_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no column 'question'.*question_key.*'problem', 'answer'"):
        MathEnv(dataset=ROWS, question_key="question")
    with pytest.raises(ValueError, match=r"no column 'images'.*image_key"):
        MathVisualEnv(dataset=ROWS)
    with pytest.raises(ValueError, match=r"no column 'tests'.*test_key"):
        CodeEnv(dataset=ROWS)


def test_a_missing_split_is_named_with_those_there_are(tmp_path: Path) -> None:
    for source in ({"dataset": {"train": ROWS, "test": ROWS}}, {"dataset_name": str(tmp_path)}):
        write_jsonl(tmp_path / "train.jsonl", ROWS)
        write_jsonl(tmp_path / "test.jsonl", ROWS)
        with pytest.raises(ValueError, match=r"no split 'dev'; it has: .*'train'"):
            gem.make("math:GSM8K", **source, split="dev")
        with pytest.raises(ValueError, match=r"several splits.*'train'"):
            gem.make("math:GSM8K", **source)


def test_an_empty_dataset_is_named(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    for source in ({"dataset": []}, {"dataset_name": str(tmp_path / "none.jsonl")}, {"dataset": {"a": []}}):
        with pytest.raises(ValueError, match="is empty"):
            MathEnv(**source)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "give dataset_name="),
        ({"dataset_name": "./missing.jsonl"}, FileNotFoundError, "missing.jsonl"),
        ({"dataset_name": "sample:nothing"}, ValueError, "the samples are: code, geometry, logic, math, qa"),
        ({"dataset": 3}, ValueError, "is a int"),
        ({"dataset": ["text"]}, ValueError, "row 0 is a str"),
        ({"dataset": ROWS, "seed": -1}, ValueError, "seed"),
        ({"dataset": ROWS, "timeout": 0}, ValueError, "timeout"),
        ({"dataset": ROWS, "prompt": "no place"}, ValueError, "question"),
    ],
)
def test_nonsense_is_named_at_make(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MathEnv(**arguments)
    with pytest.raises(ValueError, match="did you mean 'question_key'"):
        gem.make("math:GSM8K", dataset=ROWS, question_kye="q")


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"problem": "x", "answer": "1"}\n{"problem": \n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        MathEnv(str(tmp_path / "bad.jsonl"))
    env = MathEnv(dataset=[*ROWS, {"problem": "no answer here"}, {"problem": "", "answer": "1"}])
    with pytest.raises(ValueError, match="row 10 has no 'answer'"):
        env.reset(options={"index": 10})
    with pytest.raises(ValueError, match="row 11 has no question"):
        env.reset(options={"index": 11})


def test_an_action_of_another_type_is_refused() -> None:
    env = MathEnv(dataset=ROWS)
    env.reset()
    with pytest.raises(TypeError, match="string"):
        env.step(3)  # type: ignore[arg-type]


# -- particular tasks ---------------------------------------------------------------------------------------------


def test_math_takes_several_references_and_numbers() -> None:
    env = MathEnv(dataset=[{"problem": "?", "answer": ["1", "\\frac{1}{2}"]}, {"problem": "?", "answer": 7}], eval=True)
    env.reset()
    assert env.step("\\boxed{0.5}")[1] == 1.0
    env.reset()
    assert env.step("\\boxed{7.0}")[1] == 1.0


def test_a_bomb_costs_its_time_limit_and_is_named() -> None:
    env = MathEnv(dataset=ROWS, timeout=0.5)
    env.reset()
    env.step("\\boxed{x+1}")  # starts the workers
    env.reset()
    start = time.monotonic()
    _, reward, terminated, _, info = env.step("\\boxed{9^{9^{9^{9}}}}")
    assert time.monotonic() - start < 2.5
    assert (reward, terminated, info["verdict"]) == (0.0, True, "time_limit")


def test_qa_reads_tags_or_boxes_and_pays_f1_if_asked() -> None:
    rows = [{"question": "Who?", "answer": ["Marie Curie"]}]
    tagged, boxed = QaEnv(dataset=rows), QaEnv(dataset=rows, extract_boxed=True)
    assert "<answer>" in tagged.reset()[0]
    assert "\\boxed" in boxed.reset()[0]
    assert tagged.step("\\boxed{Marie Curie}")[4]["verdict"] == "no_answer"
    assert boxed.step("\\boxed{marie curie}")[1] == 1.0
    partial = QaEnv(dataset=rows, reward="f1", prompt=None)
    assert partial.reset()[0] == "Who?"
    _, reward, _, _, info = partial.step("<answer>Curie</answer>")
    assert reward == info["f1"] == pytest.approx(2 / 3)
    assert info["success"] is False


def test_images_stand_beside_the_text() -> None:
    env = MathVisualEnv("sample", eval=True)
    observation, info = env.reset(options={"index": 7})
    assert observation.count(IMAGE_PLACEHOLDER) == len(info["images"]) == 2
    parts = chat_content(observation, info["images"])
    assert [p["type"] for p in parts] == ["text", "image", "image"]
    assert parts[1]["image"].size == (120, 90)
    bare = MathVisualEnv(dataset=[{"problem": "Find x.", "answer": "1", "images": info["images"][0]}])
    assert bare.reset()[0] == f"{IMAGE_PLACEHOLDER}Find x."
    with pytest.raises(ValueError, match="for 1 images"):
        chat_content("no placeholder", info["images"][:1])
    broken = MathVisualEnv(dataset=[{"problem": "x", "answer": "1", "images": [b"not an image"]}])
    with pytest.raises(ValueError, match=r"row 0: an image cannot be read from 12 bytes"):
        broken.reset()


def test_images_of_the_datasets_library(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    image = MathVisualEnv("sample").reset(seed=0)[1]["images"][0]
    features = datasets.Features(
        problem=datasets.Value("string"), answer=datasets.Value("string"), images=datasets.List(datasets.Image())
    )
    rows = [{"problem": "<image>Find x.", "answer": "5", "images": [image]}]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(str(tmp_path / "d"))
    env = gem.make("math:Geometry3K", dataset_name=str(tmp_path / "d"))
    assert env.reset()[1]["images"][0].size == image.size


@pytest.mark.parametrize(
    "tests", [None, "not json", {"inputs": ["1"]}, {"inputs": ["1"], "outputs": []}, {"inputs": [], "outputs": []}]
)
def test_malformed_tests_are_named(tests: Any) -> None:
    with pytest.raises(ValueError, match="tests"):
        parse_tests(tests)
