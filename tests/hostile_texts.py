"""Texts that try to run, load or cover something in a page."""

HOSTILE = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'>",
    "<svg onload='window.hurt = 1'><script>window.hurt = 1</script></svg>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.hurt=1>",
    (
        "[click](javascript:window.hurt=1) <javascript:alert(1)> "
        "[data](data:text/html;base64,PHNjcmlwdD4=)"
    ),
    "![shot](http://127.0.0.1:9/pixel.png) ![x](javascript:window.hurt=1)",
    "[ref]\n\n[ref]: javascript:window.hurt=1 'x\" onmouseover=window.hurt=1'",
    (
        "<style>* { display: none !important }</style><div "
        "style='position:fixed;inset:0;z-index:99999'>over</div>"
    ),
    "<iframe src='http://127.0.0.1:9'></iframe><object data=x></object><base href='http://127.0.0.1:9'>",
    "</script><script>window.hurt = 1</script><!-- <script> \u2028 alert(1) \u2029",
    "</div></div></table></td><p><b><i>never closed <h1",
    "```html onload=x\n</code></pre><script>window.hurt = 1</script>\n```",
    "`</code><script>window.hurt=1</script>`",
    (
        "$\\href{javascript:window.hurt=1}{x}$ "
        "$$\\require{html}\\style{position:fixed}{x}$$ \\(y\\)"
    ),
    "".join(map(chr, range(32))) + "\x7f\x85\x9b",
    "right \u202eto left\u2066 and \u200f marks \ufeff&#x202e;&#0;&#x1b;",
    "half a pair \ud800 and \udfff",
    "&lt;script&gt;window.hurt=1&lt;/script&gt; &amp;lt;b&amp;gt;",
    (
        "<a href='javascript:window.hurt=1' id='jp-main-dock-panel' class='jp-Dialog' "
        "name='body'>x</a>"
    ),
    "Z\u0351\u036b\u0343" * 50 + "a" * 5000,
    "> " * 500 + "deep",
    "[" * 5000 + "](" * 5000,
    "A sentence of many words. " * 40_000,
]
HOSTILE_FORMULAS = [
    r"\text{<script>window.hurt=1</script>}",
    (
        r"\text{<img src=x onerror=window.hurt=1>} \text{</mtext></math><svg "
        r"onload=window.hurt=1>}"
    ),
    r"\href{javascript:window.hurt=1}{click} \url{javascript:window.hurt=1}",
    (
        r"\style{position:fixed;inset:0}{over} \class{jp-Dialog}{x} "
        r"\cssId{jp-main-dock-panel}{x}"
    ),
    r"\color{red' onmouseover='window.hurt=1}{x} \hspace{-999em} \mathrm{<b>}",
    r"\begin{array}{c' onclick='window.hurt=1} a \end{array}",
    r"\text{&lt;script&gt;} \unicode{x3cscript} \char60 \html{<i>}",
    (
        r"<annotation-xml "
        r"encoding='text/html'><script>window.hurt=1</script></annotation-xml>"
    ),
]
HOSTILE += [
    form.replace("X", formula)
    for formula in HOSTILE_FORMULAS
    for form in ("$X$", "\\(X\\)", "\\[\nX\n\\]")
]
HOSTILE += [f"[x]({formula}) ![${formula}$](y)" for formula in HOSTILE_FORMULAS[:7]]
"""Texts that no page, report or terminal may obey."""

SLOW = [
    "$x$ " * 900,
    "\\(" * 7000,
    "$" * 20_000,
    "\\begin{align}" * 1400,
    "$" + "{" * 1900 + "}" * 1900 + "$",
    "$x" + "^{x" * 600 + "}" * 600 + "$",
    "".join("`" * k + " " for k in range(190)),
    "\\(" + "\\left(" * 250 + "\\)",
    "\n\n".join(["a"] * 9000),
    "x\n" + "~~~\n" * 5000,
]
"""Input that makes a slow parser hang or a deep one fail."""
