"""The configuration file: what it says, and what is wrong with it."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratch import ScratchError, ScratchStore, should_spill
from scratch.config import (
    MIN_TOKENS,
    ArtifactsConfig,
    Config,
    ConfigError,
    LlmConfig,
    ScratchConfig,
    ScratchpadConfig,
    SweeperConfig,
)
from scratch.sweeper.schedule import DEFAULT_INTERVAL
from scratch.toml import key_lines
from tests.support import query

FILE = Path(__file__).parent / "data" / "scratch.toml"
EXAMPLE = FILE.read_text(encoding="utf-8")
NEEDED = 'memory_dir = "m"\nagent.llm.context_window = 1000\n'


def faults(text: str) -> list[dict[str, Any]]:
    """What is wrong with a text."""
    with pytest.raises(ConfigError) as caught:
        Config.parse(text)
    found: Any = caught.value.data["faults"]
    return list(found)


def fault(text: str) -> dict[str, Any]:
    """The one thing that is wrong with a text."""
    [found] = faults(text)
    return found


# --- what it says


def test_the_example_says_what_its_comments_say() -> None:
    config = Config.load(FILE)
    agent = ScratchpadConfig(True, 0.20, 10_000, 6)
    assert config == Config(
        store_path=FILE.parent / "memory" / "scratch.db",
        llm=LlmConfig("openai", "gpt-4o", 128_000),
        scratchpad=agent,
        workers={"researcher": ScratchpadConfig(True, 0.20, 4_000, 6)},
        thresholds={"warehouse": {"*": 5_120, "run_quer?": 1_000}},
    )


def test_what_the_example_gives_as_a_default_is_one() -> None:
    config = Config.load(FILE)
    assert config.artifacts == ArtifactsConfig(4_000, 2_000, 500, 5.0) == Config().artifacts
    assert config.scratch == ScratchConfig(8_192, 3_600.0, 64 * 1024 * 1024, 1024**3) == Config().scratch
    assert config.sweeper == SweeperConfig(DEFAULT_INTERVAL, 50) == Config().sweeper
    assert ScratchpadConfig(enabled=True) == config.scratchpad


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "[agent]\n[mcp.servers.s]\n[orchestration.worker.w]\n"])
def test_a_file_that_sets_nothing_is_all_defaults(text: str) -> None:
    config = Config.parse(text)
    assert config == Config()
    assert config.scratchpad == ScratchpadConfig(False, 0.20, 10_000, 6)
    assert config.store_path is None
    assert config.tool_thresholds() == {}


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Config.parse("").scratchpad.enabled = True  # type: ignore[misc]


def test_a_worker_is_merged_over_the_agent_key_by_key() -> None:
    config = Config.parse(
        NEEDED
        + """
        [orchestration.worker.reader.scratchpad]      # before the agent's table: the order does not matter
        enabled = true
        context_safety_margin = 0
        [agent.scratchpad]
        max_extraction_tokens = 7
        turn_depth_bonus = 0
        [orchestration.worker."odd name".scratchpad]
        max_extraction_tokens = 8
        """
    )
    assert config.scratchpad == ScratchpadConfig(False, 0.20, 7, 0)
    assert config.worker("reader") == ScratchpadConfig(True, 0.0, 7, 0)
    assert config.worker("odd name") == ScratchpadConfig(False, 0.20, 8, 0)
    assert config.worker("without a table") is config.scratchpad
    assert set(config.workers) == {"reader", "odd name"}


def test_a_worker_can_switch_off_what_the_agent_has() -> None:
    config = Config.parse(
        NEEDED + "[agent.scratchpad]\nenabled = true\n[orchestration.worker.w.scratchpad]\nenabled = false\n"
    )
    assert config.scratchpad.enabled
    assert not config.worker("w").enabled


def test_whole_numbers_do_where_a_fraction_is_allowed() -> None:
    config = Config.parse("scratch.ttl_seconds = 60\nsweeper.interval_seconds = 0.5\n")
    assert (config.scratch.ttl_seconds, config.sweeper.interval_seconds) == (60.0, 0.5)
    assert isinstance(config.scratch.ttl_seconds, float)


# --- where the store is


def test_a_relative_memory_dir_is_beside_the_file_wherever_the_process_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "scratch.toml").write_text('memory_dir = "../memory"')
    monkeypatch.chdir(tmp_path)
    store_path = Config.load("etc/scratch.toml").store_path
    assert store_path == tmp_path / "etc" / ".." / "memory" / "scratch.db"


@pytest.mark.parametrize(
    ("memory_dir", "store_path"),
    [("/srv/agent", "/srv/agent/scratch.db"), ("~/agent", "/home/me/agent/scratch.db"), ("~", "/home/me/scratch.db")],
)
def test_an_absolute_memory_dir_and_one_at_home_stay_where_they_are(
    memory_dir: str, store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert Config.parse(f'memory_dir = "{memory_dir}"', folder="/etc").store_path == Path(store_path)


def test_the_memory_dir_of_the_artifacts_counts_where_there_is_no_other() -> None:
    legacy = '[orchestration.artifacts]\nmemory_dir = "/old"\nresult_bytes = 1\n'
    assert Config.parse(legacy).store_path == Path("/old/scratch.db")
    assert Config.parse(legacy).artifacts.result_bytes == 1
    assert Config.parse('memory_dir = "/new"\n' + legacy).store_path == Path("/new/scratch.db")
    assert Config.parse(f"{legacy}[agent]\nllm.context_window = 9\nscratchpad.enabled = true\n").scratchpad.enabled


@pytest.mark.parametrize("memory_dir", ['""', '"  "', '"a\\u0000b"', '"~nobody-of-this-name/x"', "3", '["a"]'])
def test_a_memory_dir_that_is_no_folder_is_a_fault(memory_dir: str) -> None:
    found = fault(f"memory_dir = {memory_dir}")
    assert (found["table"], found["key"], found["line"]) == ("", "memory_dir", 1)


def test_loading_opens_no_store_and_makes_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "scratch.toml"
    file.write_text(EXAMPLE)
    Config.load(file)
    assert list(tmp_path.iterdir()) == [file]


async def test_its_values_are_what_a_store_takes(tmp_path: Path) -> None:
    file = tmp_path / "scratch.toml"
    file.write_text(EXAMPLE)
    config = Config.load(file)
    assert config.store_path is not None
    async with ScratchStore.open(
        config.store_path,
        policy=config.policy(),
        ttl=config.scratch.ttl_seconds,
        max_entry_bytes=config.scratch.max_entry_bytes,
        max_run_bytes=config.scratch.max_run_bytes,
    ) as store:
        report = await store.sweep(batch_entries=config.sweeper.batch_entries)
    assert report.entries == 0
    assert config.store_path.is_file()


# --- thresholds of tools


def test_the_longest_pattern_wins_and_on_a_tie_the_smallest_threshold() -> None:
    # C212
    config = Config.parse(
        """
        [mcp.servers.one.scratchpad]
        "*" = { min_tokens = 1 }
        "get_*" = { min_tokens = 2_000 }
        "get_row?" = { min_tokens = 9_000 }
        "get_ro*s" = { min_tokens = 3_000 }
        [mcp.servers.two.scratchpad]
        "get_logs" = {}
        """
    )
    policy = config.policy()
    tools = ["get_rows", "get_rowx", "get_users", "get_logs", "GET_rows", "other"]
    assert [policy.token_threshold(tool) for tool in tools] == [3_000, 9_000, 2_000, MIN_TOKENS, 1, 1]
    assert MIN_TOKENS == 5_120


def test_all_forms_of_a_threshold_are_read() -> None:
    config = Config.parse(
        """
        [mcp.servers.s.scratchpad]
        a = {}
        b.min_tokens = 0
        "c.d" = { min_tokens = 7 }
        [mcp.servers.s.scratchpad."e*"]
        min_tokens = 8
        [mcp.servers.s.scratchpad.f]
        """
    )
    assert config.thresholds == {"s": {"a": 5_120, "b": 0, "c.d": 7, "e*": 8, "f": 5_120}}


def test_the_smaller_threshold_counts_where_servers_have_the_same_pattern_and_that_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = "\n".join(
        f'[mcp.servers.{name}.scratchpad]\n"get_*" = {{ min_tokens = {tokens} }}\nsame = {{}}'
        for name, tokens in [("one", 500), ("two", 300), ("three", 400)]
    )
    with caplog.at_level(logging.WARNING, logger="scratch"):
        config = Config.parse(servers)
    assert config.tool_thresholds() == {"get_*": 300, "same": 5_120}
    first, second = (record.getMessage() for record in caplog.records)
    assert all(part in first for part in ("'one'", "'two'", "'get_*'", "300"))
    assert all(part in second for part in ("'two'", "'three'", "'get_*'", "300"))


def test_nothing_is_logged_where_servers_agree(caplog: pytest.LogCaptureFixture) -> None:
    Config.parse("[mcp.servers]\none.scratchpad.x = {}\ntwo.scratchpad.x = {}\nthree.scratchpad.y = {}\n")
    assert caplog.records == []


@pytest.mark.parametrize("pattern", ["get_[ab]", "get_{a,b}", "!get", "get\\\\*", "a]", "}", ""])
def test_any_other_pattern_syntax_stops_the_file_from_loading(pattern: str) -> None:
    found = fault(f'[mcp.servers.jira.scratchpad]\n"fine*" = {{}}\n"{pattern}" = {{}}\n')
    assert (found["table"], found["line"]) == ("mcp.servers.jira.scratchpad", 3)
    assert found["key"] == pattern.replace("\\\\", "\\")
    assert "* and ?" in found["message"]


def test_a_bad_pattern_with_a_bad_threshold_is_two_faults() -> None:
    found = faults('mcp.servers.s.scratchpad."a[" = { min_tokens = true }')
    assert [item["key"] for item in found] == ["a[", "min_tokens"]


def test_a_threshold_that_is_no_table_says_how_to_write_it() -> None:
    found = fault("[mcp.servers.s.scratchpad]\nget_rows = 5_000\n")
    assert "{ min_tokens = … }" in found["message"]


def test_a_tool_name_with_a_dot_and_without_quotes_is_told_apart() -> None:
    assert 'quotes: "jira.search"' in fault("[mcp.servers.s.scratchpad]\njira.search = { min_tokens = 3 }")["message"]
    assert 'quotes: "my.host"' in fault("[mcp.servers.my.host.scratchpad]")["message"]
    assert "quotes" not in fault("[agent.scratchpd]")["message"]


def test_the_policy_spills_by_the_file_and_counts_as_it_is_told() -> None:
    # C211
    config = Config.parse(
        """
        scratch.threshold_bytes = 9_000
        [mcp.servers.s.scratchpad]
        "always" = { min_tokens = 0 }
        "never*" = { min_tokens = 1_000_000_000 }
        "counted" = { min_tokens = 50 }
        """
    )
    counted: list[int] = []

    def count(text: str, stop_at: int) -> int:
        counted.append(stop_at)
        return len(text) // 100

    policy = config.policy(count)
    sizes = {"always": 3_000, "never_ever": 1_000_000, "counted": 5_000, "other": 9_001, "fits": 9_000}
    spilled = {tool: should_spill(query("x" * size, tool), policy).spill for tool, size in sizes.items()}
    assert spilled == {"always": True, "never_ever": False, "counted": True, "other": True, "fits": False}
    assert counted == [50]  # the bytes alone decide about the others
    assert not should_spill(query("x" * 4_900, "counted"), policy).spill


# --- what a scratchpad needs


def test_an_enabled_scratchpad_without_what_it_needs_is_a_fault_of_its_table() -> None:
    text = '[agent.scratchpad]\nenabled = true\n[agent.llm]\nprovider = "openai"\n'
    found = faults(text)
    assert [(item["table"], item["key"], item["line"]) for item in found] == [("agent.scratchpad", "enabled", 2)] * 2
    assert "memory_dir" in found[0]["message"]
    assert "context_window" in found[1]["message"]
    assert "context_window" in fault('memory_dir = "m"\n' + text)["message"]
    assert "memory_dir" in fault(text + "context_window = 5\n")["message"]


def test_a_worker_that_is_enabled_without_what_it_needs_is_named() -> None:
    found = fault('memory_dir = "m"\n[orchestration.worker."re viewer".scratchpad]\nenabled = true\n')
    assert found["table"] == 'orchestration.worker."re viewer".scratchpad'
    assert 'worker "re viewer"' in found["message"]
    assert "context_window" in found["message"]


def test_a_worker_that_only_inherits_the_switch_adds_no_fault_to_the_agents() -> None:
    text = 'memory_dir = "m"\n[agent.scratchpad]\nenabled = true\n[orchestration.worker.w.scratchpad]\n'
    assert fault(text + "turn_depth_bonus = 1\n")["table"] == "agent.scratchpad"


def test_a_faulty_value_is_not_reported_as_missing_too() -> None:
    found = faults('memory_dir = 3\n[agent]\nscratchpad.enabled = true\nllm.context_window = "big"\n')
    assert [(item["key"], item["line"]) for item in found] == [("memory_dir", 1), ("context_window", 4)]


def test_a_scratchpad_that_is_not_enabled_needs_nothing() -> None:
    assert not Config.parse("[agent.scratchpad]\nenabled = false\nturn_depth_bonus = 1\n").scratchpad.enabled


# --- faults


BAD: dict[str, list[str]] = {
    "memory_dir": ['""', "1", "true", "1979-05-27"],
    "provider": ['" "', "1", "[]", "{}"],
    "model": ['""', "0.5", "false"],
    "context_window": ["0", "-1", "1.0", "1e3", '"128k"', "true", "nan", "9_223_372_036_854_775_808"],
    "enabled": ["1", "0", '"true"', "[]"],
    "context_safety_margin": ["1", "1.0", "-0.1", "nan", "inf", "-inf", "true", '"0.2"', f"0x{'f' * 5_000}"],
    "max_extraction_tokens": ["0", "-1", "1.5", "true", '"1"', f"0x{'f' * 5_000}"],
    "turn_depth_bonus": ["-1", "6.0", "true", "07:32:00"],
    "result_bytes": ["-1", "1.0", "true"],
    "result_head_bytes": ["-1", '"2 kB"', "{ x = 1 }"],
    "tool_output_bytes": ["-1", "false"],
    "tool_output_seconds": ["-0.1", "nan", "inf", "true", '"5s"', "4_000_000_000"],
    "*": ["5_000", "true", "[{}]", '"5k"'],
    "threshold_bytes": ["-1", "8192.0", "true"],
    "ttl_seconds": ["0", "-1", "nan", "inf", "true", '"1h"', "4_000_000_000"],
    "max_entry_bytes": ["0", "true", "1.0"],
    "max_run_bytes": ["0", "-5", '"1GiB"'],
    "interval_seconds": ["0", "0.0", "nan", "true"],
    "batch_entries": ["0", "1.0", "true"],
}


@dataclass(frozen=True)
class Injection:
    """A line of the example that is replaced, and the fault that this makes."""

    index: int
    line: str
    table: str
    key: str


def injections() -> list[Injection]:
    """Each key of the example with each bad value, each key misspelt, and each pattern made a bad one."""
    found, table = [], ""
    for index, line in enumerate(EXAMPLE.splitlines()):
        code = line.partition("#")[0].rstrip()
        if header := re.fullmatch(r"\[(.*)\]", code):
            table = header[1]
            found.append(Injection(index, f"{line}\nnonsense = 1", table, "nonsense"))
        elif code:
            written, _, value = code.partition(" = ")
            key = written.strip('"')
            found += [Injection(index, f"{written} = {bad}  # bad", table, key) for bad in BAD.get(key, [])]
            if written == key:
                found.append(Injection(index, f"{key[:-1]}_ = {value}", table, f"{key[:-1]}_"))
            else:
                found.append(Injection(index, f'"{key}[x]" = {value}', table, f"{key}[x]"))
    return found


INJECTIONS = injections()


def test_every_key_of_the_example_has_bad_values_to_inject() -> None:
    keys = {injection.key for injection in INJECTIONS}
    assert keys >= BAD.keys()
    assert len(INJECTIONS) > 100


@pytest.mark.parametrize("injection", INJECTIONS, ids=lambda injection: injection.line[:40])
def test_every_fault_that_is_injected_into_the_example_is_reported_alone(injection: Injection) -> None:
    check_injected([injection])


@given(st.lists(st.sampled_from(INJECTIONS), min_size=1, max_size=15, unique_by=lambda injection: injection.index))
@settings(deadline=None)
def test_several_faults_at_once_are_all_reported(chosen: list[Injection]) -> None:
    check_injected(chosen)


def check_injected(chosen: list[Injection]) -> None:
    lines = EXAMPLE.splitlines()
    for injection in chosen:
        lines[injection.index] = injection.line
    text = "\n".join(lines)
    expected, number = [], 1
    by_index = {injection.index: injection for injection in chosen}
    for index, line in enumerate(lines):
        if index in by_index:
            injection = by_index[index]
            expected.append((injection.table, injection.key, number + line.count("\n")))
        number += 1 + line.count("\n")
    # a memory_dir or context_window that was misspelt is missing as well
    lost = {injection.line.partition("_ = ")[0] for injection in chosen if injection.key.endswith("_")}
    missing = len(lost & {"memory_di", "context_windo"})
    with pytest.raises(ConfigError) as caught:
        Config.parse(text)
    found: Any = caught.value.data["faults"]
    reported = [(item["table"], item["key"], item["line"]) for item in found]
    enabled = [item for item in reported if item[1] == "enabled" and item not in expected]
    if not any(injection.table == "agent.scratchpad" and injection.key.startswith("enable") for injection in chosen):
        assert len(enabled) == missing
    assert sorted(item for item in reported if item not in enabled) == sorted(expected)
    head, *told = str(caught.value).split("\n")
    assert head.endswith(f"{len(found)} fault{'s' * (len(found) > 1)}")
    for item, line in zip(found, told, strict=True):
        assert line.startswith(f"  line {item['line']}: ")
        assert item["message"] in line
        assert item["table"] in line


def test_an_error_lists_its_faults_in_the_order_of_the_lines_with_table_key_line_and_what_to_do() -> None:
    text = (
        "[sweeper]\nbatch_entries = -1\n"
        '[agent.llm]\ncontext_windw = 5\nmodel = ""\n'
        "[agent.scratchpad]\ncontext_safety_margin = nan\n"
    )
    with pytest.raises(ConfigError) as caught:
        Config.parse(text, source="my.toml")
    assert str(caught.value).split("\n") == [
        "my.toml: 4 faults",
        "  line 2: [sweeper] batch_entries: must be a whole number, 1 or more, not -1",
        (
            '  line 4: [agent.llm] context_windw: unknown key; the closest known one is "context_window" '
            "(of provider, model, context_window)"
        ),
        '  line 5: [agent.llm] model: must be a text in quotes that is not blank, not ""',
        "  line 7: [agent.scratchpad] context_safety_margin: must be a number of 0 or more and less than 1, not nan",
    ]
    assert isinstance(caught.value, ScratchError)
    assert caught.value.code == "config_error"
    assert caught.value.data["source"] == "my.toml"
    assert json.loads(json.dumps(caught.value.data)) == caught.value.data


@pytest.mark.parametrize(
    ("text", "table", "key", "closest"),
    [
        ("memroy_dir = 1", "", "memroy_dir", "memory_dir"),
        ("[agnt.llm]", "", "agnt", "agent"),
        ("[agent.scratchpad]\nenable = true", "agent.scratchpad", "enable", "enabled"),
        ("[orchestration.workers.x]", "orchestration", "workers", "worker"),
        ("[orchestration.worker.w]\nscrachpad = {}", "orchestration.worker.w", "scrachpad", "scratchpad"),
        ("[mcp.servers.s]\nscratch = {}", "mcp.servers.s", "scratch", "scratchpad"),
        ("[mcp.servers.s.scratchpad.x]\nmin_token = 1", "mcp.servers.s.scratchpad.x", "min_token", "min_tokens"),
        ("[scratch]\nttl = 5", "scratch", "ttl", "ttl_seconds"),
        ("[sweeper]\ninterval = 5", "sweeper", "interval", "interval_seconds"),
        ('[sweeper]\n"" = 5', "sweeper", "", "interval_seconds"),
    ],
)
def test_an_unknown_key_is_a_fault_with_the_closest_known_one(text: str, table: str, key: str, closest: str) -> None:
    found = fault(text)
    assert (found["table"], found["key"]) == (table, key)
    assert f'"{closest}"' in found["message"]


@pytest.mark.parametrize("text", ["agent = 3", "[[agent]]", "agent = []", 'agent = "x"', "agent = true"])
def test_a_value_where_a_table_belongs_is_a_fault(text: str) -> None:
    found = fault(text)
    assert (found["table"], found["key"], found["line"]) == ("", "agent", 1)
    assert "must be one table" in found["message"]


def test_a_name_that_holds_line_breaks_or_controls_cannot_forge_a_line_of_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse('"a\\nline 9: [scratch] x: all is well" = 1\n"\\u001b[2J" = 2\n"\\u009b" = "\\u202e"\n')
    _, *told = str(caught.value).split("\n")
    assert len(told) == 3
    assert all(line.isprintable() for line in told)


def test_a_number_too_long_to_write_is_told_without_its_digits() -> None:
    found = fault(f"[sweeper]\nbatch_entries = 0x{'f' * 5_000}")
    assert found["message"] == "must be a whole number, 1 or more, not a number beyond 2**63"


def test_a_long_value_is_cut_in_its_fault() -> None:
    message = fault(f'[agent.scratchpad]\nenabled = "{"x" * 100_000}"')["message"]
    assert len(message) < 200


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[agent.llm]\nmodel =\n", 2),
        ("a = 1\na = 2\n", 2),
        ("[agent]\n[scratch]\n\n[agent]\n", 4),
        ("a = 'open\nb = 'c'\n", 1),
        ("a = 'open\n", 2),
        ('x = 1\n\na = """never\nclosed\n', 5),
        ("a = 2024-13-45\n", 1),
        ("a = [1,\n2", 2),
        ("a = [1,\r\n2\r\n@", 3),
        ("memory_dir = C:\\x", 1),
        ("\ud800", 1),
    ],
)
def test_a_syntax_error_is_a_fault_with_its_line(text: str, line: int) -> None:
    found = fault(text)
    assert (found["table"], found["key"], found["line"]) == ("", None, line)
    assert "not TOML" in found["message"]


def test_a_syntax_error_at_the_end_of_the_file_says_where_to_look() -> None:
    assert "above may lack its end" in fault("a = 'open\nb = 1\n")["message"]
    assert "above" not in fault("a = 'open\nb = 'c'\n")["message"]


def test_what_the_parser_itself_cannot_take_is_a_fault_too() -> None:
    assert "nested too deeply" in fault("a = " + "[" * 50_000 + "]" * 50_000)["message"]
    assert "nested too deeply" in fault("a = " + "{ a = " * 50_000 + "1" + " }" * 50_000)["message"]
    assert "digits" in fault("sweeper.batch_entries = " + "9" * 5_000)["message"]


@given(st.text(st.sampled_from("[]{}=.,'\"\\# \t\n\rab1_-é\x00\ud800"), max_size=40) | st.text(max_size=40))
@settings(max_examples=500, deadline=None)
def test_any_text_is_a_configuration_or_a_configuration_error(text: str) -> None:
    try:
        config = Config.parse(text)
    except ConfigError as error:
        found: Any = error.data["faults"]
        assert len(str(error).split("\n")) == len(found) + 1  # noqa: PT017 - both outcomes are right
    else:
        assert config == Config()


# --- the file


def test_a_byte_order_mark_and_windows_line_ends_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "scratch.toml"
    file.write_bytes(b"\xef\xbb\xbf[scratch]\r\nthreshold_bytes = 5\r\n")
    assert Config.load(file).scratch.threshold_bytes == 5
    file.write_bytes(b"\xef\xbb\xbf[scratch]\r\n\r\nthreshold_bytes = -5\r\n")
    with pytest.raises(ConfigError, match="line 3: "):
        Config.load(file)


def test_a_file_that_is_not_utf_8_is_a_fault_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "scratch.toml"
    file.write_bytes(b"# fine\nmemory_dir = 'caf\xe9'\n")
    with pytest.raises(ConfigError, match="line 2: this is not UTF-8") as caught:
        Config.load(file)
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)


@pytest.mark.parametrize("name", ["", "missing.toml", "missing/scratch.toml", "nul\0.toml", "x" * 300])
def test_a_file_that_cannot_be_read_is_a_configuration_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:  # "" is the folder itself
        Config.load(tmp_path / name)
    assert caught.value.__cause__ is not None


def test_a_file_without_permission_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read anything
    with pytest.raises(ConfigError, match="Permission denied"):
        Config.load(FILE)


# --- lines of keys


def test_each_key_has_the_line_on_which_it_is_first_named() -> None:
    text = '''
        # [comment]
        a = 1 # b = 2
        "q.r" . 's' = """
        [not.a.table]
        no = "key" \\""" ""\\"
        ends with two quotes"""""
        [t.u]  # a comment
        x = [ 1, [ "]", '[' ], # ]
              { y = 1 }, """
        ]""", 2 ]
        z = { k = { l = 1 }, "m\\u0021" = 'n}', o.p = [ {} ] }
        date = 1979-05-27 07:32:00
        [[list]]
        first = 1
        [[list]]
        second = \'\'\'
        ''\'\'\'
        last = +inf'''.replace("\n        ", "\n")
    tomllib.loads(text)
    assert key_lines(text) == {
        ("a",): 3,
        ("q.r",): 4,
        ("q.r", "s"): 4,
        ("t",): 8,
        ("t", "u"): 8,
        ("t", "u", "x"): 9,
        ("t", "u", "z"): 12,
        ("t", "u", "z", "k"): 12,
        ("t", "u", "z", "k", "l"): 12,
        ("t", "u", "z", "m!"): 12,
        ("t", "u", "z", "o"): 12,
        ("t", "u", "z", "o", "p"): 12,
        ("t", "u", "date"): 13,
        ("list",): 14,
        ("list", "first"): 15,
        ("list", "second"): 17,
        ("list", "last"): 19,
    }


NASTY = st.text(st.sampled_from("[]{}=.,'\"\\# \t\nab1"), max_size=12)
SCALARS = (
    st.sampled_from(["1", "-0.5e3", "true", "nan", "1979-05-27 07:32:00", "07:32:00", '""', "''", '""""""', "''''''"])
    | NASTY.map(json.dumps)
    | NASTY.map(lambda text: '"""' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""')
    | NASTY.map(lambda text: '"""' + re.sub('"{3,}', "", text.replace("\\", "")) + 'x"""')
    | NASTY.map(lambda text: "'''" + re.sub("'{3,}", "", text) + "x'''''")
    | NASTY.map(lambda text: "'" + re.sub("['\n]", "", text) + "'")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[ # ]\n" + ",\n".join(items) + "\n]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ", ".join(f'"k {n}".x = {item}' for n, item in enumerate(items)) + "}"
        )
    ),
    max_leaves=6,
)
KEYS = st.text(st.sampled_from("ab1_-"), min_size=1, max_size=3) | NASTY.map(json.dumps)


@given(st.lists(st.tuples(KEYS, VALUES, st.booleans()), max_size=6))
@settings(deadline=None)
def test_every_key_of_a_valid_text_has_the_line_it_was_written_on(statements: list[tuple[str, str, bool]]) -> None:
    text = ""
    expected: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, (key, value, opens) in enumerate(statements):
        line = text.count("\n") + 1
        [name] = tomllib.loads(f"{key} = 1")
        if opens:
            text += f"[ t{number} . {key} ] # [x]\n"
            table = (f"t{number}", name)
            expected[table[:1]] = expected[table] = line
            line += 1
        text += f"s{number}.{key} = {value} # x = 1\n"
        expected[*table, f"s{number}"] = expected[*table, f"s{number}", name] = line
    document = tomllib.loads(text)
    lines = key_lines(text)
    assert {path: lines.get(path) for path in expected} == expected
    assert set(lines) == set(paths(document, ()))


def paths(table: dict[str, Any], above: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The path of each key and table, arrays not entered."""
    found = []
    for key, value in table.items():
        found.append((*above, key))
        if isinstance(value, dict):
            found += paths(value, (*above, key))
    return found
