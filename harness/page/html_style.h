// The style sheet of the HTML page.
#pragma once

namespace lockstep {

inline constexpr const char* kHtmlStyle = R"css(
:root { --ink: #1c2430; --soft: #5d6878; --line: #d9dee6; --back: #ffffff; --panel: #f6f7f9;
  --good: #1a7f4b;
  --bad: #c2282d; --warn: #b06a00; --even: #b9d0ec; --odd: #d9e5f4; --marked: #f2c66d;
  --pad: #eceff3; --first: #2f6fbd; --second: #b06a00; --line-a: #2f6fbd; --line-b: #b06a00;
  --line-c: #1a7f4b; --line-d: #7a4fb5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #9aa5b4; --line: #353d49; --back: #15191f; --panel: #1d232b;
  --good: #4fc587;
    --bad: #ff7b7f; --warn: #e5a84b; --even: #36577f; --odd: #294058; --marked: #8a6516;
    --pad: #2a323d; --first: #6aa7ee; --second: #e5a84b; --line-a: #6aa7ee; --line-b: #e5a84b;
    --line-c: #4fc587; --line-d: #b497e6; }
}
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--back); }
header, main { max-width: 1120px; margin: 0 auto; padding: 0 24px; }
header { border-bottom: 4px solid var(--good); padding-top: 20px; padding-bottom: 12px; }
header.failed { border-color: var(--bad); }
h1 { margin: 0; font-size: 26px; }
h2 { margin: 32px 0 12px; font-size: 20px; }
h3 { margin: 0 0 6px; font-size: 17px; overflow-wrap: anywhere; }
h4 { margin: 14px 0 4px; font-size: 14px; color: var(--soft); }
small, .device, .note { color: var(--soft); font-weight: normal; }
small { font-size: 60%; }
h3 small { font-size: 80%; }
.device { margin: 2px 0 10px; }
.counts { display: flex; flex-wrap: wrap; gap: 8px 26px; margin: 0; padding: 0; list-style: none; }
.counts b { font-size: 22px; font-variant-numeric: tabular-nums; }
.counts .held b { color: var(--good); }
.counts .violated b { color: var(--bad); }
.counts .broken b, .counts .gave_up b { color: var(--warn); }
.counts .none b { color: var(--soft); }
article { margin: 0 0 20px; padding: 16px 18px; border: 1px solid var(--line);
  border-left: 4px solid var(--bad);
  border-radius: 6px; background: var(--panel); }
.badge { display: inline-block; padding: 0 8px; border-radius: 9px; font-size: 12px;
  line-height: 18px;
  color: var(--back); background: var(--soft); white-space: nowrap; }
.badge.holds { background: var(--good); }
.badge.violated { background: var(--bad); }
.badge.broken, .badge.gave_up { background: var(--warn); }
.reason { margin: 0 0 8px; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
.place th { padding: 1px 18px 1px 0; text-align: left; font-weight: normal; color: var(--soft); }
.place td { padding: 1px 0; font-family: ui-monospace, monospace; font-size: 14px;
  overflow-wrap: anywhere; }
.results, .traits { width: 100%; font-size: 14px; }
.results th, .traits th { padding: 4px 10px 4px 0; text-align: left; color: var(--soft);
  font-weight: normal;
  border-bottom: 1px solid var(--line); }
.results td, .traits td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
.results td:last-child { max-width: 380px; }
.n { text-align: right !important; font-variant-numeric: tabular-nums; }
td .reason { margin: 0; }
details summary { color: var(--soft); cursor: pointer; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); gap: 0 14px;
  margin: 4px 0; }
dl div { display: flex; justify-content: space-between; }
dt { color: var(--soft); }
dd { margin: 0; font-variant-numeric: tabular-nums; }
pre { margin: 0; padding: 8px 10px; border: 1px solid var(--line); border-radius: 4px;
  background: var(--back);
  font-size: 13px; white-space: pre-wrap; overflow-wrap: anywhere; user-select: all; }
a { color: inherit; }
.bar { display: inline-block; height: 10px; border-radius: 2px; background: var(--even); }
.never { color: var(--warn); }
.pairs { columns: 3; padding-left: 18px; font-size: 14px; }
svg.pack { display: block; width: 100%; margin-top: 10px; font: 12px system-ui, sans-serif; }
svg text { fill: var(--soft); }
svg text.number { fill: var(--ink); text-anchor: middle; font-size: 11px; }
svg text.here { fill: var(--ink); font-weight: bold; }
svg text.end { text-anchor: end; }
svg rect { stroke: var(--back); stroke-width: 1; }
svg .padding { fill: var(--pad); }
svg .gap { fill: var(--pad); stroke: var(--line); stroke-dasharray: 2 2; }
svg .even { fill: var(--even); }
svg .odd { fill: var(--odd); }
svg .doc.marked { fill: var(--marked); }
svg .empty { fill: var(--soft); stroke: none; }
svg .differs { stroke: var(--bad); stroke-width: 2.5; fill: var(--marked); }
svg path.marker { fill: var(--bad); }
svg line.marker { stroke: var(--bad); stroke-width: 2; }
.facts { display: block; margin: 12px 0 0; font-size: 13px; }
.facts div { display: flex; justify-content: flex-start; gap: 14px; }
.facts dt { flex: 0 0 72px; }
.facts dd { overflow-wrap: anywhere; min-width: 0; }
.wide { overflow-x: auto; }
.filter { display: flex; flex-wrap: wrap; gap: 8px 18px; align-items: center; margin: 18px 0 0;
  padding: 10px 14px;
  border: 1px solid var(--line); border-radius: 6px; background: var(--panel); font-size: 14px;
  position: sticky; top: 0;
  z-index: 1; }
.filter[hidden], [data-verdict][hidden] { display: none; }
.filter label:first-child { flex: 1 1 260px; display: flex; gap: 8px; align-items: center; }
.filter input[type=search] { flex: 1; min-width: 120px; padding: 4px 8px; font: inherit;
  color: inherit;
  background: var(--back); border: 1px solid var(--line); border-radius: 4px; }
.filter output { color: var(--soft); font-variant-numeric: tabular-nums; }
.copied { position: relative; margin: 4px 0; }
.copied pre { padding-right: 76px; }
button.copy { position: absolute; top: 5px; right: 5px; padding: 1px 10px; font: inherit;
  font-size: 12px; color: var(--soft);
  background: var(--panel); border: 1px solid var(--line); border-radius: 4px; cursor: pointer; }
button.copy:hover { color: var(--ink); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 20px; margin: 0 0 14px; padding: 0;
  list-style: none; font-size: 13px;
  color: var(--soft); }
.swatch { display: inline-block; width: 14px; height: 12px; margin-right: 6px;
  vertical-align: -1px; border-radius: 2px;
  border: 1px solid transparent; }
.swatch.even { background: var(--even); }
.swatch.odd { background: var(--odd); }
.swatch.marked { background: var(--marked); }
.swatch.gap { background: var(--pad); border: 1px dashed var(--soft); }
.swatch.empty { width: 3px; background: var(--soft); }
.swatch.earlier { border: 2px solid var(--first); }
.swatch.later { border: 2px solid var(--second); }
.swatch.both { background: var(--bad); }
.swatch.missing { height: 0; border: 0; border-top: 2px dashed var(--bad); vertical-align: 3px; }
.swatch.a { background: var(--line-a); }
.swatch.b { background: var(--line-b); }
.swatch.c { background: var(--line-c); }
.swatch.d { background: var(--line-d); }
.against { border-bottom: 1px solid var(--line); padding-bottom: 18px; }
h3 + .wide { margin-top: 4px; }
.against h3 { margin-top: 16px; }
.against .newly_failing b, .against .other_failure b { color: var(--bad); }
.against .mended b { color: var(--good); }
details { margin: 8px 0 0; }
td details { margin: 0; }
svg.hazard { display: block; width: 100%; max-width: 760px; margin: 10px 0; font: 12px system-ui,
  sans-serif; }
svg .access { fill: var(--back); stroke: var(--soft); stroke-width: 2; }
svg .access.earlier { stroke: var(--first); }
svg .access.later { stroke: var(--second); }
svg text.work { fill: var(--ink); font-weight: bold; }
svg text.middle { text-anchor: middle; }
svg .lane { stroke: var(--line); stroke-width: 2; }
svg .edge.missing { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 7 5; }
svg .arrow { fill: var(--bad); }
svg text.missing { fill: var(--bad); }
svg .event { fill: var(--back); stroke: var(--first); stroke-width: 2; }
svg .memory { fill: var(--pad); stroke: none; }
svg .bytes { stroke: none; }
svg .bytes.earlier { fill: var(--first); }
svg .bytes.later { fill: var(--second); }
svg .bytes.both { fill: var(--bad); }
svg.chart { display: block; width: 100%; max-width: 820px; margin: 10px 0; font: 12px system-ui,
  sans-serif; }
svg .axis { stroke: var(--soft); }
svg .grid { stroke: var(--line); }
svg .column { fill: var(--even); stroke: none; }
svg .column.beside { fill: var(--marked); }
svg path.curve { fill: none; stroke-width: 2; }
svg path.curve.a, svg line.curve.a { stroke: var(--line-a); }
svg path.curve.b, svg line.curve.b { stroke: var(--line-b); }
svg path.curve.c, svg line.curve.c { stroke: var(--line-c); }
svg path.curve.d, svg line.curve.d { stroke: var(--line-d); }
svg .dot.a { fill: var(--line-a); }
svg .dot.b { fill: var(--line-b); }
svg .dot.c { fill: var(--line-c); }
svg .dot.d { fill: var(--line-d); }
svg.timeline { display: block; width: 100%; margin: 10px 0; font: 12px system-ui, sans-serif; }
svg .op { fill: var(--even); stroke: none; }
svg .op.replayed { fill: var(--odd); }
svg .copy { fill: var(--marked); stroke: none; }
svg .exchange { fill: var(--line-c); stroke: none; }
section > pre { overflow-x: auto; white-space: pre; user-select: auto; }
svg .chosen { stroke: var(--good); stroke-width: 2; stroke-dasharray: 5 4; }
svg text.chosen { fill: var(--good); stroke: none; }
@media (max-width: 700px) {
  header, main { padding-left: 14px; padding-right: 14px; }
  article { padding: 12px; }
  svg.pack, svg.timeline { font-size: 17px; }
  svg.chart { font-size: 16px; }
  svg.pack text.number { font-size: 16px; }
  .pairs { columns: 1; }
}
@media print { .filter, button.copy { display: none; } }
@media print { article { break-inside: avoid; } }
)css";

}  // namespace lockstep
