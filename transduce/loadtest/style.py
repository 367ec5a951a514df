"""The style sheet and the page template of the HTML reports. They use system fonts and load nothing from elsewhere."""

STYLE = """
:root{--bg:#f6f7f9;--card:#fff;--ink:#1b2230;--soft:#5d6778;--line:#e3e6eb;--grid:#eceef2;--good:#0b7a53;--bad:#c02626;
--odd:#a85b00;--c0:#2458d3;--c1:#d97706;--c2:#0b8f6a;--c3:#b4338a;--c4:#6d4bd1;--c5:#0e86a8;--c6:#7c6f1d;--c7:#8a8f98;
--bar:#8fb0f0}
@media(prefers-color-scheme:dark){:root{--bg:#12151b;--card:#1a1f28;--ink:#e8ebf1;--soft:#9aa5b8;--line:#2b323e;
--grid:#252b36;--good:#3ccb94;--bad:#ff7b7b;--odd:#f2b04e;--c0:#7aa5ff;--c1:#f2b04e;--c2:#4fd3a6;--c3:#f08bce;
--c4:#b09cff;--c5:#63cbe8;--c6:#d6c35c;--c7:#9aa5b8;--bar:#3d5a99}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:24px;margin:0 0 4px;line-height:1.25}
h2{font-size:16px;margin:0 0 10px}
p{margin:0 0 10px}
.soft{color:var(--soft)}
.verdict{display:inline-block;padding:2px 12px;border-radius:99px;color:#fff;font-weight:600;font-size:13px;
letter-spacing:.04em;vertical-align:4px;margin-left:10px;text-transform:uppercase}
.passed{background:#0b7a53}.missed,.failed{background:#c02626}.invalid{background:#a85b00}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(140px,1fr));gap:12px;margin:18px 0}
.card,section{background:var(--card);border:1px solid var(--line);border-radius:10px}
.card{padding:12px 14px}
.card b{display:block;font-size:23px;line-height:1.25;font-weight:650;font-variant-numeric:tabular-nums}
.card b small{font-size:13px;font-weight:500;color:var(--soft)}
.card span{color:var(--soft);font-size:13px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px;margin:0 0 14px}
section{padding:16px 18px;margin:0 0 14px;min-width:0}
.pair section{margin:0}
section p:last-child{margin:0}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
.wide{overflow-x:auto}
th,td{padding:5px 10px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:550;white-space:normal;vertical-align:bottom}
th:first-child,td:first-child{text-align:left;padding-left:0}
th.text,td.text{text-align:left;white-space:normal}
td.text{overflow-wrap:anywhere}
th.text{vertical-align:top;min-width:110px}
tr:last-child>*{border-bottom:0}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}.odd{color:var(--odd);font-weight:600}
.problem{border-color:var(--odd);border-left:5px solid var(--odd)}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
svg{width:100%;height:auto;display:block}
svg text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--soft)}
svg .label{fill:var(--ink)}
svg .note{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:13px;color:var(--soft);margin:0 0 6px}
.legend span{overflow-wrap:anywhere}
.legend i{display:inline-block;width:16px;margin-right:7px;vertical-align:4px;border-top:2.5px solid var(--c)}
.legend i.dash{border-top-style:dashed}
.grid{stroke:var(--grid)}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
.dashed{stroke-dasharray:5 4}
.mark{fill:var(--c);stroke:var(--card);stroke-width:1.5}
.mark.hollow{fill:var(--card);stroke:var(--c);stroke-width:2}
.strip{display:flex;height:26px;gap:1px;margin:0 0 10px;border-radius:4px;overflow:hidden}
.strip i{background:var(--c);min-width:1px}
.strip+.legend i{border-top-width:10px;vertical-align:-1px;width:10px}
.sweep{max-width:720px}
.bar{fill:var(--bar)}
.guide{stroke:var(--bad);stroke-dasharray:3 4;stroke-width:1.5}
@media(max-width:600px){main{padding:18px 10px 40px}section{padding:14px 12px}.verdict{margin-left:6px}
h1{font-size:20px;overflow-wrap:anywhere}svg text{font-size:18px}.card b{font-size:20px}}
""" + "".join(f".c{number}{{--c:var(--c{number})}}" for number in range(8))

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title><style>{style}</style></head>
<body><main>{body}</main></body></html>
"""
