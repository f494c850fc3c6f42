# SPDX-License-Identifier: Apache-2.0
"""Reuse in the right order and at the right time: the fence, and what it costs other threads."""

from .build import build_sabotaged
from .context import Case, Context
from .record import Run, Test, best_of, median_of, pool_counts, ratio, total_of

WAITING_VARIANTS = ("plain", "thread", "hostfunc", "full", "tight")
# Whole blocks cannot be given back beside a running kernel: shown, not required (see the program).
LIMIT_VARIANT = "other"
# Enough budget that no free waits, so that a late event is left for the malloc to meet.
SABOTAGE_CONF = "free_order:event,max_pending_mb:8192"


def four_streams(ctx: Context, test: Test) -> None:
    command = ctx.program("four_streams")
    cases = [
        Case("native", command),
        Case("zone", command, zone=True),
        Case("unsafe", command, zone=True, conf="free_order:unsafe", reps=1),
        Case("event", command, zone=True, conf="free_order:event", reps=1),
        Case("sync", command, zone=True, conf="free_order:sync", reps=1),
        Case("shared cudart", ctx.program("four_streams_shared"), zone=True, reps=1),
        Case("max_pending_mb:0", command, zone=True, conf="max_pending_mb:0", reps=1),
        Case("max_pending_mb:64", command, zone=True, conf="max_pending_mb:64", reps=1),
    ]
    done = ctx.repeat(test, cases)
    for label, runs in done.items():
        test.measured[label] = {
            "total_ms": best_of(runs, "total_ms"),
            "host_ms": best_of(runs, "host_ms"),
            "wrong": total_of(runs, "wrong"),
            **pool_counts(runs[-1]),
        }
    native = test.measured["native"]["total_ms"]
    for label in done:
        if label != "unsafe":
            test.require(f"{label}: wrong values", test.measured[label]["wrong"], "==", 0)
    unsafe = test.measured["unsafe"]["wrong"]
    test.require("free_order:unsafe: wrong values", unsafe, ">", 0)
    zone = test.measured["zone"]["total_ms"]
    test.require("400 steps under libzone, ms", zone, "<=", 6.5)
    test.measured["native / zone"] = ratio(native, zone)


def async_backend(ctx: Context, test: Test) -> None:
    """The driver's own pool behind cudaMalloc: the same order, never tied, and what it costs."""
    conf = "backend:cudaMallocAsync"
    streams, pair = ctx.program("four_streams"), ctx.program("pair_static", "sizes")
    done = ctx.repeat(
        test,
        [
            Case("native", streams),
            Case("four streams", streams, zone=True, conf=conf),
            Case("pair", pair, zone=True, conf=conf),
            *(
                Case(f"waiting {v}", ctx.program("waiting_kernel", v), zone=True, conf=conf)
                for v in ("plain", "thread", "hostfunc")
            ),
        ],
        reps=1,
    )
    for label, runs in done.items():
        test.measured[label] = runs[0].metrics
        if label.startswith("waiting"):
            test.require(f"{label}: rounds of 9 tied", total_of(runs, "tied"), "==", 0)
            test.require(f"{label}: mallocs refused", total_of(runs, "refused"), "==", 0)
    wrong = total_of(done["four streams"], "wrong")
    test.require("four streams: wrong values", wrong, "==", 0)
    gain = ratio(best_of(done["native"], "total_ms"), best_of(done["four streams"], "total_ms"))
    test.require("four streams: native / libzone", gain, ">=", 1.0)


def four_streams_async(ctx: Context, test: Test) -> None:
    """In stream order: never slower than the driver's own pool at its best."""
    command = ctx.program("four_streams", "11", "async")
    cases = [
        Case("native", command, reps=1),
        Case("native kept", ctx.program("four_streams", "11", "kept")),
        Case("zone", command, zone=True),
        Case("free_order:unsafe", command, zone=True, conf="free_order:unsafe", reps=1),
    ]
    ctx.repeat(test, cases, judge=judge_four_streams_async)


def judge_four_streams_async(test: Test, done: dict[str, list[Run]]) -> None:
    for label, runs in done.items():
        test.measured[label] = {
            "total_ms": best_of(runs, "total_ms"),
            "host_ms": best_of(runs, "host_ms"),
            "wrong": total_of(runs, "wrong"),
            **pool_counts(runs[-1]),
        }
        if label != "free_order:unsafe":
            test.require(f"{label}: wrong values", test.measured[label]["wrong"], "==", 0)
    kept = test.measured["native kept"]["total_ms"]
    share = ratio(test.measured["zone"]["total_ms"], kept)
    test.measured["zone / native kept"] = share
    test.require("libzone / native, memory kept", share, "<=", 1.02)


def waiting_kernel(ctx: Context, test: Test) -> None:
    cases = [Case(f"native {v}", ctx.program("waiting_kernel", v)) for v in WAITING_VARIANTS]
    cases += [
        Case(f"zone {v}", ctx.program("waiting_kernel", v), zone=True) for v in WAITING_VARIANTS
    ]
    cases += [
        Case(f"budget 0 {v}", ctx.program("waiting_kernel", v), zone=True, conf="max_pending_mb:0")
        for v in WAITING_VARIANTS
    ]
    shown_only = Case(
        f"zone {LIMIT_VARIANT} (shown only)",
        ctx.program("waiting_kernel", LIMIT_VARIANT),
        zone=True,
    )
    run = ctx.run(test, shown_only)
    test.measured[run.label] = {
        "tied": total_of([run], "tied"),
        "refused": total_of([run], "refused"),
    }
    done = ctx.repeat(test, cases, reps=1)
    for label, runs in done.items():
        tied, refused = total_of(runs, "tied"), total_of(runs, "refused")
        test.measured[label] = {"tied": tied, "refused": refused}
        test.require(f"{label}: rounds of 9 tied", tied, "==", 0)
        test.require(f"{label}: mallocs refused", refused, "==", 0)

    library, why = build_sabotaged(ctx.root, "late_record", ctx.work / "sabotage-late_record")
    if library is None:
        test.require(f"late_record was built ({why})", None, ">", 0)
        return
    tied = 0.0
    for variant in ("plain", "full"):
        case = Case(
            f"late_record {variant}",
            ctx.program("waiting_kernel", variant),
            zone=library,
            conf=SABOTAGE_CONF,
        )
        run = ctx.run(test, case)
        seen = (total_of([run], "tied") or 0) + (total_of([run], "refused") or 0)
        test.measured[case.label] = {"tied or refused": seen, "timed_out": run.timed_out}
        tied += seen or (9 if run.timed_out else 0)
    test.require("event recorded late: rounds tied or refused", tied, ">", 0)


def launch_latency(ctx: Context, test: Test) -> None:
    command = ctx.program("launch_latency")
    done = ctx.repeat(test, [Case("native", command), Case("zone", command, zone=True)])
    names = [f"{part}_{q}_us" for part in ("alone", "busy") for q in ("p50", "p99", "p999")]
    for label, runs in done.items():
        test.measured[label] = {name: median_of(runs, name) for name in names}
        test.measured[label]["other_steps_per_s"] = median_of(runs, "other_steps_per_s")
    alone = median_of(done["native"] + done["zone"], "alone_p99_us")
    test.measured["alone_p99_us"] = alone
    for label in ("native", "zone"):
        test.measured[f"{label} busy / alone, p99"] = ratio(
            test.measured[label]["busy_p99_us"], alone
        )
    test.require(
        "p99 of a launch beside malloc and free / alone",
        test.measured["zone busy / alone, p99"],
        "<=",
        3.0,
    )
