"""The style of a page, and the script that sorts its tables; the page reads well without it."""

STYLE = """
:root{color-scheme:light dark;--ground:#fbfbf9;--card:#fff;--text:#1c2024;--weak:#656d76;--line:#e3e5e1;
--main:#0b7a59;--soft:#0b7a5930;--bad:#c8323c;--warn:#b7791f;--mark:#6f5bd0;--cold:#4a7fb5;--grey:#aab2b8}
@media (prefers-color-scheme:dark){:root{--ground:#14171a;--card:#1c2024;--text:#e6e8ea;--weak:#98a1a9;
--line:#30363c;--main:#3dbb8d;--soft:#3dbb8d38;--bad:#f0686f;--warn:#e0a848;--mark:#9f8ff0;--cold:#78aee0;
--grey:#626b73}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1060px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:44px 0 4px}
h3{font-size:15px;margin:0}
p{margin:4px 0;max-width:46em}
.weak,.facts,small{color:var(--weak)}
.facts{max-width:none}
.facts span:not(:last-child)::after{content:" · "}
.facts code,pre,code,td.name{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",
monospace;font-size:13px}
.facts code{overflow-wrap:anywhere}
.verdict{margin:24px 0 20px;padding:0;list-style:none;border-left:4px solid var(--main);padding-left:16px;
font-size:17px}
.verdict.bad{border-color:var(--bad)}.verdict.warn{border-color:var(--warn)}
.verdict li:first-child{font-size:21px;font-weight:600;line-height:1.35}
.verdict li+li{margin-top:4px}
.verdict .good{color:var(--weak)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:10px;margin:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.tiles dt{color:var(--weak);font-size:13px}
.tiles dd{margin:0;font-size:21px;font-weight:600;white-space:nowrap}
.tiles .bad dd{color:var(--bad)}.tiles .warn dd{color:var(--warn)}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:16px;margin-top:12px}
svg{display:block;width:100%;overflow:hidden}
svg path,svg rect{vector-effect:non-scaling-stroke}
.time{padding-top:2px}
.lane{position:relative;margin-bottom:12px}
.lane svg{height:88px;border-bottom:1px solid var(--line)}
.lane p{display:flex;justify-content:space-between;gap:12px;margin:0 0 3px;max-width:none;font-size:12px;
line-height:1.3;
color:var(--weak)}
.lane b{font-weight:500}
.lane.low svg{height:22px}
.lane.low{margin-top:-4px}
.no{position:absolute;top:1px;transform:translateX(-50%);min-width:18px;height:18px;padding:0 5px;
border-radius:9px;
background:var(--bad);color:var(--card)!important;font-size:11px;font-weight:700;line-height:18px;
text-align:center;
text-decoration:none;display:inline-block}
h3 .no{position:static;transform:none;margin-right:8px;vertical-align:2px}
.axis{position:relative;height:18px;font-size:12px;color:var(--weak)}
.axis span{position:absolute;transform:translateX(-50%);white-space:nowrap;line-height:1.4}
.axis .first{transform:none}.axis .last{transform:translateX(-100%)}
.busy{fill:var(--main);opacity:.8}.in{fill:var(--cold);opacity:.75}.out{fill:var(--main);opacity:.6}
.grid{stroke:var(--line);fill:none}
.quick{fill:var(--main)}.slow{fill:var(--warn)}.blocked{fill:var(--bad)}
.stall-back{fill:var(--bad);opacity:.16}
.collected{fill:var(--mark);opacity:.8}.marked{fill:var(--text)}
.key{font-size:13px;color:var(--weak);margin-top:8px;display:flex;flex-wrap:wrap;gap:4px 16px;
max-width:none}
.key i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:12px;
margin-top:12px}
.grid2 .card{margin:0}
svg.hist{height:110px;border-bottom:1px solid var(--line);margin-top:8px}
.bar{fill:var(--main);opacity:.75}.bar:hover{opacity:1}
.mark{stroke:var(--cold);stroke-width:1.5;stroke-dasharray:3 3;fill:none}.mark.max{stroke:var(--bad)}
.marks{display:flex;flex-wrap:wrap;gap:0 18px;margin:4px 0 0;font-size:13px;color:var(--weak)}
.marks b{color:var(--text);font-weight:600}
svg.shares{height:12px;border-radius:6px;margin:10px 0 0;background:var(--line)}
.running{fill:var(--warn);background:var(--warn)}.asleep{fill:var(--cold);background:var(--cold)}
.starved{fill:var(--grey);background:var(--grey)}.gc{fill:var(--mark);background:var(--mark)}
.stall h3{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 10px}
.stall h3 .took{margin-left:auto;color:var(--bad)}
pre{margin:10px 0 0;padding:10px 12px;background:var(--ground);border-radius:6px;overflow-x:auto;
line-height:1.45}
pre .far{color:var(--weak)}
pre b{color:var(--bad)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
tr:last-child td{border-bottom:0}
th{color:var(--weak);font-weight:500;font-size:13px}
th:first-child,td:first-child{text-align:left;padding-left:0}
th:last-child,td:last-child{padding-right:0}
th[data-sorts]{cursor:pointer}
th[aria-sort]::after{content:" ↓"}
td.name{white-space:normal;overflow-wrap:anywhere;min-width:11em}
td.text,th.text{text-align:left}
td.part{width:22%;min-width:60px}
td.part svg{height:9px;border-radius:2px}
details summary{cursor:pointer;color:var(--weak);font-size:13px;margin-top:8px}
footer{margin-top:48px;color:var(--weak);font-size:13px}
@media (max-width:560px){main{padding:20px 14px 40px}h1{font-size:23px}
.verdict li:first-child{font-size:18px}
.card{padding:12px}.axis span:nth-last-child(even){display:none}.tiles dd{font-size:18px}
td.part,th.part,td.less,th.less{display:none}th,td{padding:5px 5px;font-size:14px}
td.name{min-width:7em;font-size:12px}}
@media print{:root{--ground:#fff;--card:#fff;--text:#000;--weak:#555;--line:#ccc;--main:#0b7a59;
--bad:#b3202b;
--warn:#96610f;--cold:#33689c;--mark:#5a46bb;--grey:#999}main{padding:0;max-width:none}body{font-size:11px}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
.card:not(.scroll),.tiles div,tr{break-inside:avoid}h2,h2+p{break-after:avoid}
.grid2{grid-template-columns:1fr 1fr}.tiles{grid-template-columns:repeat(6,1fr)}.tiles dd{font-size:16px}
pre{white-space:pre-wrap}}
"""

SCRIPT = """
for(const head of document.querySelectorAll('th[data-sorts]'))head.onclick=()=>{
const table=head.closest('table'),place=[...head.parentNode.children].indexOf(head);
const rows=[...table.tBodies[0].rows];
const value=row=>row.cells[place].dataset.value;
const texts=head.dataset.sorts==='text';
rows.sort((a,b)=>texts?value(a).localeCompare(value(b)):value(b)-value(a));
table.tBodies[0].append(...rows);
for(const other of head.parentNode.children)other.removeAttribute('aria-sort');
head.setAttribute('aria-sort',texts?'ascending':'descending')}
"""
