"""Every table the engine reads: characters, LaTeX spellings, words, units. Data only: a reviewer can read it whole."""

# ruff: noqa: SIM905
# fmt: off
from __future__ import annotations

# One character to the LaTeX (or ASCII) that means the same. Applied before NFKC, which would flatten the exponents.
CHARACTERS = {
    "−": "-", "–": "-", "﹣": "-", "‐": "-", "‑": "-",
    "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": r"\div ", "∗": "*", "⁄": "/", "∕": "/",
    "π": r"\pi ", "∞": r"\infty ", "√": " sqrt ", "∛": " cbrt ", "°": r"^\circ ", "′": "'",
    "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "∖": r"\setminus ", "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "…": r"\ldots ", "⋯": r"\ldots ", "→": r"\to ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}", "⅗": r"\frac{3}{5}", "⅘": r"\frac{4}{5}", "⅙": r"\frac{1}{6}",
    "⅚": r"\frac{5}{6}", "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}",
    "、": ",", "。": ".", "“": '"', "”": '"', "‘": "'", "’": "'", "「": '"', "」": '"', "％": "%",
    "ᵢ": "_{i}", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ", "ζ": r"\zeta ",
    "η": r"\eta ", "θ": r"\theta ", "κ": r"\kappa ", "λ": r"\lambda ", "μ": r"\mu ", "ν": r"\nu ", "ξ": r"\xi ",
    "ρ": r"\rho ", "σ": r"\sigma ", "τ": r"\tau ", "φ": r"\phi ", "χ": r"\chi ", "ψ": r"\psi ", "ω": r"\omega ",
    "Δ": r"\Delta ", "Σ": r"\Sigma ", "Ω": r"\Omega ", "Φ": r"\Phi ",
    "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u200b": "", "\ufeff": "", "\u2061": "", "\u2062": "",
}
SUPERSCRIPTS = {
    "⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7", "⁸": "8", "⁹": "9",
    "⁻": "-", "⁺": "+", "ⁿ": "n", "ˣ": "x",
}
SUBSCRIPTS = {"₀": "0", "₁": "1", "₂": "2", "₃": "3", "₄": "4", "₅": "5", "₆": "6", "₇": "7", "₈": "8", "₉": "9"}
CHINESE_DIGITS = {"一": "1", "二": "2", "三": "3", "四": "4", "五": "5",
    "六": "6", "七": "7", "八": "8", "九": "9", "十": "10"}

# Commands that only change the looks.
SILENT_COMMANDS = frozenset(
    r"left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle limits nolimits "
    r"quad qquad hspace thinspace medspace thickspace boxed fbox framebox rm it bf tiny small large Large "
    r"middle mathstrut centering".split()
)
# Commands whose braces hold text (or letters set in another face).
TEXT_COMMANDS = frozenset(
    "text textbf textit textrm textnormal textsf texttt mbox hbox emph mathrm operatorname".split()
)
FACE_COMMANDS = frozenset(
    "mathbf mathit mathsf mathcal mathfrak mathscr boldsymbol bm vec overrightarrow underline".split()
)
FRACTION_COMMANDS = frozenset("frac dfrac tfrac cfrac nicefrac sfrac".split())
BINOMIAL_COMMANDS = frozenset("binom dbinom tbinom".split())

GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar".split()
)
# Names that stand before an argument, in LaTeX (with a backslash) and in plain text.
FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc",
    "arcsin": "arcsin", "arccos": "arccos", "arctan": "arctan", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "tg": "tan", "ctg": "cot", "arctg": "arctan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "exp": "exp", "ln": "ln", "log": "log", "lg": "lg", "abs": "abs",
    "sqrt": "sqrt", "cbrt": "cbrt", "floor": "floor", "ceil": "ceil", "max": "max", "min": "min", "gcd": "gcd",
    "lcm": "lcm",
    "det": "det", "Re": "Re", "Im": "Im", "arg": "arg", "deg": "deg", "dim": "dim", "ker": "ker",
}
INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
CONSTANTS = {"pi": "pi", "infty": "inf", "infinity": "inf", "inf": "inf", "oo": "inf"}
FUNCTION_LETTERS = frozenset("fghFGHPQW")

RELATIONS = {
    "=": "=", "<": "<", ">": ">", "lt": "<", "gt": ">", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=",
    "geq": ">=",
    "geqslant": ">=", "<=": "<=", ">=": ">=", "ne": "!=", "neq": "!=", "!=": "!=", "approx": "~", "thickapprox": "~",
    "simeq": "~",
    "in": "in", "equiv": "=", "==": "=", "coloneqq": "=",
}
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "~": "~"}
PRODUCT_SIGNS = frozenset({"*", "times", "cdot", "ast", "bullet"})
QUOTIENT_SIGNS = frozenset({"/", "div"})
SET_SIGNS = {"cup": "union", "cap": "intersection", "setminus": "difference", "backslash": "difference"}
DOTS = frozenset({"ldots", "cdots", "dots", "dotsc", "dotsb", "vdots", "..."})
CONNECTORS = frozenset({"and", "or", "和", "或", "及", "与", "oder", "und", "ou"})
OR_WORDS = frozenset({"or", "或", "oder", "ou"})

MATRIX_ENVIRONMENTS = frozenset("matrix pmatrix bmatrix Bmatrix smallmatrix array vmatrix Vmatrix cases".split())

PERCENT_WORDS = frozenset({"percent", "percentage", "pct", "%"})
DEGREE_WORDS = frozenset({"degree", "degrees", "deg"})
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
CURRENCY_SIGNS = "$€£¥₹₽₩￥＄"

# Different spellings of one unit. A unit outside this table is compared as it is spelt, without a final s.
UNITS = {
    "m": "metre", "meter": "metre", "meters": "metre", "metres": "metre", "cm": "centimetre",
    "centimeter": "centimetre",
    "centimeters": "centimetre", "centimetres": "centimetre", "mm": "millimetre", "millimeters": "millimetre",
    "millimetres": "millimetre",
    "km": "kilometre", "kilometer": "kilometre", "kilometers": "kilometre", "kilometres": "kilometre",
    "ft": "foot", "feet": "foot", "in": "inch", "inches": "inch", "yd": "yard", "yards": "yard", "mi": "mile",
    "miles": "mile",
    "mph": "mile/hour", "kmh": "kilometre/hour", "kph": "kilometre/hour",
    "g": "gram", "grams": "gram", "kg": "kilogram", "kilograms": "kilogram", "mg": "milligram", "lb": "pound",
    "lbs": "pound",
    "pounds": "pound", "oz": "ounce", "ounces": "ounce", "ton": "ton", "tons": "ton", "tonnes": "tonne",
    "s": "second", "sec": "second", "secs": "second", "seconds": "second", "min": "minute", "mins": "minute",
    "minutes": "minute",
    "h": "hour", "hr": "hour", "hrs": "hour", "hours": "hour", "day": "day", "days": "day", "weeks": "week",
    "months": "month",
    "yr": "year", "yrs": "year", "years": "year", "l": "litre", "liter": "litre", "liters": "litre", "litres": "litre",
    "ml": "millilitre", "gal": "gallon", "gallons": "gallon", "dollar": "dollar", "dollars": "dollar",
    "usd": "dollar", "cents": "cent",
    "euro": "euro", "euros": "euro", "eur": "euro", "yuan": "yuan", "rmb": "yuan", "yen": "yen", "rupees": "rupee",
    "rs": "rupee",
    "units": "unit", "sq": "square", "squared": "square", "cu": "cubic", "radians": "radian", "rad": "radian",
    "hz": "hertz", "kw": "kilowatt", "kwh": "kilowatthour", "rpm": "rpm", "mol": "mole", "pa": "pascal",
    "mins.": "minute",
    "people": "person", "persons": "person", "men": "man", "women": "woman", "children": "child",
    "米": "metre", "厘米": "centimetre", "千米": "kilometre", "公里": "kilometre", "元": "yuan",
    "克": "gram", "千克": "kilogram",
    "小时": "hour", "分钟": "minute", "秒": "second", "天": "day", "年": "year",
    "个": "unit", "度": "degree", "人": "person",
}
# Single letters that are units behind a slash: km/h.
UNIT_LETTERS = frozenset("hsmlg")
# Two or more letters that, right behind a number, are read as a unit although they could be a product of variables.
UNIT_RUNS = frozenset(
    "cm mm km kg mg ml ft lb lbs oz in yd mi mph kph kmh hr hrs min mins sec secs yr yrs gal usd eur rmb hz kw kwh "
    "rpm mol sq".split()
)
# Words behind a number that change its value: such a text is not "a number and its unit".
NOT_UNITS = frozenset(
    "or and to not more less fewer than times squared cubed factorial half halves third thirds quarter quarters "
    "fifth fifths tenth "
    "tenths hundredth hundredths thousandth thousandths hundreds thousands millions billions dozens plus minus over "
    "by if when where "
    "for has have had a an the is are was were isn't wrong incorrect except without maybe perhaps possibly "
    "remainder mod modulo base choose divided "
    "multiplied power negative positive infinity inclusive exclusive through between per-cent either neither "
    "but".split()
)
# Short words of prose: other runs of two or three letters may be a product or a segment.
SHORT_WORDS = frozenset(
    "is it the an we he she so to of be if in as at by do for was are not but has had you can no yes my our its all "
    "any one two who let now see get how why use am go me us".split()
)
WORDS_BEFORE_VALUES = frozenset("approximately approx about roughly around exactly only just rs usd eur".split())
OPTION_LETTERS = frozenset("ABCDEFGHIJ")
DATE_WORDS = frozenset(
    "january february march april may june july august september october november december monday tuesday wednesday "
    "thursday "
    "friday saturday sunday".split()
)
EMPTY_SET_WORDS = frozenset(
    {"no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set"}
)
REAL_LINE_WORDS = frozenset({"all real numbers", "all reals", "any real number", "all real x"})
