#!/usr/bin/env python3
"""Writes docs/benchmarks.md from docs/benchmarks.in.md and the figures in docs/benchmarks/."""
import json
import pathlib

DOCS = pathlib.Path(__file__).parent.parent / "docs"


def read(name):
    return json.loads((DOCS / "benchmarks" / f"{name}.json").read_text())


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def saturation():
    rows = []
    for model in read("saturation")["models"]:
        name = model["model"]
        rows.append([
            f"{name}, positions/s at saturation", f"{model['bare_positions_per_second']:,.1f}",
            f"{model['served_positions_per_second']:,.1f}", f"**{model['throughput_ratio']:.3f}**",
        ])
        rows.append([
            f"{name}, ms a request, one client", f"{model['bare_batch_1_milliseconds']:.3f}",
            f"{model['served_one_client_milliseconds']:.3f}", f"{model['latency_ratio']:.3f}",
        ])
    return table(["", "bare", "served", "ratio"], rows)


def models():
    head = ["batch", "f32, positions/s", "int8, positions/s", "ratio"]
    return table(head, [
        [one["batch"], f"{one['f32_positions_per_second']:,.0f}", f"{one['int8_positions_per_second']:,.0f}",
         f"**{one['int8_by_f32']:.2f}**"]
        for one in read("models")["batches"]
    ])


def peers(figures):
    ours = figures["servers"][0]
    head = ["", "positions/s", "of bare", "zeitnot by it", "p50 / p99 ms at 50%", "p50 / p99 ms at 80%",
            f"p50 / p99 ms at {figures['common_per_second']:.0f}/s", "memory, MiB"]
    rows = []
    for one in figures["servers"]:
        rate = one["positions_per_second"]
        rows.append([
            f"{one['name']} {one['version']}", f"{rate:.1f}", f"{rate / figures['bare_positions_per_second']:.3f}",
            f"{ours['positions_per_second'] / rate:.2f}",
            f"{one['p50_ms_at_50']:.0f} / {one['p99_ms_at_50']:.0f}",
            f"{one['p50_ms_at_80']:.0f} / {one['p99_ms_at_80']:.0f}",
            f"{one['common_p50_ms']:.0f} / {one['common_p99_ms']:.0f}", f"{one['memory_mib']:.0f}",
        ])
    package = figures["reference"]
    rate = package["positions_per_second"]
    rows.append([
        f"otter-chess {package['version']}, in process", f"{rate:.1f}", f"{rate / figures['bare_positions_per_second']:.3f}",
        f"**{ours['positions_per_second'] / rate:.2f}**", "-", "-",
        f"{package['median_ms']:.0f} / {package['p99_ms']:.0f} (one caller)", f"{package['memory_mib']:.0f}",
    ])
    rows.append(["bare ONNX Runtime", f"{figures['bare_positions_per_second']:.1f}", "1", "", "", "", "", ""])
    return table(head, rows)


def overload(figures):
    head = ["", "answered in time, positions/s", "of its capacity", "refused", "late", "otherwise failed", "p99 ms of the answers"]
    return table(head, [
        [one["name"], f"{one['overload_goodput']:.1f}", f"{one['overload_goodput'] / one['positions_per_second']:.2f}",
         f"{one['overload_refused']:.0f}", f"{one['overload_late']:.0f}", f"{one['overload_failed']:.0f}",
         f"{one['overload_p99_ms']:.0f}"]
        for one in figures["servers"]
    ])


def replay(figures):
    head = ["trace", "off, positions/s", "on, positions/s", "ratio", "kept", "shared"]
    return table(head, [
        [one["trace"], f"{one['off_per_second']:,.0f}", f"{one['on_per_second']:,.0f}", f"**{one['ratio']:.2f}**",
         f"{100 * one['hits']:.1f}%", f"{100 * one['coalesced']:.1f}%"]
        for one in figures["traces"]
    ])


def rerank(figures):
    head = ["", "ms plain", "ms re-ranked", "ratio", "of it waiting for the sidecar", "of it the re-ranker"]
    return table(head, [
        [one["model"], f"{one['prior_milliseconds']:.2f}", f"{one['reranked_milliseconds']:.2f}", f"**{one['overhead_ratio']:.3f}**",
         f"{one['of_it_waiting_for_the_sidecar_milliseconds']:.2f}", f"{one['of_it_reranker_milliseconds']:.2f}"]
        for one in figures["models"]
    ])


def annotate(figures):
    head = ["decisions/s, annotate", "decisions/s, plain engine", "ratio"]
    return table(head, [[f"{figures['annotate_decisions_per_second']:.2f}", f"{figures['plain_decisions_per_second']:.2f}",
                         f"**{figures['ratio']:.3f}**"]])


def main():
    reranked, annotated = read("rerank"), read("annotate")
    measured, replayed = read("peers"), read("replay")
    text = (DOCS / "benchmarks.in.md").read_text()
    values = {
        "saturation": saturation(), "models": models(), "peers": peers(measured), "overload": overload(measured),
        "replay": replay(replayed), "games": f"{replayed['games']:,}", "peer_rounds": measured["rounds"],
        "peer_seconds": f"{measured['seconds_a_step']:.0f}", "situations": f"{measured['situations']:,}",
        "rerank": rerank(reranked), "rerank_rounds": reranked["rounds"], "annotate": annotate(annotated),
        "annotate_decisions": annotated["decisions"], "annotate_depth": annotated["depth"],
        "annotate_engine": annotated["engine"], "annotate_rounds": annotated["rounds"],
        "machine": measured["machine"], "onnxruntime": measured["onnxruntime"],
    }
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    (DOCS / "benchmarks.md").write_text(text)


if __name__ == "__main__":
    main()
