"""`codesgc report` without a browser: what is read, what is left out, the tables, and the file that comes out."""

import builtins
import copy
import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_material import recording, result, study, write

from codesgc import InputError
from codesgc.cli import main
from codesgc.report import figures, page, reading, tables
from codesgc.report.reading import Foreign
from codesgc.zoo import paper_value, preset
from codesgc.zoo.published import TABLES

ROOT = Path(__file__).parent.parent


class Structure(HTMLParser):
    """Tags that must be closed are, in order; the content of the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.scripts, self.ids = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


def made(*paths: str, title: str = "title") -> tuple[str, dict]:
    """The page of these paths, without plotly.js, and its data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "plotly_js", lambda: "")
        text = page.page(reading.read(paths), title, "codesgc report")
    structure = Structure(text)
    assert len(structure.ids) == len(set(structure.ids))
    return text, json.loads(structure.scripts[0])


# --- reading


def test_results_lists_recordings_and_studies_are_read_wherever_they_lie(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write(tmp_path / "deep" / "er", one=result(), two=[result(model="GCN"), result(model="H-CP")], study=study())
    write(tmp_path, model=recording())
    material = reading.read([str(tmp_path)])
    assert sorted(model for _, _, model in material.cells) == ["GCN", "H-CP", "L-CP"]
    assert list(material.recordings) == [("paper", "texas", "L-CP")]
    assert [len(s.trials) for s in material.studies] == [30] and material.skipped == []


def test_what_a_training_writes_is_read(tmp_path):
    file = tmp_path / "result.json"
    argv = ["train", "texas", "--runs", "2", "--set", "epochs=2", "--json", str(file)]
    assert main(argv) == 0
    (cell,) = reading.read([str(file)]).cells.values()
    data = json.loads(file.read_text())
    assert (cell.mean, cell.half, cell.seconds) == (data["test_mean"], data["test_ci95"], data["seconds"])
    assert cell.paper == paper_value("texas", "L-CP") and len(cell.runs) == 2


def test_intervals_meet_where_they_have_a_point_in_common():
    def cell(mean, half):
        return reading.cell({**result(mean=mean), "test_ci95": half, "paper": {"mean": 90.0, "ci95": 1.0}}, "")

    assert cell(92.0, 1.0).meets and cell(88.0, 1.0).meets and not cell(92.01, 1.0).meets and not cell(87.9, 1.0).meets
    assert cell(92.0, 0.0).difference == 2.0
    assert [tables.mark(cell(mean, 1.0)) for mean in (90, 95, 85)] == ["●", "▲", "▼"]


def broken(change) -> dict:
    data = result()
    change(data)
    return data


FOREIGN = {
    "it is empty": "",
    "broken or truncated JSON": json.dumps(result())[:-30],
    "NaN is no JSON": json.dumps(broken(lambda d: d.update(test_mean=float("nan")))),
    "nested too deeply": "[" * 100_000,
    "it is no text": b"\xff\xfe\x00",
    "no result of codesgc": {"name": "package", "version": 1},
    "its content is 5": 5,
    "an entry of its list is 1": [1],
    "'dataset' is 5: expected a name": broken(lambda d: d.update(dataset=5)),
    "'model' is null": broken(lambda d: d.update(model=None)),
    "'runs' is a list with 0 entries": broken(lambda d: d.update(runs=[])),
    "run 0 is 3": broken(lambda d: d.update(runs=[3])),
    'run 1 is "high"': broken(lambda d: d["runs"][1].update(test_accuracy="high")),
    "run 1 is true": broken(lambda d: d["runs"][1].update(test_accuracy=True)),
    "'test_mean' is 900": broken(lambda d: d.update(test_mean=900)),
    "'test_mean' is not the mean of the runs": broken(lambda d: d.update(test_mean=91.0)),
    "'test_ci95' is null": broken(lambda d: d.pop("test_ci95")),
    "the paper's mean is null": broken(lambda d: d.update(paper={})),
    "out of range": json.dumps(broken(lambda d: d.update(seconds=0))).replace(
        '"seconds": 0', f'"seconds": 1{"0" * 400}'
    ),
    "seed of run 2 is 1.5": broken(lambda d: d["runs"][2].update(seed=1.5)),
    "'epoch'": {**recording(), "curve": {}},
    "'edges' has 3 entries": {**recording(), "spectrum": {"matrix": "sym", "share": [1.0], "edges": [1, 2, 3]}},
    "'layers' is a list with 0 entries": {**recording(), "layers": []},
    "its trials is a list with 0 entries": {**study(), "all": []},
    "value of trial 0": {**study(), "all": [{"value": "good"}]},
}


@pytest.mark.parametrize("reason", FOREIGN)
def test_what_cannot_be_used_is_named_and_left_out(reason, tmp_path, capsys):
    content = FOREIGN[reason]
    file = tmp_path / "bad.json"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        write(tmp_path, bad=content)
    write(tmp_path, good=result(model="GCN"))
    target = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "-o", str(target)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{target}\n" and shown.err.count("\n") == 1
    assert shown.err.startswith(f"codesgc: {file} is left out: ") and reason in shown.err
    text = target.read_text()
    assert html.escape(reason) in text and "GCN" in text


def test_a_cell_that_comes_twice_is_shown_once_and_named(tmp_path):
    write(tmp_path, a=result(mean=90.0), b=result(mean=80.0))
    material = reading.read([str(tmp_path)])
    assert [cell.mean for cell in material.cells.values()] == [90.0]
    assert [(Path(source).name, reason) for source, reason in material.skipped] == [
        ("b.json", f"texas L-CP (paper) is in {tmp_path}/a.json already")
    ]


def test_missing_paths_and_bad_targets_are_mistakes(tmp_path, capsys):
    for argv, message in [
        (["nowhere"], "nowhere: there is no such file or folder"),
        ([str(tmp_path), "-o", str(tmp_path)], "--output .*that is a folder"),
        ([str(tmp_path), "-o", "/no/folder/report.html"], "there is no folder /no/folder"),
        ([str(tmp_path), "--update", "doc.md"], "--update was given without --markdown"),
        ([str(tmp_path), "--markdown", "--update", str(tmp_path / "doc.md")], "cannot be read"),
    ]:
        assert main(["report", *argv]) == 2
        assert re.match(f"codesgc: error: .*{message}", capsys.readouterr().err)


def test_an_empty_folder_makes_a_page_that_says_so(tmp_path):
    text, data = made(str(tmp_path))
    assert "There is nothing to show" in text and data == {"runs": [], "models": [], "studies": []}


# --- tables


def test_tables_have_the_papers_layout(tmp_path):
    models = ["L-CP", "GCN", "H-CP", "SGC", "mine"]
    write(tmp_path, all=[result(d, m) for d in ("texas", "zoo", "cora") for m in models])
    write(tmp_path, strict=result(protocol="strict"))
    found = tables.tables(reading.read([str(tmp_path)]).cells.values())
    assert [(table.title, table.protocol, table.models, table.datasets) for table in found] == [
        ("Table 2", "paper", ["GCN", "L-CP"], ["cora", "texas", "zoo"]),
        ("Table 3", "paper", ["H-CP", "L-CP"], ["cora", "texas", "zoo"]),
        ("Other models", "paper", ["SGC", "mine"], ["cora", "texas", "zoo"]),
        ("Table 2", "strict", ["L-CP"], ["texas"]),
    ]


def test_a_table_that_another_one_has_whole_is_left_out(tmp_path):
    write(tmp_path, all=[result(d, m) for d in ("texas", "cora") for m in TABLES["3"]], more=result("texas", "SGC"))
    found = tables.tables(reading.read([str(tmp_path)]).cells.values())
    assert [(table.title, len(table.cells)) for table in found] == [("Table 3", 16), ("Other models", 1)]


def test_cells_are_counted_once(tmp_path):
    cells = [
        result("texas", "L-CP"),
        result("texas", "GCN", mean=50.0),
        result("cora", "GCN", mean=97.0),
        result("zoo"),
    ]
    write(tmp_path, all=cells)
    found = tables.count(reading.read([str(tmp_path)]).cells.values())
    assert str(found) == "intervals meet the paper's in 1 of 3 cells"
    assert [cell.dataset for cell in found.higher] == ["cora"] and [cell.dataset for cell in found.lower] == ["texas"]


def test_markdown_shows_differences_and_marks(tmp_path, capsys):
    cells = [result(), result("texas", "GCN", mean=50.0), result("a|b", "SGC"), {**result("cora"), "paper": None}]
    cells[3]["runs"], cells[3]["test_mean"] = cells[3]["runs"][:1], 88.5
    write(tmp_path, all=cells)
    assert main(["report", str(tmp_path), "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "**Table 2**, paper protocol: intervals meet the paper's in 1 of 2 cells." in lines
    paper = paper_value("texas", "GCN")
    assert f"| texas | **50.00 ± 1.00 (−{paper[0] - 50:.2f}) ▼** | 90.00 ± 1.00 (−0.66) |" in lines
    assert "| cora |  | 88.50 |" in lines and "| a\\|b | 90.00 ± 1.00 |" in lines


def test_update_fills_the_block_of_a_document_and_leaves_the_rest(tmp_path, capsys):
    results = tmp_path / "results"
    results.mkdir()
    write(results, one=result())
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter ± \n")
    argv = ["report", str(results), "--markdown", "--update", str(document)]
    assert main(argv) == 0
    first = document.read_text()
    assert first.startswith(f"before\n{tables.BEGIN}\n") and first.endswith(f"\n{tables.END}\nafter ± \n")
    assert "90.00 ± 1.00" in first and "old" not in first
    assert main(argv) == 0 and document.read_text() == first
    document.write_text("no markers")
    assert main(argv) == 2 and tables.BEGIN in capsys.readouterr().err
    assert document.read_text() == "no markers"


SHORT = [file for model in ("L-CP", "L-Tucker") for file in sorted((ROOT / "results/paper").glob(f"*/{model}.json"))]


@pytest.mark.parametrize("name, files", [("docs/results.md", [ROOT / "results"]), ("README.md", SHORT)])
def test_documents_agree_with_the_committed_results(name, files):
    document = (ROOT / name).read_text(encoding="utf-8")
    cells = reading.read([str(file) for file in files]).cells.values()
    assert tables.updated(document, tables.markdown(cells)) == document, "run: make tables"


# --- the page


def test_page_is_a_function_of_its_files(tmp_path):
    folder = write(tmp_path, one=result(), model=recording(), study=study())
    assert made(folder) == made(folder)


def test_page_asks_for_nothing(tmp_path):
    target = tmp_path / "report.html"
    folder = write(tmp_path, one=result())
    assert main(["report", folder, "-o", str(target)]) == 0
    text = target.read_text()
    head = text[: text.index('<script type="application/json"')]
    assert "default-src 'none'" in head and not re.search(r"(src|href)=(?!'?\"?data:)", head) and "@import" not in head
    assert len(text) < 6_000_000


def test_page_says_what_made_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    write(Path("results"), one=result(), old={**result("cora"), "interrupted": True})
    assert main(["report", "--title", "mine & yours"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    text = Path("report.html").read_text()
    assert "<code>codesgc report results -o report.html</code>" in text and "codesgc 0.1.0, torch 2.0" in text
    assert "<h1>mine &amp; yours</h1>" in text and "Interrupted before all runs were done: cora L-CP" in text


def test_figures_are_what_plotly_accepts(tmp_path):
    import plotly.graph_objects as go

    write(tmp_path, one=result(), two=result(model="SGC"), a=recording(), b=recording("H-Tucker"), study=study())
    _, data = made(str(tmp_path))
    every = [*data["runs"], *(part["figure"] for parts in data["studies"] for part in parts)]
    for model in data["models"]:
        every.append(model["training"])
        for layer in model["layers"]:
            every += [layer["size"], layer["main"], *(part["figure"] for part in layer["W"] + layer["factors"])]
    assert len(every) > 20
    for figure in every:
        text = re.sub(r'"@(both|one)"', '"Blues"', json.dumps(figure))
        go.Figure(json.loads(re.sub(r'"@\w+"', '"#123456"', text)))


def test_colours_of_figures_are_in_the_style_sheet(tmp_path):
    write(tmp_path, one=result(), a=recording(), b=recording("H-Tucker"), study=study())
    text, data = made(str(tmp_path))
    for name in set(re.findall(r'"@(\w+)"', json.dumps(data))) - {"both", "one"}:
        assert len(re.findall(rf"--{name}: #", text)) == 2, name  # light and dark
    assert all(f"--c{i}: #" in text for i in range(figures.COLOURS))


def test_study_shows_optunas_figures(tmp_path):
    write(tmp_path, study=study())
    _, data = made(str(tmp_path))
    ((history, importance),) = data["studies"]
    assert history["title"] == "History" and len(history["figure"]["data"][0]["x"]) == 29  # without the pruned one
    assert set(importance["figure"]["data"][0]["y"]) == {"a", "rank", "basis"}


def test_study_that_optuna_cannot_draw_is_a_note(tmp_path):
    write(tmp_path, study=study(trials=1))
    _, data = made(str(tmp_path))
    notes = [part["note"] for part in data["studies"][0] if "note" in part]
    assert notes and all(note.partition(":")[0] in ("Optuna says", "Importance of the settings") for note in notes)


def without(monkeypatch, *missing: str) -> None:
    real = builtins.__import__

    def importing(name, *rest, **more):
        if name.partition(".")[0] in missing:
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_without_plotly_the_error_names_the_extra_and_markdown_still_works(tmp_path, monkeypatch, capsys):
    folder = write(tmp_path, one=result())
    without(monkeypatch, "plotly", "optuna")
    assert main(["report", folder, "-o", str(tmp_path / "report.html")]) == 2
    assert "pip install 'codesgc[report]'" in capsys.readouterr().err and not (tmp_path / "report.html").exists()
    assert main(["report", folder, "--markdown"]) == 0


def test_without_optuna_the_section_says_so(tmp_path, monkeypatch):
    write(tmp_path, study=study())
    without(monkeypatch, "optuna")
    _, data = made(str(tmp_path))
    assert "pip install 'codesgc[tune]'" in data["studies"][0][0]["note"]


def test_report_does_not_import_torch(tmp_path):
    folder = write(tmp_path, one=result())
    code = f"import sys; from codesgc.cli import main; main(['report', {folder!r}, '--markdown'])"
    code += "; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# --- whatever is in the files

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<!--<script>",
    '\'" onload=window.hacked=1 x="',
    "{{js}} {{data}}",
    "a\u202eb\x00\x1b[31m\ud800\u2028",
    "&lt;b&gt; %{x} <a href='javascript:window.hacked=1'>x</a>",
    "x" * 5000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_text_and_nothing_else(name, tmp_path):
    named = {"dataset": name, "model": name}
    data = {**result(), **named, "protocol": name, "versions": {name: name}}
    learned = {**recording(), **named, "spectrum": {**recording()["spectrum"], "matrix": name}}
    learned["layers"][0]["factors"] = {name: learned["layers"][0]["factors"]["C"]}
    search = {**study(), **named}
    search["all"] = [{**trial, "params": {name: trial["params"]["a"]}} for trial in search["all"]]
    write(tmp_path, one=data, two=learned, three=search)
    text, _ = made(str(tmp_path), title=name.encode("utf-8", "replace").decode())
    assert len(re.findall("<script", text)) == 3 and "<img" not in text
    body = text[: text.index("<script")]
    assert "onerror='" not in body and "<a " not in body
    assert "\u202e" not in body.partition("<main>")[2].partition("</header>")[2]
    assert main(["report", str(tmp_path), "--markdown"]) == 0


def places_of(data, path=()):
    """Every place in nested JSON."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places_of(value, (*path, key))


VALUES = st.sampled_from(
    [None, True, 0, -1, 1e308, -1e308, 10**400, 0.5, "", "x", [], [[]], [1], {}, {"a": 1}, *HOSTILE]
) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
SEEDS = [result(), [result(), result(model="GCN")], recording(), recording("H-Tucker"), study(12)]
PLACES = [list(places_of(seed)) for seed in SEEDS]


@st.composite
def mutated(draw):
    """A right file with up to three of its values exchanged or missing, or cut off somewhere."""
    which = draw(st.integers(0, len(SEEDS) - 1))
    data = copy.deepcopy(SEEDS[which])
    for _ in range(draw(st.integers(1, 3))):
        # short paths more often: there are few of them
        depth = draw(st.integers(0, 7))
        path = draw(st.sampled_from([p for p in PLACES[which] if len(p) <= depth]))
        if not path:
            data = copy.deepcopy(draw(VALUES)) if draw(st.integers(0, 9)) == 0 else data
            continue
        parent = data
        try:
            for key in path[:-1]:
                parent = parent[key]
            if isinstance(parent, dict) and draw(st.booleans()):
                del parent[path[-1]]
            else:
                parent[path[-1]] = copy.deepcopy(draw(VALUES))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    text = json.dumps(data)
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 5)) == 0 else text


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(mutated(), min_size=1, max_size=3))
def test_the_page_comes_out_whatever_the_files_hold(tmp_path, texts):
    for file in tmp_path.glob("*.json"):
        file.unlink()
    write(tmp_path, **{f"b{i}": text for i, text in enumerate(texts)}, a=result("cornell", "SGC", mean=77.77))
    text, data = made(str(tmp_path))
    assert "77.77" in text and "SGC" in json.dumps(data["runs"])
    tables.markdown(reading.read([str(tmp_path)]).cells.values())


def test_reading_errors_are_of_one_kind():
    assert not issubclass(Foreign, InputError)


# --- what a review found


def test_a_report_does_not_replace_what_it_shows(tmp_path, capsys):
    file = tmp_path / "out.json"
    file.write_text(before := json.dumps(result()))
    for target in (file, tmp_path / "." / "out.json"):
        assert main(["report", str(tmp_path), "-o", str(target)]) == 2
        assert "is one of the results to be shown" in capsys.readouterr().err
    assert file.read_text() == before


def test_settings_of_ones_own_are_not_shown_as_the_papers(tmp_path):
    published = preset("cora", "L-CP").to_dict()
    own = preset("cora", "L-CP").updated({"order": 0}).to_dict()
    for name, config in (("a", own), ("b", published)):
        (tmp_path / f"{name}.json").write_text(json.dumps(result("cora") | {"config": config}))
    material = reading.read([str(tmp_path)])
    assert [model for _, _, model in material.cells] == ["L-CP, changed", "L-CP"]
    assert not material.skipped


def test_a_report_of_nothing_is_an_error(tmp_path, capsys):
    (tmp_path / "other.json").write_text("{}")
    assert main(["report", str(tmp_path / "other.json"), "-o", str(tmp_path / "r.html")]) == 2
    assert "there is nothing to show" in capsys.readouterr().err and not (tmp_path / "r.html").exists()
