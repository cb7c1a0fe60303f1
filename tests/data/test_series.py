"""Series from files: every format, what is missing, unequal or wrong in them; splits, scales and batches."""

import gzip
import json
import re

import numpy as np
import pytest

from lion.data.findings import BadData
from lion.data.labelled_series import Scale, SeriesExamples, in_order, labelled_series, split_series
from lion.data.series import Columns, read_series
from tests import SEED

NAN = float("nan")
TS = """# a comment
%another
@problemName Motions
@timeStamps false
@univariate false
@dimensions 2
@equalLength false
@classLabel true walk run

@data
1,2,3:4,5,6:walk
1.5,?:7,8:run
"""
LONG = """case,time,x,y,label
b,2,3,30,run
a,1,1,10,walk
b,10,4,40,run
a,0,0,0,walk
b,1,2,,run
"""


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def same(found, expected):
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, np.array(want, float))


# Formats.


@pytest.mark.parametrize("name", ["x.ts", "x.ts.gz"])
def test_ts(tmp_path, name):
    path = written(tmp_path, name, gzip.compress(TS.encode()) if name.endswith("gz") else TS)
    found = read_series(path)
    same(found.values, [[[1, 4], [2, 5], [3, 6]], [[1.5, 7], [NAN, 8]]])
    assert (found.labels, found.rows, found.numbers) == (["walk", "run"], [11, 12], False)


def test_ts_with_numbers_to_predict(tmp_path):
    path = written(tmp_path, "x.ts", "@problemName a\n@targetlabel true\n@data\n1,2:3\n2,3:4\n")
    assert read_series(path).numbers is True
    found = labelled_series(path)
    assert (found.classes, found.labels.tolist()) == (None, [3, 4])
    assert labelled_series(path, numbers=False).classes == ["3", "4"]


def test_ts_without_labels_is_for_prediction(tmp_path):
    path = written(tmp_path, "x.ts", "@classLabel false\n@data\n1,2,?:4,5,6\n")
    same(read_series(path, labelled=False).values, [[[1, 4], [2, 5], [NAN, 6]]])
    with pytest.raises(ValueError, match="no labels; expected '@classLabel true' or '@targetlabel true'"):
        read_series(path)


def test_tsv_of_the_archive(tmp_path):
    path = written(tmp_path, "x.tsv", "1\t0.5\t1.5\t2\n-1\t3\tNaN\tNaN\n")
    found = read_series(path)
    same(found.values, [[[0.5], [1.5], [2]], [[3]]])
    assert (found.labels, found.columns.label) == (["1", "-1"], "first")
    assert labelled_series(path).classes == ["-1", "1"]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("label,a,b,c\nup,1,,3\ndown,4,5,\n", Columns()),
        ("a,b,c,Class\n1,?,3,up\n4,5,nan,down\n", Columns()),
        ("a,kind,b,c\n1,up,NA,3\n4,down,5,null\n", Columns("kind")),
        ("label,0,1,2\nup,1,,3\ndown,4,5,\n", Columns()),  # as pandas numbers columns
        ("kind,1,2,3\nup,1,,3\ndown,4,5,\n", Columns("kind")),
        ("id,a,b,c,label\nx,1,,3,up\ny,4,5,,down\n", Columns()),  # ids of rows, not of steps
        ("up,1,,3\ndown,4,5,\n", Columns()),
        ("1,,3,up\n4,5,,down\n", Columns()),
        ("1,?,3,up\n4,5,down\n", Columns("last")),
        ('a,b,c,label\n"1","",3,up\n4,5,"",down\n', Columns()),
    ],
)
def test_wide_tables(tmp_path, content, columns):
    found = read_series(written(tmp_path, "x.csv", content), columns)
    same(found.values, [[[1], [NAN], [3]], [[4], [5]]])
    assert found.labels == ["up", "down"]


def test_whole_numbers_at_one_end_are_the_labels(tmp_path):
    for content, end in (("2,0.5,1.5\n1,2.5,3.5\n", "first"), ("0.5,1.5,2\n2.5,3.5,1\n", "last")):
        found = read_series(written(tmp_path, "x.csv", content))
        same(found.values, [[[0.5], [1.5]], [[2.5], [3.5]]])
        assert (found.labels, found.columns.label) == (["2", "1"], end)
    for content in ("0.5,1,2.5\n", "1,0.5,2\n"):
        with pytest.raises(ValueError, match=r"may be in the first column or in the last; say .* --label_column first"):
            read_series(written(tmp_path, "x.csv", content))
    assert read_series(tmp_path / "x.csv", Columns("last")).labels == ["2"]


def test_long_tables(tmp_path):
    found = read_series(written(tmp_path, "x.csv", LONG))
    same(found.values, [[[2, NAN], [3, 30], [4, 40]], [[0, 0], [1, 10]]])
    assert found.labels == ["run", "walk"]
    assert (found.channels, found.ids, found.rows) == (("x", "y"), ["b", "a"], [2, 3])
    assert found.columns == Columns("label", "case", "time")
    other = LONG.replace("case,time", "who,when").replace("label", "kind")
    found = read_series(written(tmp_path, "x.csv", other), Columns("kind", "who", "when"))
    assert found.values[1][:, 1].tolist() == [0, 10]
    rows = ["id,v,label", "a,5,1", "b,7,2", "a,3,1"]  # without a time: in the order of the file
    same(read_series(written(tmp_path, "x.csv", "\n".join(rows))).values, [[[5], [3]], [[7]]])


def test_times_may_be_dates(tmp_path):
    rows = ["id,timestamp,v,label", "a,2024-02-01 10:00,2,1", "a,2024-01-31,1,1", "b,2024-02-01T10:00:00Z,3,2"]
    same(read_series(written(tmp_path, "x.csv", "\n".join(rows))).values, [[[1], [2]], [[3]]])


def test_json_lines(tmp_path):
    rows = [{"series": name, "v": value, "label": name} for name, value in (("a", 1), ("b", None), ("a", 2), ("b", 3))]
    path = written(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)))
    same(read_series(path).values, [[[1], [2]], [[NAN], [3]]])
    path.write_text(path.read_text() + '\n{"series": "a", "w": 3, "label": "a"}\n')
    with pytest.raises(ValueError, match="line 5 has 'w'; expected the fields of the first"):
        read_series(path)


def test_npz(tmp_path):
    path, x = tmp_path / "x.npz", np.arange(24.0).reshape(2, 4, 3)
    x[1, 2:] = np.nan
    np.savez(path, X=x, y=np.array(["up", "down"]))
    found = read_series(path)
    same(found.values, [x[0], x[1, :2]])
    assert found.labels == ["up", "down"]
    np.savez(path, X=x[..., 0].astype(np.float32), y=[[0], [1]], X_test=x[:1, :, 0], y_test=[1])
    found = labelled_series(path)
    assert (found.held, found.labels.tolist(), found.values[0].shape) == (1, [0, 1, 1], (4, 1))
    train, test = split_series(found)
    assert (len(train.values), len(test.values), test.labels.tolist()) == (2, 1, [1])
    np.savez(path, X=x)
    assert read_series(path, labelled=False).labels == []


# Series to predict: without labels, or with some that nobody looks at.


def test_series_without_labels(tmp_path):
    def values(content, columns, length=0, name="x.csv"):
        found = read_series(written(tmp_path, name, content), columns, labelled=False, length=length)
        return [x.tolist() for x in found.values]

    long = Columns("label", "case", "time")
    for content in ("time,x\n2,5\n1,4\n", "case,time,x\na,2,5\na,1,4\n", "case,time,x,label\na,2,5,\na,1,4,\n"):
        assert values(content, long) == [[[4], [5]]]
    assert values("case,time,x\na,1,4\n", long) == [[[4]]]
    for content in ("a,b\n4,5\n", "a,kind,b\n4,?,5\n"):
        assert values(content, Columns("kind")) == [[[4], [5]]]
    assert values("4,5\n", Columns("first"), length=2) == [[[4], [5]]]
    assert values("1,4,5\n", Columns("first"), length=2) == [[[4], [5]]]
    assert values("4\t5\t1\n", Columns("last"), name="x.tsv") == [[[4], [5]]]


# What is refused.


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "label,a,b\n1,2,3\n2,4,five\n", r"x.csv, line 3 has 'five' in 'b'; expected a number"),
        ("x.csv", "label,a,b\n1,2,inf\n", r"line 2 has inf in 'b'; expected finite numbers"),
        ("x.csv", "label,a,b\n1,,1e300\n", r"line 2 has 1e\+300 in 'b'; expected finite numbers"),
        ("x.csv", "label,a,b\n1,2,3\n,4,5\n", r"line 3 has no label in 'label'; expected one for every series"),
        ("x.csv", "label,a,b\n1,2,3\n2,4\n", "line 3 has 2 fields; expected 3"),
        ("x.csv", "label,a,a\n1,2,3\n", "line 1 has two columns 'a'"),
        ("x.csv", "label,a,b\n1,2,3\n2,,\n", "line 3 has a series without a value; expected some"),
        ("x.csv", "label,a,b\n", "has no series; expected some"),
        ("x.csv", "", "has no series; expected some"),
        (
            "x.csv",
            "kind,a,b\nup,1,2\n",
            "no column with a usual name for its labels .* 'kind', 'a', 'b'.* --label_column",
        ),
        ("x.csv", "label,id\nup,1\n", "has the columns 'label', 'id'; expected some with the values"),
        ("x.csv", "time,a,label\n1,2,up\n2,2,up\n", "has a column 'time', but none .* say which: --id_column NAME"),
        ("x.csv", "id,time,a,label\n1,1,2,up\n2,2,2,up\n", "has a column 'time', but none in which the rows"),
        ("x.csv", "id,t,a,label\n1,1,2,up\n1,noon,2,up\n", "line 3 has 'noon' in 't'; expected a number or a date"),
        ("x.csv", "id,t,a,label\n1,1,2,up\n1,,2,up\n", "line 3 has '' in 't'; expected a number or a date"),
        ("x.csv", "id,a,label\n1,2,up\n1,2,down\n", "line 3 has the label 'down', and line 2 of the same 'id', 1, has"),
        ("x.csv", "id,a,label\n1,2,up\n,2,up\n", "line 3 has nothing in 'id'; expected the series of each row"),
        ("x.csv", "id,a,b,label\n1,2,3,up\n1,2,x,up\n", "line 3 has 'x' in 'b'; expected a number"),
        ("x.csv", "up,1,2\ndown,3,four\n", "line 2 has 'four' in column 3; expected a number"),
        ("x.csv", "1,2,up\n3,4,\n", "line 2 has no label in its last column"),
        ("x.tsv", "1\t0.5\n?\t2\n", "line 2 has no label in its first column"),
        ("x.tsv", "1\t0.5\n2\n", "line 2 has no label in its first column"),
        (
            "x.ts",
            "@classLabel true a\n@data\n1,2:3,4:a\n1,b:3,4:a\n",
            "line 4 has 'b' in channel 1, step 2; expected a",
        ),
        ("x.ts", "@classLabel true a\n@data\n1,2:3,4:a\n1,2:a\n", "line 4 has 1 channels; expected 2, as the first"),
        ("x.ts", "@classLabel true a\n@data\n1,2:3:a\n", "line 3 has channels of 2, 1 steps; expected as many in each"),
        ("x.ts", "@classLabel true a\n@data\n1,2\n", "line 3 has no label in its last part, after a colon"),
        ("x.ts", "@classLabel true a\n@data\n1,2:?\n", "line 3 has no label"),
        ("x.ts", "@classLabel true a\n@data\n(0,1),(1,2):a\n", "line 3 has time stamps"),
        ("x.ts", "@timeStamps true\n@classLabel true a\n@data\n1,2:a\n", "line 4 has time stamps"),
        ("x.ts", "1,2:a\n", "line 1 is '1,2:a'; expected @data before the first series"),
        ("x.ts", "@classLabel true a\n@data\n", "has no series; expected some"),
        ("x.npz", "nothing", r"x.npz cannot be read .* expected arrays X of shape \[N, T\]"),
        ("x.wav", "", "ends in '.wav'; expected one of .ts, .npz, .csv"),
    ],
)
def test_what_is_refused(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_series(written(tmp_path, name, content))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": [1.0, 2.0], "y": [1, 2]}, r"X of shape \(2,\) and type float64; expected X of shape \[N, T\]"),
        ({"X": [["a"]], "y": [1]}, r"X of shape \(1, 1\) and type <U1; expected"),
        ({"z": [[1.0]]}, "has the arrays 'z'; expected X"),
        ({"X": [[1.0], [2.0]]}, r"has 2 series in X, and none; expected y of shape \(2,\)"),
        ({"X": [[1.0], [2.0]], "y": [1]}, r"has 2 series in X, and y of shape \(1,\); expected"),
        ({"X": [[1.0, np.inf]], "y": [1]}, r"has inf in X\[0, 1\]; expected finite numbers"),
        ({"X": [[1.0], [2.0]], "y": [1, np.nan]}, "row 2 has no label in y"),
        ({"X": [[1.0]], "y": [1], "X_test": [[[1.0, 2.0]]], "y_test": [1]}, "row 2 has 2 channels; expected 1"),
        ({"X": np.array([None, [1.0]], object), "y": [1, 2]}, "x.npz cannot be read"),
    ],
)
def test_arrays_that_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_series(tmp_path / "x.npz")


def test_columns_and_files_that_are_not_there(tmp_path):
    path = written(tmp_path, "x.csv", "label,a\nup,1\n")
    with pytest.raises(ValueError, match=r"label_column for .* is 'kind'; expected one of"):
        read_series(path, Columns("kind"))
    with pytest.raises(ValueError, match=r"id_column for .* is 'who'"):
        read_series(path, Columns(id="who"))
    path.write_text("up,1.5\ndown,2\n")
    with pytest.raises(ValueError, match="which has no header, is 'a'; expected one of 'first', 'last'"):
        read_series(path, Columns("a"))
    with pytest.raises(FileNotFoundError, match="not there; expected a file of series"):
        read_series(tmp_path / "none.ts")


def test_one_class_is_refused(tmp_path):
    path = written(tmp_path, "x.csv", "label,a,b\nup,1,2\nup,3,4\n")
    with pytest.raises(ValueError, match="'up' in every row of 'label'; expected two classes"):
        labelled_series(path)
    path.write_text("label,a,b\nup,1,2\ndown,3,4\n")
    with pytest.raises(ValueError, match="there are 2 series, too few to hold any out"):
        split_series(labelled_series(path))
    with pytest.raises(ValueError, match="line 3 has 'down' in 'label'; expected one of 'up', 'left'"):
        labelled_series(path, classes=("up", "left"))


# Bad rows: listed all at once, or skipped.

BAD = {  # name: (content, the bad lines, kinds, the first values of the others)
    "x.ts": (
        "@classLabel true a b\n@data\n1,2:3,4:a\n1,x:3,4:a\n5,6:7,8:b\n1,2:3:a\n1,2\n1,2:1,2:?\n1,2:a\n?,?:?,?:a\n",
        [4, 6, 7, 8, 9, 10],
        ["1 with a value that is no number", "1 with channels of unequal lengths", "2 without a label"],
        [1, 5],
    ),
    "x.csv": (
        'label,s,u\na,1,2\na,1,2,3\nb,5,6\n"a" b,1,2\n,1,2\nb,inf,2\nb,one,2\nb,,\n',
        [3, 5, 6, 7, 8, 9],
        ["1 with too many or too few fields", "1 with wrong quotes", "1 with a value that is not finite"],
        [1, 5],
    ),
    "without.csv": ("a,1,2\na,1,two\nb,5,6,7\n,5,6\na\n", [2, 4, 5], ["2 without a label"], [1, 5]),
    "whole.csv": ("1,1.5,2.5\n1,1,two\n2,5.5,6.5\nx,1,2\n?,1,2\n", [2, 5], ["1 without a label"], [1.5, 5.5, 1]),
    "x.jsonl": (
        '{"label": 1, "s": 1}\n{"label": 1, "v": 2}\n5\n{"label": 2, "s": 5}\n{"label": null, "s": 1}\n{"label": 2\n',
        [2, 3, 5, 6],
        ["1 with other fields", "1 that are no objects", "1 without a label", "1 that are no JSON"],
        [1, 5],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_all_bad_rows_at_once(tmp_path, name):
    content, bad, kinds, first = BAD[name]
    path = written(tmp_path, name, content)
    with pytest.raises(BadData) as caught:
        labelled_series(path)
    head, *lines = str(caught.value).splitlines()
    assert head.startswith(f"{path} has {len(bad)} bad rows (")
    assert [int(re.match(r"  - line (\d+) ", line)[1]) for line in lines] == bad
    assert all(kind in head for kind in kinds)
    found = labelled_series(path, skip_bad=True)
    assert [x[0, 0] for x in found.values] == first
    assert found.notes["skipped"].startswith(f"{len(bad)} rows: ")
    with pytest.raises(BadData, match=rf"line {bad[0]} "):  # as predictions read it
        read_series(path)


def test_a_bad_step_loses_its_series(tmp_path):
    rows = ["id,t,v,label", "a,1,1,x", "b,1,2,y", "b,2,two,y", "c,1,3,x", "c,noon,3,x", "d,1,4,x", "d,2,4,y", "e,1,5,y"]
    path = written(tmp_path, "x.csv", "\n".join([*rows, "b,3,2,y", "a,2,6,x", ",3,6,x", "a,3,6"]))
    with pytest.raises(BadData) as caught:
        labelled_series(path)
    lines = str(caught.value).splitlines()[1:]
    assert [line[4:].split()[1] for line in lines] == ["4", "6", "8", "12", "13"]
    found = labelled_series(path, skip_bad=True)
    same(found.values, [[[1], [6]], [[5]]])
    assert [found.classes[x] for x in found.labels] == ["x", "y"]
    assert found.notes["skipped"].endswith("; 3 series: 3 with a bad row")
    assert found.notes["skipped"].startswith("5 rows: ")
    assert found.notes["columns"] == "labels from 'label', series by 'id', sorted by 't'"
    assert found.notes["format"] == "commas between fields, a header"
    # It stays a long table if the rows that show it are bad.
    path.write_text("id,t,v,label\na,1,1,x\nb,1,2,y\na,2,one,x\nc,1,3,x\n")
    same(labelled_series(path, skip_bad=True).values, [[[2]], [[3]]])


def test_bad_arrays(tmp_path):
    x, y = np.arange(1.0, 13).reshape(6, 2), np.array([0, 1, np.nan, 1, 0, 1])
    x[1, 0], x[5, 1], x[3] = np.inf, 1e300, np.nan
    np.savez(tmp_path / "x.npz", X=x[:4], y=y[:4], X_test=x[4:], y_test=y[4:])
    with pytest.raises(BadData, match=r"has 4 bad rows \(2 with a value that is not finite"):
        labelled_series(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", X=x[[0, 1, 2, 2]], y=[0, 1, 1, 0], X_test=x[4:], y_test=y[4:])
    found = labelled_series(tmp_path / "x.npz", skip_bad=True)
    assert [x[0, 0] for x in found.values] == [1, 5, 5, 9]
    assert (found.labels.tolist(), found.held) == ([0, 1, 0, 0], 1)
    assert found.notes["skipped"] == "2 rows: 2 with a value that is not finite"


def test_channels_as_most_series_have_them(tmp_path):
    path = written(tmp_path, "x.ts", "@classLabel true a b\n@data\n1,2:a\n1,2:3,4:a\n5,6:7,8:b\n1:2:3:a\n")
    with pytest.raises(BadData, match="line 3 has 1 channels; expected 2, as most series have"):
        labelled_series(path)
    assert [x.shape[1] for x in labelled_series(path, skip_bad=True).values] == [2, 2]


def test_nothing_but_bad_rows(tmp_path):
    path = written(tmp_path, "x.csv", "label,a,b\nup,x,1\ndown,y,1\n")
    with pytest.raises(BadData, match="has 2 bad rows"):
        labelled_series(path)
    with pytest.raises(ValueError, match=r"has no rows that can be used \(2 with a value that is no number\)"):
        labelled_series(path, skip_bad=True)
    path.write_text("label,a,b\nup,1,1\ndown,2,1\n")
    with pytest.raises(ValueError, match=r"has no rows that can be used \(2 with another class\); expected some with"):
        labelled_series(path, classes=("left", "right"), skip_bad=True)


# Splits, scales, batches.


def test_copies_are_in_the_same_part(tmp_path):
    rows = [f"{'ab'[n % 2]},{n // 2},{n // 4}" for n in range(80)] * 2
    train, test = split_series(labelled_series(written(tmp_path, "x.csv", "\n".join(["label,s,u", *rows]))))
    assert len(train.values) + len(test.values) == 160
    assert not {x.tobytes() for x in train.values} & {x.tobytes() for x in test.values}
    assert np.bincount(test.labels).min() >= 8


def test_scale():
    values = [np.array([[1.0, 5], [3, 5]]), np.array([[5.0, 5]])]
    scale = Scale.of(values)
    assert (scale.mean.tolist(), scale.std[1], scale.missing, scale.channels) == ([3, 5], 1, False, 2)
    every = np.concatenate([scale.apply(x) for x in values])
    assert every.dtype == np.float32
    np.testing.assert_allclose(every.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(every[:, 0].std(), 1, atol=1e-6)
    # A missing value at evaluation is 0, the mean; where the training set has some, the model is told.
    gap = np.array([[NAN, 6.0]])
    assert scale.apply(gap).tolist() == [[0, 1]]
    told = Scale.of([*values, gap])
    assert (told.missing, told.channels, told.mean[0]) == (True, 4, 3)
    assert told.apply(gap)[0, [0, 2, 3]].tolist() == [0, 1, 0]
    never = Scale.of([np.array([[NAN, 1.0]])])
    assert never.apply(np.array([[2.0, 1.0]])).tolist() == [[2, 0, 0, 0]]


def test_small_differences_of_large_numbers_stay():
    values = 1.6e9 + np.arange(8.0)[:, None]  # seconds, which float32 would round to 128
    assert np.diff(Scale.of([values]).apply(values)[:, 0]).min() > 0.3


def test_batches():
    generator = np.random.default_rng(SEED)
    values = [generator.normal(size=(length, 2)) for length in (3, 9, 1, 20)]
    scale = Scale.of(values)
    examples = SeriesExamples(values, np.array([0, 1, 0, 1]), scale)
    batch = examples.__getitems__([(0, 1), (0, 0), (0, 2)])
    assert batch["values"].shape == (3, 16, 2)
    assert batch["mask"].sum(1).tolist() == [9, 3, 1]
    assert batch["label"].tolist() == [1, 0, 0]
    for row, mask, index in zip(batch["values"], batch["mask"], (1, 0, 2), strict=True):
        np.testing.assert_array_equal(row[mask].numpy(), scale.apply(values[index]))
        assert not row[~mask].any()
    assert examples.__getitems__([(0, 3)])["values"].shape == (1, 20, 2)  # no wider than the longest
    cut = SeriesExamples(values, np.array([0.5, 1, 0, 1]), scale, max_length=5)
    batch = cut.__getitems__([(0, i) for i in range(4)])
    assert batch["mask"].sum(1).tolist() == [3, 5, 1, 5]
    assert batch["label"].tolist() == [0.5, 1, 0, 1]
    assert examples.digest() != cut.digest()
    with pytest.raises(ValueError, match="there are 4 series and 1 labels"):
        SeriesExamples(values, np.array([1]), scale)


def test_channels_by_their_names(tmp_path):
    found = read_series(written(tmp_path, "x.csv", LONG))
    assert in_order(found, ("y", "x"), 2, "x.csv")[1].tolist() == [[0, 0], [10, 1]]
    assert in_order(found, (), 2, "x.csv") is found.values
    with pytest.raises(ValueError, match=r"x.csv has 2 channels; expected 3"):
        in_order(found, ("x", "y", "z"), 3, "x.csv")
    with pytest.raises(ValueError, match="has the channels 'x', 'y'; expected 'x', 'z', as the training data"):
        in_order(found, ("x", "z"), 2, "x.csv")


def test_the_delimiter_is_found_out(tmp_path):
    (tmp_path / "x.csv").write_text("a;b;label\n1;2.5;x\n3;4.5;y\n")
    found = read_series(tmp_path / "x.csv")
    assert [x[:, 0].tolist() for x in found.values] == [[1, 2.5], [3, 4.5]]
    assert found.labels == ["x", "y"]


def test_a_long_table_that_is_read_as_a_wide_one_tells_the_option(tmp_path):
    rows = [f"{who},{step},{who * step}.5,{'ab'[who % 2]}" for who in range(5) for step in range(6)]
    path = written(tmp_path, "x.csv", "\n".join(["subject,x,y,label", *rows]))
    found = labelled_series(path)
    assert len(found.values) == 30
    assert "--id_column subject" in found.notes["columns"]
    found = labelled_series(path, ("subject", ""))
    assert [x.shape for x in found.values] == [(6, 2)] * 5
    assert "--id_column" not in found.notes["columns"]
    rows = [f"{x},{x % 3},{x * x % 7},{'ab'[x % 2]}" for x in range(30)]  # a wide one
    path = written(tmp_path, "y.csv", "\n".join(["s1,s2,s3,label", *rows]))
    assert "--id_column" not in labelled_series(path).notes["columns"]


def test_a_column_of_text_has_no_values(tmp_path):
    path = written(tmp_path, "x.csv", "who,x,y,label\nann,1,2,a\nann,3,4,a\nbob,5,6,b\n")
    with pytest.raises(ValueError, match=r"'ann' in the column 'who', and no number; .*--id_column who"):
        labelled_series(path)
    assert len(labelled_series(path, ("who", "")).values) == 2


def test_decimal_commas_between_semicolons(tmp_path):
    path = written(tmp_path, "x.csv", "label;s1;s2\na;1,5;-2,25e1\nb;3;,\n")
    with pytest.raises(BadData, match="',' in 's2'; expected a number"):
        labelled_series(path)
    path = written(tmp_path, "x.csv", "label;s1;s2\n0,5;1,5;-2,25e1\n1,25;3; 4,0\n")
    found = labelled_series(path)
    same([x[:, 0] for x in found.values], [[1.5, -22.5], [3, 4]])
    assert found.classes is None
    assert found.labels.tolist() == [0.5, 1.25]
    path = written(tmp_path, "y.csv", 'label,s1,s2\na,"1,5",2\nb,3,4\n')  # thousands, or tenths?
    with pytest.raises(BadData, match="'1,5' in 's1'; expected a number"):
        labelled_series(path)
