"""What a command says of its lanes while it runs: by the names that their processes give."""

from inference.cli.progress import Bar, StatusLine
from inference.progress import Progress


def test_lanes_are_called_what_their_processes_say_they_are(capsys, monkeypatch):
    names = {"auto:nf4": "auto:nf4", "cpu:fp32": "cpu:fp32"}
    line = StatusLine(lambda: names)
    line.show("auto:nf4", Progress(0.0, "loading"))
    names["auto:nf4"] = "cpu:nf4"
    line.show("cpu:fp32", Progress(0.0, "decode"))
    assert capsys.readouterr().err.splitlines() == ["auto:nf4 loading", "cpu:nf4 loading | cpu:fp32 decode"]
    bar = Bar(2, lambda: names)
    bar.live = True
    bar.lane("auto:nf4", Progress(0.0, "decode", n=3))
    assert "cpu:nf4 decode 3" in capsys.readouterr().err
