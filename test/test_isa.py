"""What `python -m benchmarks isa` counts and estimates, on a few lines of code."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.isa import (
    capture,
    cases,
    command,
    estimate,
    kernel,
    ours,
    play,
    report,
    results,
    spirv,
    targets,
    theirs,
    tools,
    wave,
)
from benchmarks.isa.estimate import Estimate, Tally
from benchmarks.isa.kernel import Statistics
from benchmarks.isa.results import Launched, Row, Side
from executorch_webgpu.ir.dtypes import DType, Storage
from executorch_webgpu.plan.plan import Buffer, Plan, Port, PortKind, Role

NAVI31, VEGA10 = targets.find("navi31"), targets.find("vega10")

# A loop as long as the first word of a uniform says; in it, one that lane 0 to 63 run
# as often as their number divided by 16, and an `if` on what memory holds.
TEXT = """
BB0:
	s_movk_i32 s3, 0x8000                                       ; b0038000
	s_load_b128 s[8:11], s[2:3], 0x10                           ; f4080201
	s_load_b128 s[4:7], s[2:3], null                            ; f4080201
	s_waitcnt lgkmcnt(0)                                        ; bf89fc07
	s_buffer_load_b32 s0, s[8:11], 0x4                          ; f4200044
	s_mov_b32 s1, 0                                             ; be810080
	v_lshlrev_b32_e32 v4, 4, v0                                 ; 30080084
BB1:
	s_cmp_ge_i32 s1, s0                                         ; bf030001
	s_cbranch_scc1 BB8                                          ; bfa20010
BB2:
	v_mov_b32_e32 v1, 0                                         ; 7e020280
	v_lshrrev_b32_e32 v2, 4, v0                                 ; 32040084
	s_mov_b64 s[12:13], exec                                    ; be8c017e
BB3:
	v_cmpx_lt_u32_e32 v1, v2                                    ; 7d920501
	s_cbranch_execz BB5                                         ; bfa50004
BB4:
	v_add_nc_u32_e32 v1, 1, v1                                  ; 4a020281
	s_branch BB3                                                ; bfa0fffa
BB5:
	s_mov_b64 exec, s[12:13]                                    ; befe010c
	buffer_load_b128 v[8:11], v4, s[4:7], 0 offen               ; e05c0000
	buffer_load_b32 v3, v4, s[4:7], 0 offen offset:16           ; e0500010
	s_waitcnt vmcnt(0)                                          ; bf8903f7
	v_fmac_f32_e32 v5, v8, v9                                   ; 560a1308
	v_cmpx_lt_f32_e32 v3, v8                                    ; 7d221103
	s_cbranch_execz BB7                                         ; bfa50002
BB6:
	buffer_load_b32 v3, v4, s[4:7], 0 offen offset:32           ; e0500020
	s_waitcnt vmcnt(0)                                          ; bf8903f7
BB7:
	s_mov_b64 exec, s[12:13]                                    ; befe010c
	s_add_u32 s1, s1, 1                                         ; 80018101
	s_branch BB1                                                ; bfa0ffe0
BB8:
	s_endpgm                                                    ; bfb00000
"""


def launch(rounds: int = 5, grid: bool = False, gfx9: bool = False) -> wave.Launch:
    uniform = struct.pack("<2I", 99, rounds)
    bindings = ((4096, b""), (8, uniform))
    return wave.Launch((64, 1, 1), (7, 3, 2), bindings, grid, 64, not gfx9, gfx9)


def visits(text: str, given: wave.Launch) -> dict[str, int]:
    made = kernel.parse(text)
    counted = Counter(play.play(made, given))
    return {made.blocks[at].label: count for at, count in counted.items()}


def test_blocks_loops_and_instructions() -> None:
    made = kernel.parse(TEXT)
    labels = [(made.blocks[a].label, made.blocks[b].label) for a, b in made.loops]
    assert labels == [("BB1", "BB7"), ("BB3", "BB4")]
    counts = kernel.count(list(made.code()))
    assert counts.classes["load"] == 3
    assert counts.classes["scalar_load"] == 3
    assert counts.widths["load"] == {16: 1, 4: 2}
    assert (counts.fma, counts.vector_alu, counts.round_trips) == (1, 7, 2)


@pytest.mark.parametrize(
    ("name", "kind", "size"),
    [
        ("global_load_d16_b16", "load", 2),
        ("buffer_load_dwordx3", "load", 12),
        ("ds_read2st64_b32", "lds_read", 8),
        ("ds_load_2addr_b64", "lds_read", 16),
        ("buffer_store_byte", "store", 1),
        ("v_pk_fma_f16", "fma", 4),
        ("v_exp_f16_e32", "special", 2),
        ("v_mad_u32_u24", "vector", 4),
        ("s_wait_loadcnt", "wait", 4),
    ],
)
def test_classes_and_widths(name: str, kind: str, size: int) -> None:
    assert kernel.classify(name) == kind
    if kind not in ("fma", "special"):
        assert kernel.width(name) == size
    assert kernel.fma_lanes(name) == (2 if name == "v_pk_fma_f16" else 1)


def test_a_wait_that_leaves_loads_in_flight_is_a_round_trip_of_its_own() -> None:
    load = "buffer_load_b32 v1, v0, s[0:3], 0 offen\n"
    ahead = f"{load}{load}s_waitcnt vmcnt(1)\ns_waitcnt vmcnt(0)\n"
    after = f"{load}s_waitcnt vmcnt(0)\n{load}s_waitcnt vmcnt(0)\n"
    for text, trips in ((ahead, 1), (after, 2)):
        assert kernel.count(list(kernel.parse(text).code())).round_trips == trips


def test_loops_are_counted_by_the_uniform_and_the_slowest_lane() -> None:
    counted = visits(TEXT, launch(rounds=5))
    assert counted["BB1"] == 6
    assert counted["BB4"] == 5 * 3  # lanes 48 to 63 go round three times
    assert counted["BB6"] == 5, "unknown data: some lanes go there"
    assert visits(TEXT, launch(rounds=0))["BB8"] == 1


@pytest.mark.parametrize("gfx9", [False, True])
def test_the_grid_is_passed_as_the_generation_passes_it(gfx9: bool) -> None:
    text = """
BB0:
	s_mov_b32 s9, s4
	s_cmp_lg_i32 s6, 0
	s_cbranch_scc1 BB1
	s_cmp_eq_i32 s9, 3
	s_cbranch_scc1 BB2
BB1:
	s_endpgm
BB2:
	s_endpgm
"""
    if gfx9:
        text = text.replace("s_mov_b32 s9, s4", "s_load_dword s9, s[3:4], 0x4")
    assert "BB2" in visits(text, launch(grid=True, gfx9=gfx9))
    if not gfx9:  # where the register holds a workgroup's id instead
        assert "BB2" not in visits(text, launch(grid=False))
        # The text asks for it, and the compiler found that nobody needs it.
        assert "BB2" not in visits(text.replace("s6", "s5"), launch(grid=True))


def test_a_branch_of_the_wave_on_unknown_data_is_refused() -> None:
    text = """
BB0:
	buffer_load_b32 v1, v0, s[4:7], 0 offen
	v_readfirstlane_b32 s0, v1
	s_cmp_eq_i32 s0, 0
	s_cbranch_scc1 BB0
	s_endpgm
"""
    text = text.replace("buffer_load_b32", "ds_load_b32")
    with pytest.raises(wave.Uncountable, match="s_cbranch_scc1"):
        visits(text, launch())


@pytest.mark.parametrize("lane", [3, 40])
def test_lanes_that_a_mask_leaves_out_keep_what_they_have(lane: int) -> None:
    text = f"""
BB0:
	v_mov_b32_e32 v1, 0
	s_mov_b64 s[12:13], exec
	v_cmpx_gt_u32_e32 32, v0
	ds_load_b32 v1, v0
	s_mov_b64 exec, s[12:13]
	v_add_nc_u32_e32 v2, 7, v1
	v_cndmask_b32_e64 v2, v1, v2, s[12:13]
	v_readlane_b32 s0, v2, {lane}
	s_cmp_eq_i32 s0, 7
	s_cbranch_scc1 BB1
	s_endpgm
BB1:
	s_endpgm
"""
    if lane == 40:
        assert "BB1" in visits(text, launch())
    else:
        with pytest.raises(wave.Uncountable, match="s_cbranch_scc1"):
            visits(text, launch())


def test_lanes_load_words_that_are_known() -> None:
    """As far as the buffer goes: what lane 2 loads is not in it."""
    text = """
BB0:
	s_movk_i32 s3, 0x8000
	s_load_b128 s[8:11], s[2:3], 0x10
	v_lshlrev_b32_e32 v4, 2, v0
	buffer_load_b64 v[6:7], v4, s[8:11], 0 offen
	v_mov_b32_e32 v5, 0
BB1:
	v_add_nc_u32_e32 v5, 1, v5
	v_readlane_b32 s1, v5, 0
	v_readlane_b32 s0, v7, 0
	s_cmp_lt_i32 s1, s0
	s_cbranch_scc1 BB1
	s_endpgm
"""
    assert visits(text, launch(rounds=5))["BB1"] == 5
    with pytest.raises(wave.Uncountable, match="s_cbranch_scc1"):
        visits(text.replace("s0, v7, 0", "s0, v6, 2"), launch())


def test_words_that_the_disassembler_cannot_read_are_read() -> None:
    text = """
	s_buffer_load_b128 s[96:99], s[36:39], s65                  ; f4281812 82000000
	ds_load_b128 v[24:27], v76 offset:32                        ; dbfc0020 1800004c
(invalid instruction)                                        ; f4281a12
	v_fmaak_f32 v0, s0, v0, 0xdbfc0030                          ; 5a000000 dbfc0030
	v_max_f32_e32 v0, s76, v0                                   ; 2000004c
(invalid instruction)                                        ; 7e6638ff
(invalid instruction)                                        ; fffffbff
	v_min_u32_e32 v1, 15, v1                                    ; 2602028f
"""
    read = [(one.name, one.operands) for one in kernel.parse(text).code()][2:]
    assert read == [
        ("s_buffer_load_b128", "s[104:107], s[36:39], s45 offset:0"),
        ("ds_load_b128", "v[32:35]"),
        ("v_mov_b16", "v51"),
        ("v_min_u32_e32", "v1, 15, v1"),
    ]


def test_small_integer_inputs_and_the_status_are_known(tmp_path: Path) -> None:
    shapes = {"positions": (3,), "tokens": (1, 300)}
    ports = [
        Port(name, PortKind.TENSOR, at, DType.INT64, Storage.I32, shape)
        for at, (name, shape) in enumerate(shapes.items())
    ]
    ports.append(Port("x", PortKind.TENSOR, 2, DType.FLOAT32, Storage.F32, (3,)))
    buffers = [Buffer(Role.INPUT, 16, "")] * 3 + [Buffer(Role.STATUS, 16, "status")]
    plan = Plan(tuple(buffers), (), (), (), b"", tuple(ports), (), status=3)
    assert ours._contents(plan, tmp_path) == {3: bytes(16)}
    arrays = [np.arange(5, 8), np.zeros((1, 300), np.int64), np.ones(3, np.float32)]
    np.savez(tmp_path / "inputs.npz", *arrays)
    known = ours._contents(plan, tmp_path)
    assert known == {0: struct.pack("<3i", 5, 6, 7), 3: bytes(16)}


def test_a_wave_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "MAX_BLOCKS", 10)
    with pytest.raises(wave.Uncountable, match="more than 10"):
        visits("BB0:\n\ts_branch BB0\n", launch())


def test_both_sides_of_branches_in_branches_on_unknown_data_run() -> None:
    text = """
BB0:
	ds_load_b32 v1, v0
	v_cmp_eq_f32_e32 vcc, v1, v1
	s_and_not1_b64 exec, exec, vcc
	s_mov_b64 s[12:13], exec
	v_cmpx_gt_f32_e32 0, v1
	s_cbranch_execz BB2
BB1:
	v_mov_b32_e32 v2, 1
BB2:
	s_and_not1_b64 exec, s[12:13], exec
	s_cbranch_execz BB4
BB3:
	v_mov_b32_e32 v2, 2
BB4:
	s_endpgm
"""
    assert {"BB1", "BB3"} <= visits(text, launch()).keys()


@pytest.mark.parametrize("stays", [True, False])
def test_a_loop_that_data_ends_is_refused(
    monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    """Whether lanes stay in it or leave it by what is unknown."""
    monkeypatch.setattr(play, "MAX_BLOCKS", 100)
    text = f"""
BB0:
	ds_load_b32 v1, v0
BB1:
	v_cmp_gt_f32_e32 vcc, 0, v1
	{"s_and_b64" if stays else "s_and_not1_b64"} exec, exec, vcc
	s_cbranch_execnz BB1
	s_endpgm
"""
    with pytest.raises(wave.Uncountable, match="more than 100"):
        visits(text, launch())


def test_naga_counts_loops_in_two_words() -> None:
    """Its bound on loops is a 64-bit counter, per lane, that borrows by a mask."""
    text = """
BB0:
	v_lshrrev_b64 v[5:6], 0, -1
	v_mov_b32_e32 v5, 1
	v_mov_b32_e32 v6, 1
BB1:
	v_max_u32_e32 v7, v5, v6
	v_cmp_eq_i32_e32 vcc, 0, v5
	v_add_nc_u32_e32 v5, -1, v5
	v_subrev_co_ci_u32_e32 v6, vcc, 0, v6, vcc
	v_cmpx_ne_i32_e32 0, v7
	s_cbranch_execz BB2
	s_cmp_eq_i32 s9, 4
	s_add_u32 s9, s9, 1
	s_branch BB3
BB3:
	v_readfirstlane_b32 s8, v6
	s_cmp_eq_i32 s8, 0
	s_cbranch_scc0 BB1
BB2:
	s_endpgm
"""
    assert visits(text, launch())["BB1"] == 2  # 1:1, 1:0, then 0:ffffffff


def test_rounds_that_are_not_played_add_up_to_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = kernel.parse(TEXT)
    trace = play.play(made, launch(rounds=40))
    clocks = targets.Assumed()
    quick = estimate.time_wave(made, trace, 64, NAVI31, clocks)
    monkeypatch.setattr(estimate, "_repeats", lambda *given: 0)
    assert quick == estimate.time_wave(made, trace, 64, NAVI31, clocks)
    assert quick.loads == 40 * 3
    assert quick.round_trips == 40 * 2
    assert quick.fma == 40


def test_clocks_are_those_assumed() -> None:
    made = kernel.parse(
        "buffer_load_b128 v[1:4], v0, s[0:3], 0 offen\n"
        "v_fma_f32 v5, v6, v7, v8\ns_waitcnt vmcnt(0)\nv_exp_f32_e32 v1, v1\n"
    )
    clocks = targets.Assumed(load=300)
    # The load unit takes 64 lanes of 16 bytes in 16 clocks, then 300 until it lands.
    tally = estimate.time_wave(made, [0], 64, NAVI31, clocks)
    assert tally.time == 16 + 300 + 1 + 4 * 2
    assert tally.stalled == 16 + 300 - 1 - 2
    assert estimate.time_wave(made, [0], 64, VEGA10, clocks).alu_busy == 5 * 4


def statistics(waves: int = 8) -> Statistics:
    return Statistics(64, 96, 128, 8192, 0, 0, waves)


@pytest.mark.parametrize(
    ("tally", "groups", "bound", "clocks"),
    [
        (Tally(time=1000, alu_busy=10), 192, "wave", 1000),
        # Three waves on each SIMD: each alone has time for what they share.
        (Tally(time=1000, alu_busy=400), 3 * 192, "alu", 3 * 400),
        # Both SIMDs of a compute unit read its workgroup memory.
        (Tally(time=1000, lds_busy=600), 192, "lds", 2 * 600),
        # Room for eight waves: sixteen take two rounds.
        (Tally(time=1000, alu_busy=10), 16 * 192, "wave", 2000),
    ],
)
def test_a_dispatch_is_as_slow_as_its_slowest_bound(
    tally: Tally, groups: int, bound: str, clocks: float
) -> None:
    made = estimate.estimate(tally, statistics(), 64, groups, NAVI31)
    assert made.bound == bound
    assert made.microseconds == pytest.approx(clocks / NAVI31.ghz / 1e3)


def test_waves_of_64_lanes_are_half_of_what_radv_counts_on_rdna(
    tmp_path: Path,
) -> None:
    names = ("VGPRs", "SGPRs", "LDS size", "Spilled VGPRs", "Spilled SGPRs")
    lines = ["Wave size\t64", "Subgroups per SIMD\t16", "Scratch size\t0"]
    path = tmp_path / "0000.stats"
    path.write_text("\n".join(lines + [f"{name}\t3" for name in names]))
    assert kernel.read_statistics(path, True).waves_per_simd == 8
    assert kernel.read_statistics(path, False).waves_per_simd == 16
    assert kernel.read_statistics(path, False).spills == 6


def side(microseconds: float) -> Side:
    times = {
        latency: Estimate(microseconds, "wave", 192, 1.0)
        for latency in targets.LATENCIES
    }
    tally = Tally(vector_alu=100, fma=50, loads=8, round_trips=2)
    return Side((Launched("kernel", (192, 1, 1), statistics(), 0, tally, times),))


def test_tables_keep_facts_and_estimates_apart() -> None:
    rows = [
        Row(cases.find("matmul1024"), NAVI31, side(100), side(400)),
        Row(cases.find("add"), NAVI31, side(1), side(2)),
        Row(cases.find("gelu"), NAVI31, Side((), "s_cbranch_scc1"), side(2)),
    ]
    # Both additions are as fast as memory, so their ratio is one.
    assert [row.ratio() for row in rows] == [4.0, 1.0, None]
    text = report.section(rows, "today")
    estimates, facts = text.split("**Facts.**")
    assert "| navi31 | 2.00 | 2.00 | 2.00 | 0 / 0 / 0 of 2 |" in estimates
    assert "| matmul 1024 | 100 (wave) | 400 (wave) | 4.00 | 4.00 | 4.00 |" in estimates
    assert "(memory)" in estimates
    assert "us" not in facts.split()
    assert "| matmul 1024 | kernel / kernel | 96 / 96 | 8192 / 8192 |" in facts
    assert "gelu 512x3072, navi31, ours: s_cbranch_scc1" in facts
    assert results.as_json(rows)[2]["ours"] == {"failed": "s_cbranch_scc1"}


def test_unseen_cases_have_means_of_their_own() -> None:
    rows = [
        Row(cases.find("matmul1024"), NAVI31, side(100), side(400)),
        Row(cases.find("matmul1000"), NAVI31, side(100), side(50)),
    ]
    text = report.section(rows, "today")
    seen, unseen = text.split("not looked at while")
    assert "| navi31 | 4.00 | 4.00 | 4.00 | 0 / 0 / 0 of 1 |" in seen
    assert "| navi31 | 0.500 | 0.500 | 0.500 | 1 / 1 / 1 of 1 |" in unseen
    assert "| matmul 1000 | 100 (wave) | 50.0 (wave) |" in unseen
    assert "mean of 1 cases" in report.chart(rows)


def test_ours_by_tint_is_compared_with_ours_by_naga() -> None:
    rows = [
        Row(cases.find("matmul1024"), NAVI31, side(100), side(400), side(125)),
        Row(cases.find("gelu"), NAVI31, side(100), None, Side((), "no way")),
    ]
    text = report.section(rows, "today")
    estimates, facts = text.split("**Facts.**")
    assert "| case | navi31 |" in estimates
    assert "| matmul 1024 | 1.25 |\n| gelu 512x3072 | - |" in estimates
    assert "| geometric mean | 1.25 |" in estimates
    assert "Counted, navi31, ours by naga / by Tint:" in facts
    assert "gelu 512x3072, navi31, ours by Tint: no way" in facts
    assert "Tint" not in report.section(rows[:0], "today")


def test_a_model_is_the_sum_of_its_launches() -> None:
    one = side(100).launched[0]
    model = cases.find("mobilenet")
    # 960 MB take navi31 a millisecond, which is longer than the first estimate.
    both = Side((replace(one, moved=960e6), one))
    assert both.microseconds(model, NAVI31) == pytest.approx(1000 + 100 + 2 * 2)
    text = report.section([Row(model, NAVI31, both, side(550))], "today")
    assert "| MobileNetV2, 224x224, navi31 | 2 / 1 | 1.10 / 0.552 | 0.500 |" in text
    assert "Counted" not in text


def test_slowest_dispatches_come_first_and_equal_ones_together() -> None:
    short, long = side(30).launched[0], side(50).launched[0]
    launched = (replace(long, label="long"), short, short)
    row = Row(cases.find("mobilenet"), NAVI31, Side(launched), None)
    lines = report.dispatches([row], 2).splitlines()
    assert "| kernel | 192x1x1 | 2 | 60.0 | wave | 30.0 | 30.0 | 30.0 |" in lines[4]
    assert "| long | 192x1x1 | 1 | 50.0 |" in lines[5]
    assert len(report.dispatches([row], 1).splitlines()) == 5


def test_a_process_that_fails_is_said_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(
        tools.Missing, match=r"null device of navi31, .* no_such_module"
    ):
        capture.run("no_such_module", [], NAVI31, tmp_path, tmp_path / "out")


def test_dispatches_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = ["device x", "pipeline 0 flags 0", "dispatch 0 4 2 1 4096: 4:01020304"]
    (tmp_path / "log.txt").write_text("\n".join(log))
    (made,) = capture.dispatches_in_log(tmp_path)
    assert made.groups == (4, 2, 1)
    assert made.bindings == ((4096, b""), (4, b"\1\2\3\4"))
    assert capture.count_pipelines(tmp_path) == 1
    capture.write(tmp_path, [made])
    assert capture.read(tmp_path) == [made]


def test_spirv_says_how_many_threads_and_whether_the_grid_is_asked_for() -> None:
    header = [0x07230203, 0x10300, 0, 10, 0]
    mode = [6 << 16 | 16, 1, 17, 8, 4, 2]
    grid = [4 << 16 | 71, 5, 11, 24]

    def code(*words: list[int]) -> bytes:
        flat = [word for some in words for word in some]
        return struct.pack(f"<{len(flat)}I", *flat)

    assert spirv.interface(code(header, mode)) == spirv.Interface((8, 4, 2), False)
    assert spirv.interface(code(header, grid, mode)).uses_grid
    with pytest.raises(ValueError, match="size of a workgroup"):
        spirv.interface(code(header))


def test_every_case_has_both_sides() -> None:
    every = cases.expand(["seen", "unseen"])
    assert len({case.name for case in every}) == len(every)
    assert len(cases.CASES) == 24
    families = {case.family for case in every}
    assert families == set(ours._FAMILIES) == set(theirs._FAMILIES)
    assert cases.expand(["add", "models"])[0] == cases.find("add")


def test_what_is_missing_is_said_and_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tools, "_INCLUDES", (tmp_path,))
    monkeypatch.setattr(tools, "_DRIVERS", (tmp_path,))
    assert command.main(["--output", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "apt install libvulkan-dev" in said
    assert "apt install mesa-vulkan-drivers" in said
    assert list(tmp_path.iterdir()) == []


def test_tint_that_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tools, "check", lambda: None)
    monkeypatch.setattr(tools, "build_layer", lambda folder: None)
    monkeypatch.setattr(command, "_export", lambda *given: None)
    given = ["--tint", "--cases", "add", "--output", str(tmp_path)]
    assert command.main([*given, "--peers", str(tmp_path)]) == 1
    assert "dawn-python" in capsys.readouterr().err


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SystemExit, match=r"case must be one of .* got 'x'"):
        cases.find("x")
    with pytest.raises(SystemExit, match=r"target must be one of .* got 'x'"):
        targets.find("x")
