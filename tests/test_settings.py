"""Settings come from the environment once, are checked, and the table in docs/settings.md tells the same."""

import os
import re
from dataclasses import fields
from pathlib import Path

import pytest

from inference import settings as settings_module
from inference.errors import InferenceError, WrongArguments
from inference.lanes import LANES
from inference.settings import VARIABLES, Settings, from_env, parse_lanes
from inference.sources import hub_cache

SWITCHES = [field.name for field in fields(Settings) if isinstance(field.default, bool) and field.name in VARIABLES]
TABLE = (Path(__file__).parent.parent / "docs" / "settings.md").read_text("utf-8").split("<!-- settings -->")[1]


def test_defaults_need_no_environment():
    settings = from_env({})
    assert settings == Settings() and settings.lanes == ("auto:nf4", "cpu:fp32")


def test_settings_survive_the_trip_to_a_child_process():
    settings = Settings(
        "a/b",
        "c/d",
        ("cpu:nf4",),
        "/x",
        9,
        3,
        True,
        "u:p",
        "0.0.0.0",
        7000,
        models=("a/b", "./c"),
        limits="on",
        limit_rows=3,
        trusted_proxies=("::1", "10.0.0.0/8"),
    )
    assert from_env(settings.to_env()) == settings


@pytest.mark.parametrize(
    "environ",
    [
        {"LANES": "tpu:int8"},
        {"LANES": "cpu:nf4,cpu:nf4"},
        {"AUTH": "nobody"},
        {"GRADIO_SERVER_PORT": "many"},
        {"GRADIO_SERVER_PORT": "70000"},
        {"CPU_THREADS": "-1"},
        {"CACHE_LIMIT": "-1"},
        {"CACHE_LIMIT": "20 GiB"},
        {"CPU_ISA": "avx9"},
        {"LIMITS": "yes"},
        {"LIMIT_ROWS": "-1"},
        {"LIMIT_A_MINUTE": "few"},
        {"TRUSTED_PROXIES": "10.0.0.1,*"},
        {"HF_HUB_ETAG_TIMEOUT": "10.5"},
        {"HF_HUB_DOWNLOAD_TIMEOUT": ""},
        {"TRUSTED_PROXIES": "10.0.0.1/8"},
        *({VARIABLES[name]: text} for name in SWITCHES for text in ("y", "enabled", "onn", "2")),
    ],
)
def test_a_setting_that_can_not_be_read_is_refused_by_name(environ):
    (variable, text), *_ = environ.items()
    with pytest.raises(WrongArguments, match={"LANES": "lane", "GRADIO_SERVER_PORT": "(?i)port"}.get(variable, variable)):
        from_env(environ)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_on_or_off_in_any_of_the_usual_words(name):
    for value, words in ((True, ("1", "true", "Yes", "ON")), (False, ("0", "False", "no", "off"))):
        assert [getattr(from_env({VARIABLES[name]: word}), name) for word in words] == [value] * 4


def test_quotes_around_a_whole_value_are_taken_off_as_no_file_of_variables_does():
    """AUTH="user:password" let nobody in; MODEL_ID="owner/name" was no name."""
    found = from_env({"MODEL_ID": '"owner/name"\r', "LANES": "'cpu:fp32,cpu:nf4'", "SHARE": '"on"', "AUTH": '"u:it\'s"', "GRADIO_SERVER_PORT": '"7000"'})
    assert (found.model_id, found.lanes, found.share, found.auth, found.port) == ("owner/name", ("cpu:fp32", "cpu:nf4"), True, "u:it's", 7000)
    assert [from_env({"CACHE_DIR": text}).cache_dir for text in ('"', '"a', "a'", '""', "'a\"", '"a" b')] == ['"', '"a', "a'", "", "'a\"", '"a" b']


def test_an_address_of_ipv6_may_stand_in_brackets():
    assert from_env({"GRADIO_SERVER_NAME": "[::1]"}).host == from_env({"GRADIO_SERVER_NAME": "::1"}).host == "::1"


def test_gradio_s_own_word_for_a_share_link_is_heard():
    """It opened the page to strangers as to friends."""
    assert from_env({"GRADIO_SHARE": "True"}).share and not from_env({"GRADIO_SHARE": "True", "SHARE": "off"}).share


def test_secrets_are_not_printed():
    assert "hunter2" not in str(Settings(auth="me:hunter2")) and "hunter2" not in repr(Settings(auth="me:hunter2"))


def test_the_merged_copy_is_for_the_full_precision_cpu_lane_only():
    settings = Settings(model_id="a", cpu_model_id="b")
    assert [settings.model_for(lane) for lane in ("cuda:nf4", "cpu:nf4", "cpu:fp32")] == ["a", "a", "b"]


def test_an_unwritable_cache_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InferenceError, match="CACHE_DIR"):
        Settings(cache_dir=str(tmp_path / "file" / "below")).cache_path()


@pytest.fixture
def fallback(monkeypatch, tmp_path):
    """Where the cache is kept if no home can be written; here a folder of the test's."""
    folder = tmp_path / "fallback"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(settings_module, "_fallback", lambda: folder)
    return folder


def test_without_a_home_the_cache_is_a_folder_that_only_its_user_can_write(fallback):
    assert Settings().cache_path() == fallback and fallback.stat().st_mode & 0o777 == 0o700
    assert Settings().cache_path() == fallback, "again"


def test_a_user_whom_the_system_does_not_know_has_no_home_and_a_cache(fallback, monkeypatch):
    """A container begun with a number for its user, and without HOME."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    for name in ("HOME", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}["nobody of that number"])
    assert Settings().cache_path() == fallback
    assert hub_cache.on_disk("nobody/none") is None


@pytest.mark.parametrize("planted", ["writable", "link", "another's"])
def test_a_cache_that_others_can_write_is_not_used(fallback, planted, tmp_path, monkeypatch):
    """Its name can be known before, and libraries in it are loaded."""
    if planted == "link":
        (tmp_path / "elsewhere").mkdir(0o700)
        fallback.symlink_to(tmp_path / "elsewhere")
    else:
        fallback.mkdir()
        fallback.chmod(0o777 if planted == "writable" else 0o700)
    if planted == "another's":
        monkeypatch.setattr(os, "getuid", lambda: fallback.stat().st_uid + 1)
    with pytest.raises(WrongArguments, match="No writable cache folder.*CACHE_DIR"):
        Settings().cache_path()


def test_the_home_of_nobody_is_no_cache_folder():
    with pytest.raises(InferenceError, match="No writable cache folder.*CACHE_DIR"):
        Settings(cache_dir="~nobody-of-that-name/cache").cache_path()


def test_the_home_in_a_cache_folder_s_path_is_meant(tmp_path, monkeypatch):
    """A shell leaves ~ alone in quotes and in an env file: a folder called ~ was made where the page was started."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings(cache_dir="~/a cache").cache_path() == tmp_path / "a cache"


def test_the_models_to_choose_from_are_named_once_each():
    assert from_env({"MODELS": " you/a , ./b,,you/a"}).models == ("you/a", "./b")


def test_lanes_are_split_at_commas():
    assert parse_lanes(" cpu:nf4 , cpu:fp32") == ("cpu:nf4", "cpu:fp32")


def test_the_table_lists_every_variable_and_no_other():
    assert set(re.findall(r"`([A-Z_]+)`", TABLE)) == set(VARIABLES.values())


def test_the_table_lists_every_flag_and_no_other():
    from app import FLAGS

    assert {flag: variable for variable, flag in re.findall(r"^\| `([A-Z_]+)` \| `(--[a-z]+)`", TABLE, re.M)} == {
        flag: VARIABLES[name] for flag, (name, _) in FLAGS.items()
    }


def test_the_table_tells_each_default_and_every_lane():
    lines = [line.strip("| ").split("|") for line in TABLE.splitlines() if "`" in line]
    rows = {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in lines}
    for name, variable in VARIABLES.items():
        value, told = getattr(Settings(), name), rows[variable][1]
        if isinstance(value, bool):
            assert told == ("on" if value else "off"), variable
        elif isinstance(value, tuple) and value:
            assert told in (",".join(value), "all"), variable
        elif value and isinstance(value, str):
            assert told in (value, value.split("/")[-1]), variable
        else:
            assert told not in ("", "on", "off"), variable
    assert all(str(lane) in rows["LANES"][2] for lane in LANES)


def test_auto_is_not_named_beside_what_it_becomes():
    with pytest.raises(InferenceError, match="Name either it or those"):
        parse_lanes("auto:nf4,cpu:nf4,cpu:fp32")
