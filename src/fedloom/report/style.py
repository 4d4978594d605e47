"""The page's style sheet and its few lines of script, both inline.

A report is one file that loads nothing from elsewhere. The style and the scripts are written here
as they are sent; a backslash at the end of a line joins it to the next one.
"""

from __future__ import annotations

import base64
import hashlib

from fedloom.report.palette import DARK, LIGHT, SERIES, STEPS, rules
from fedloom.spaces import drawing as draw


def in_dark(css: str) -> str:
    """Restrict rules to screens in dark mode; paper is never dark."""
    return "@media screen and (prefers-color-scheme:dark){" + css + "}"


def line_colour(number: int) -> str:
    """Return the rules of one series: its strokes and its fills."""
    strokes = f".curve.c{number},.whisker.c{number},.ring.c{number}{{stroke:var(--c{number})}}"
    fills = f".dot.c{number},.area.c{number}{{fill:var(--c{number})}}"
    return strokes + fills


def shade_colour(level: int) -> str:
    """Return the rules of one shade of a heat map: its cells and the text on them."""
    cells = f".heat{level} rect,path.heat{level}{{fill:var(--h{level})}}"
    text = f".heat{level} text{{fill:var(--i{level})}}"
    return cells + text


LINES = "".join(map(line_colour, range(SERIES)))
SHADES = "".join(map(shade_colour, range(STEPS)))

LAYOUT = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);\
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main,header,footer{max-width:1080px;margin:0 auto;padding:0 16px}
header{padding-top:20px}header p{margin:0;color:var(--soft)}
.skip{position:absolute;left:-9999px}.skip:focus{left:16px;top:8px;background:var(--card);\
padding:6px 10px}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:8px 0 0;padding:0;\
font-size:14px}
a{color:var(--accent)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px;\
margin:16px 0}
section[hidden]{display:none}
h1{font-size:26px;line-height:1.25;margin:0 0 10px;overflow-wrap:anywhere}
h2{font-size:20px;margin:0 0 12px}h3{font-size:16px;margin:0 0 8px}
.eyebrow{margin:0;color:var(--soft);font-size:14px;overflow-wrap:anywhere}.lead{font-size:18px;\
margin:0 0 16px}
.note,figcaption{color:var(--soft);font-size:14px;margin:8px 0}
.note:last-child{margin-bottom:0}
.warning{border-left:4px solid var(--mark);padding:6px 12px;margin:0 0 16px}
.warning strong{color:var(--mark)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;\
margin:0 0 10px}
.tiles>div{border:1px solid var(--line);border-radius:10px;padding:10px 12px;min-width:0}
.tiles dt{color:var(--soft);font-size:13px}.tiles dd{margin:0}
.tiles strong{display:block;font-size:22px;line-height:1.3;font-variant-numeric:tabular-nums}
.tiles span{color:var(--soft);font-size:13px;overflow-wrap:anywhere}
progress{width:100%;height:14px;accent-color:var(--accent);margin:0 0 12px}
.grid-of-figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));\
gap:20px}
figure{margin:0;min-width:0}figure+.scroll,.grid-of-figures+.scroll{margin-top:16px}\
figure+.grid-of-figures{margin-top:24px}
.scroll{overflow-x:auto;max-width:100%;\
background:linear-gradient(to right,var(--card) 50%,transparent),\
linear-gradient(to left,var(--card) 50%,transparent) 100% 0,\
linear-gradient(to right,var(--line),transparent),\
linear-gradient(to left,var(--line),transparent) 100% 0;\
background-size:36px 100%,36px 100%,14px 100%,14px 100%;background-repeat:no-repeat;\
background-attachment:local,local,scroll,scroll}
svg.chart{max-width:100%;height:auto;display:block}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--ink)}
svg .tick,svg .name,svg .phase{fill:var(--soft)}\
svg .tick,svg .label{font-variant-numeric:tabular-nums}
svg .worst-name{fill:var(--mark);font-weight:600}
.grid{stroke:var(--line);stroke-width:1;fill:none}.axis{stroke:var(--soft);stroke-width:1;fill:none}
.cut{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 4;fill:none}.band{fill:var(--band)}
.curve{fill:none;stroke-width:2.2;stroke-linejoin:round}.whisker{fill:none;stroke-width:1.6}
.ring{fill:none;stroke-width:2}.area{opacity:.22}
.level{fill:none;stroke:var(--soft);stroke-width:1.8;stroke-dasharray:1.5 4;stroke-linecap:round}
.dot.mark{fill:var(--mark)}.whisker.mark{stroke:var(--mark)}
.speck{fill:none;stroke:var(--soft);stroke-width:4;stroke-linecap:round;opacity:.5}
.speck.fine{stroke-width:2.5}
.lost{fill:var(--card);stroke:var(--mark);stroke-width:1.6;stroke-dasharray:4 2}
.idle{fill:var(--soft)}.piece{stroke:var(--card);stroke-width:1}
svg .on-piece{fill:var(--card)}svg .small{font-size:11px}
svg.timeline{max-width:none}
.framed{stroke:var(--ink);stroke-width:1.6}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;list-style:none;margin:6px 0 0;padding:0;\
font-size:14px}
.swatch{margin-right:6px;vertical-align:middle}
table{border-collapse:collapse;font-size:14px}
th,td{padding:5px 10px;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
thead th{color:var(--soft);font-weight:600;white-space:nowrap}
tbody th{font-weight:600;white-space:nowrap;max-width:22em;overflow:hidden;text-overflow:ellipsis}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.off{display:none}
#decisions tbody th,table[data-sorted] thead th{white-space:normal}
table[data-sorted] thead th{vertical-align:bottom}
tr.best th,tr.best td{font-weight:700;background:var(--band)}
th button.by{border:0;background:none;padding:0;color:inherit;font-weight:600;text-align:inherit}
th[aria-sort] button.by::after{content:" \\25BE"}
th[aria-sort=ascending] button.by::after{content:" \\25B4"}
input.filter{font:inherit;font-size:14px;color:var(--ink);background:var(--ground);\
border:1px solid var(--soft);border-radius:8px;padding:4px 10px;margin:0 0 8px;max-width:100%}
.pages{display:flex;gap:10px;align-items:center;font-size:14px;margin:8px 0}
button{font:inherit;color:var(--ink);background:var(--ground);border:1px solid var(--soft);\
border-radius:8px;
padding:4px 12px;cursor:pointer}button:disabled{opacity:.5;cursor:default}
details{border-top:1px solid var(--line);margin-top:8px;padding-top:8px}
summary{cursor:pointer;overflow-wrap:anywhere}\
figure summary,details details summary{color:var(--soft);font-size:14px}
.pill{border:1px solid var(--line);border-radius:99px;padding:1px 9px;font-size:13px;\
color:var(--soft);
white-space:nowrap}
pre{background:var(--ground);border:1px solid var(--line);border-radius:8px;padding:10px 12px;\
overflow-x:auto;
white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0;
font:13px/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
footer{color:var(--soft);font-size:13px;padding-bottom:32px}
.marked rect{stroke-width:3;stroke-dasharray:6 3}
.fl-cell .marked .op rect{stroke:var(--mark)}
.fl-cell text{font:12px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
pre.cells{white-space:pre}
.fl-cell .label{text-anchor:middle}.fl-cell .heading{font-weight:bold}
.fl-cell .edge{fill:none;stroke-width:1.5}
.live{display:inline-block;border:1px solid var(--accent);color:var(--accent);border-radius:99px;\
padding:0 10px;
font-size:13px}
svg.chart:not(.heat,.wide,.timeline){width:100%}
@media (min-width:900px){svg.fits{max-width:100%;height:auto}
:is(section>figure:has(svg.chart:not(.heat,.wide,.timeline)),\
.grid-of-figures>figure:last-child:nth-child(odd)){grid-column:1/-1;display:grid;\
grid-template:auto auto 1fr/5fr 3fr;column-gap:28px;\
>h3{grid-column:1/-1}>.scroll{grid-column:1;grid-row:2/4}>:not(h3,.scroll){grid-column:2}}}
@media (max-width:600px){section{padding:14px}main,header,footer{padding-left:10px;\
padding-right:10px}
h1{font-size:22px}.lead{font-size:16px}.tiles{grid-template-columns:repeat(auto-fit,minmax(130px,\
1fr))}
table[data-sorted],table[data-sorted] :is(tbody,tr,th,td){display:block}
table[data-sorted] thead tr{display:flex;flex-wrap:wrap}
table[data-sorted] thead th{padding:3px 6px;border:0;text-align:left}
table[data-sorted] tbody tr{border-bottom:1px solid var(--line);padding:6px 0}
table[data-sorted] tbody :is(th,td){border:0;padding:2px 6px;white-space:normal;max-width:none}
table[data-sorted] td{display:flex;justify-content:space-between;gap:12px}
table[data-sorted] td::before{content:attr(data-name);color:var(--soft);font-weight:400}
table[data-sorted] tr.off{display:none}
#use :is(th,td){white-space:normal;padding:4px 3px;font-size:13px}
svg.chart text{font-size:15px}svg.heat,svg.wide{max-width:none}\
svg.heat text,svg.wide text,svg.timeline text{font-size:12px}svg.timeline .small{font-size:11px}}
@media print{body{font-size:11pt;background:#fff}section{border:0;padding:6px 0;\
break-inside:auto;margin:0}
figure,.tiles,tr{break-inside:avoid}h2,h3,summary{break-after:avoid}\
nav,.pages,.skip,details:not(.printed),.live{display:none}
.off{display:table-row}.scroll{overflow:visible}main,header,footer{max-width:none}}
"""

COLOURS = rules(LIGHT) + in_dark(rules(DARK))
DRAWINGS = draw.LIGHT + in_dark(draw.DARK)
STYLE = COLOURS + LAYOUT + LINES + SHADES + DRAWINGS

PAGES = """
const turned=new Map();
function pages(root){for(const table of root.querySelectorAll("table[data-rows]")){
if(table.dataset.ready)continue;table.dataset.ready="1";
const size=+table.dataset.rows,rows=[...table.tBodies[0].rows],last=Math.ceil(rows.length/size)-1;
const box=table.closest(".scroll"),key=box.getAttribute("aria-label");
const bar=document.createElement("div");bar.className="pages";
const back=document.createElement("button"),on=document.createElement("button"),\
where=document.createElement("span");
back.type=on.type="button";back.textContent="Previous";on.textContent="Next";\
where.setAttribute("aria-live","polite");
bar.append(back,where,on);box.after(bar);
let page=Math.min(turned.get(key)||0,last);
const show=()=>{turned.set(key,page);rows.forEach((row,k)=>row.classList.toggle("off",\
Math.floor(k/size)!==page));
where.textContent=(page*size+1)+" to "+Math.min(rows.length,(page+1)*size)+" of "+rows.length;
back.disabled=page===0;on.disabled=page===last};
back.onclick=()=>{page--;show()};on.onclick=()=>{page++;show()};show()}}
const chosen=new Map();
function sorts(root){for(const table of root.querySelectorAll("table[data-sorted]")){
if(table.dataset.ready)continue;table.dataset.ready="1";
const body=table.tBodies[0],rows=[...body.rows],heads=[...table.tHead.rows[0].cells];
const box=table.closest(".scroll"),key=box.getAttribute("aria-label");
const look=document.createElement("input");look.type="search";look.className="filter";
look.placeholder="Filter";look.setAttribute("aria-label","Filter the "+key);box.before(look);
const at=chosen.get(key)||{column:-1,up:false,words:""};chosen.set(key,at);look.value=at.words;
const value=(row,k)=>{const cell=row.cells[k];return k===0?cell.textContent:\
cell.dataset.value===undefined?null:+cell.dataset.value};
const order=(a,b)=>{const x=value(a,at.column),y=value(b,at.column);
if(x===null||y===null)return (x===null)-(y===null);
const d=typeof x==="string"?x.localeCompare(y):x-y;return at.up?d:-d};
const show=()=>{heads.forEach((head,k)=>{if(k===at.column)head.setAttribute("aria-sort",\
at.up?"ascending":"descending");else head.removeAttribute("aria-sort")});
if(at.column>=0)body.append(...[...rows].sort(order));
for(const row of rows)row.classList.toggle("off",\
!row.textContent.toLowerCase().includes(at.words.toLowerCase()))};
heads.forEach((head,k)=>{const by=document.createElement("button");by.type="button";\
by.className="by";by.textContent=head.textContent;head.replaceChildren(by);
by.onclick=()=>{at.up=at.column===k?!at.up:k===0;at.column=k;show()}});
look.oninput=()=>{at.words=look.value;show()};show()}}
function dress(root){pages(root);sorts(root)}
dress(document);
addEventListener("beforeprint",()=>document.querySelectorAll("details.printed").forEach(d=>{
d.dataset.was=d.open?"1":"";d.open=true}));
addEventListener("afterprint",()=>document.querySelectorAll("details.printed").forEach(d=>{\
d.open=!!d.dataset.was}));
"""

LIVE = """
let version="",failed=0;
async function look(){let ended=false;
try{const answer=await fetch("state?version="+encodeURIComponent(version),{cache:"no-store"});
if(!answer.ok)throw new Error(answer.status);
const state=await answer.json();failed=0;ended=state.ended;
if(state.version!==version){version=state.version;
for(const [key,html] of Object.entries(state.sections))put(key,html);
document.title=state.title;dress(document)}
say(state.standing)}catch(error){if(++failed>2){say("closed");return}}
if(!ended)setTimeout(look,1000)}
function put(key,html){const old=document.getElementById(key);\
if(!old||old.dataset.html===html)return;
const box=document.createElement("template");box.innerHTML=html;\
const fresh=box.content.firstElementChild;
const seen=new Map();for(const d of old.querySelectorAll("details[data-key]"))\
seen.set(d.dataset.key,d.open);
for(const d of fresh.querySelectorAll("details[data-key]"))if(seen.has(d.dataset.key))\
d.open=seen.get(d.dataset.key);
const name=s=>s.getAttribute("aria-label");
const moved=new Map();for(const s of old.querySelectorAll(".scroll"))moved.set(name(s),\
s.scrollLeft);
const at=document.activeElement&&old.contains(document.activeElement)\
?document.activeElement.closest("[data-key]"):null;
old.replaceWith(fresh);fresh.dataset.html=html;
for(const s of fresh.querySelectorAll(".scroll"))s.scrollLeft=moved.get(name(s))||0;
if(at){const now=fresh.querySelector("[data-key='"+CSS.escape(at.dataset.key)+"'] summary");\
if(now)now.focus()}}
function say(standing){const words={running:"live",finished:"finished",stopped:"stopped",\
closed:"no longer served"};
const place=document.getElementById("standing");\
if(place)place.textContent=words[standing]||standing}
look();
"""


def digest(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an inline script or style."""
    checksum = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(checksum).decode()}'"


def policy(script: str, *, live: bool) -> str:
    """Return a policy that allows only what is in the page; a live page may ask its own server."""
    connections = "'none'"
    if live:
        connections = "'self'"
    directives = (
        "default-src 'none'",
        f"style-src {digest(STYLE)}",
        f"script-src {digest(script)}",
        f"connect-src {connections}",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(directives)
