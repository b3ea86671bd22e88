// The style sheet of the HTML page.
#pragma once

namespace lockstep {

inline constexpr const char* kHtmlStyle = R"css(
:root { --ink: #1c2430; --soft: #5d6878; --line: #d9dee6; --back: #ffffff; --panel: #f6f7f9; --good: #1a7f4b;
  --bad: #c2282d; --warn: #b06a00; --even: #b9d0ec; --odd: #d9e5f4; --marked: #f2c66d; --pad: #eceff3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #9aa5b4; --line: #353d49; --back: #15191f; --panel: #1d232b; --good: #4fc587;
    --bad: #ff7b7f; --warn: #e5a84b; --even: #36577f; --odd: #294058; --marked: #8a6516; --pad: #232a33; }
}
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); }
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
article { margin: 0 0 20px; padding: 16px 18px; border: 1px solid var(--line); border-left: 4px solid var(--bad);
  border-radius: 6px; background: var(--panel); }
.badge { display: inline-block; padding: 0 8px; border-radius: 9px; font-size: 12px; line-height: 18px;
  color: var(--back); background: var(--soft); white-space: nowrap; }
.badge.holds { background: var(--good); }
.badge.violated { background: var(--bad); }
.badge.broken, .badge.gave_up { background: var(--warn); }
.reason { margin: 0 0 8px; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
.place th { padding: 1px 18px 1px 0; text-align: left; font-weight: normal; color: var(--soft); }
.place td { padding: 1px 0; font-family: ui-monospace, monospace; font-size: 14px; overflow-wrap: anywhere; }
.results, .traits { width: 100%; font-size: 14px; }
.results th, .traits th { padding: 4px 10px 4px 0; text-align: left; color: var(--soft); font-weight: normal;
  border-bottom: 1px solid var(--line); }
.results td, .traits td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.results td:last-child { max-width: 380px; }
.n { text-align: right !important; font-variant-numeric: tabular-nums; }
td .reason { margin: 0; }
details summary { color: var(--soft); cursor: pointer; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); gap: 0 14px; margin: 4px 0; }
dl div { display: flex; justify-content: space-between; }
dt { color: var(--soft); }
dd { margin: 0; font-variant-numeric: tabular-nums; }
pre { margin: 0; padding: 8px 10px; border: 1px solid var(--line); border-radius: 4px; background: var(--back);
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
@media print { article { break-inside: avoid; } }
)css";

}  // namespace lockstep
