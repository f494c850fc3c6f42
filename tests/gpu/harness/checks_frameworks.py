# SPDX-License-Identifier: Apache-2.0
"""PyTorch, CuPy and JAX as they are installed: the same results, and no slower."""

import math

from .context import Case, Context
from .record import Run, Test, best_of, pool_counts, ratio, texts_of
from .turns import middle, paired_ratio, take_turns

NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
TORCH_METRICS = ("train_ms", "small_ms", "loader_ms", "device_used_mib", "torch_reserved_mib")
TOLERANCE = 1e-4


def require_same_results(
    test: Test, prefix: str, native: list[Run], zone: list[Run], witnesses: list[Run] | None = None
) -> None:
    """To the bit; by a tolerance only if native runs (the witnesses) differ among themselves."""
    answers = texts_of(native, prefix)
    label = zone[0].label if zone else "zone"
    witnesses = native if witnesses is None else witnesses
    if answers == texts_of(zone, prefix) and len(answers) == 1 and "" not in answers:
        test.require(f"{label}: same {prefix} values, to the bit", True, "==", True)
    elif len(witnesses) > 1 and len(texts_of(witnesses, prefix)) == 1:
        test.require(f"{label}: same {prefix} values, to the bit", False, "==", True)
    else:
        test.notes.append(f"{prefix} values are not known to repeat natively: within a tolerance")
        worst = max((worst_error(prefix, native[0], run) for run in zone), default=math.inf)
        worst = worst if math.isfinite(worst) else None
        test.require(f"{label}: worst relative error of {prefix}", worst, "<=", TOLERANCE)


def worst_error(prefix: str, native: Run, zone: Run) -> float:
    """Infinite if a value is missing: NaN would compare as small."""
    worst = math.inf if not any(name.startswith(prefix) for name in native.metrics) else 0.0
    for name, value in native.metrics.items():
        if name.startswith(prefix):
            wanted = as_number(value)
            error = abs(as_number(zone.metrics.get(name)) - wanted) / (abs(wanted) or 1.0)
            worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst


def as_number(value: object) -> float:
    if isinstance(value, str):
        return float.fromhex(value) if "0x" in value else float(value)
    return float(value) if isinstance(value, (int, float)) else float("nan")


def torch(ctx: Context, test: Test) -> None:
    """Results and memory by runs of their own; times in turns."""
    short = ctx.script("torch_step.py", "--blocks", "2", "--steps", "4")
    full = ctx.script("torch_step.py", "--blocks", "2", "--steps", "20")
    turns = ctx.script("torch_step.py", "--turns")
    settings = (
        ("own pool", False, {}),
        ("zone, caching off", True, NO_CACHE),
        ("zone, own pool", True, {}),
    )
    alone = [Case(label, full, zone=zone, extra=extra) for label, zone, extra in settings]
    alone.append(Case("native, caching off", short, extra=NO_CACHE, reps=1))
    done = ctx.repeat(test, alone, reps=2)
    for label, runs in done.items():
        test.measured[label] = {name: best_of(runs, name) for name in TORCH_METRICS}
        test.measured[label].update(pool_counts(runs[-1]))
        test.measured[label]["losses"] = sorted(texts_of(runs, "loss"))
    players = [Case(label, turns, zone=zone, extra=extra) for label, zone, extra in settings]
    names = ("train", "loader", "small")
    _, times = take_turns(ctx, test, players, names, 10 if ctx.quick else 40)
    for label, of_name in times.items():
        for name, values in of_name.items():
            test.measured[label][f"{name}_turn_ms"] = middle(values)
    for label, native in (
        ("zone, caching off", "native, caching off"),
        ("zone, own pool", "own pool"),
    ):
        require_same_results(test, "loss", done[native], done[label], done["own pool"])
        for name in names:
            share = paired_ratio(times[label][name], times["own pool"][name])
            test.measured[f"{label}: {name} / own pool"] = share
            if name == "train" or label == "zone, own pool":
                test.require(f"{label}: {name} / PyTorch's own pool", share, "<=", 1.02)
    own = test.measured["own pool"]
    extra = [test.measured["zone, caching off"]["device_used_mib"], own["device_used_mib"]]
    if None not in extra:
        test.measured["extra memory, MiB"] = extra[0] - extra[1]
    test.require("device memory was read", None not in extra, "==", True)


def require_not_slower(
    test: Test, done: dict[str, list[Run]], native: str, zone: str, limit: float
) -> None:
    share = ratio(best_of(done[zone], "step_ms"), best_of(done[native], "step_ms"))
    test.measured[f"{zone} / {native}"] = share
    test.require(f"{zone}: step / {native}", share, "<=", limit)
    require_same_results(test, "result", done[native], done[zone])


def cupy(ctx: Context, test: Test) -> None:
    cases = []
    for mode in ("pool", "no pool"):
        command = ctx.script("cupy_ops.py", *(["--no-pool"] if mode == "no pool" else []))
        cases += [
            Case(f"native, {mode}", command),
            Case(f"zone, {mode}", command, zone=True),
        ]
    measure_framework(ctx, test, cases, ("pool", "no pool"), reps=ctx.reps)


def jax(ctx: Context, test: Test) -> None:
    # Which kernel is fastest JAX tries out anew in every process, unless told not to.
    common = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_autotune_level=0"}
    allocators = {
        "default allocator": common,
        "platform allocator": {**common, "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
    }
    cases = []
    for mode, extra in allocators.items():
        command = ctx.script("jax_ops.py")
        cases += [
            Case(f"native, {mode}", command, extra=extra),
            Case(f"zone, {mode}", command, zone=True, extra=extra),
        ]
    done, times = take_turns(ctx, test, cases, ("step",), 10 if ctx.quick else 60)
    for label, run in done.items():
        test.measured[label] = {"step_ms": middle(times[label]["step"]), **pool_counts(run)}
    for mode in allocators:
        native, zone = f"native, {mode}", f"zone, {mode}"
        share = paired_ratio(times[zone]["step"], times[native]["step"])
        test.measured[f"{zone} / {native}"] = share
        test.require(f"{zone}: step / {native}", share, "<=", 1.03)
        require_same_results(test, "result", [done[native]], [done[zone]])


def measure_framework(
    ctx: Context, test: Test, cases: list[Case], modes: tuple[str, ...], reps: int
) -> None:
    def judge(test: Test, done: dict[str, list[Run]]) -> None:
        for label, runs in done.items():
            test.measured[label] = {"step_ms": best_of(runs, "step_ms"), **pool_counts(runs[-1])}
        for mode in modes:
            require_not_slower(test, done, f"native, {mode}", f"zone, {mode}", 1.03)

    ctx.repeat(test, cases, reps=reps, judge=judge)
