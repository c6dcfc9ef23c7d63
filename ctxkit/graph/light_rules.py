"""The patterns of the light extractor.

One pattern finds the places: it begins with a single class of characters, which `re` scans at full speed, and its
branches look back at the character. Every run is taken possessively, and every quantifier that a failed match could
repeat at each place is bounded, so that the scan is linear in any text.
"""

from __future__ import annotations

import re

from ctxkit.stop_words import ENGLISH_STOP_WORDS

__all__ = [
    "DATE_WORDS",
    "DAY_FIRST",
    "FIRST_OF_NAMES",
    "GIVEN_NAMES",
    "LONGEST_ADDRESS",
    "LONGEST_NAME",
    "MASTER",
    "MONTH_FIRST",
    "NAMED_BY",
    "NUMBER",
    "NUMBER_LABELS",
    "OPENERS",
    "RULES",
    "TITLES",
    "TOKEN",
    "WORD_BACKWARDS",
    "WRITTEN_DATE",
]

RULES = 2
"""The version of the rules: raise it with any change of what they find."""

LONGEST_ADDRESS = 2_000
LONGEST_NAME = 80
"""Characters; what is longer is a blob or shouting."""


def _ranges(characters: list[int]) -> str:
    """A character class of code points in ascending order."""
    found: list[list[int]] = []
    for code in characters:
        if found and code == found[-1][1] + 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in found)


# Capitals of the scripts that have them: Latin, Greek, Cyrillic, Armenian, Georgian, full width.
_BLOCKS = (
    range(0x41, 0x590),
    range(0x10A0, 0x1100),
    range(0x1E00, 0x2000),
    range(0xA640, 0xA7FF),
    range(0xFF21, 0xFF3B),
)
# Scripts without spaces: a Latin word or a number may stand right beside them.
_W = "[^\\W\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]"
_U = _ranges([code for block in _BLOCKS for code in block if chr(code).isupper() or chr(code).istitle()])

TITLES = frozenset("Mr Mrs Ms Dr Prof Gen Col Maj Capt Lt Sgt Rev Hon Gov Sen Rep Messrs Mme Mlle Sir".split())  # noqa: SIM905
"""Forms of address: a capital follows them, and they are no part of the name."""

OPENERS = ENGLISH_STOP_WORDS | frozenset(
    """
    according actually additionally after again against ago ah all almost along already although always among another
    anyone anything anyway around away because besides beyond both come despite during either else enough even
    eventually ever every everyone everything everywhere fig figure finally first firstly following fortunately further
    furthermore generally get go good hello hence hi however indeed initially instead interestingly irrespective
    last lastly lately later least less let like likewise look many maybe meanwhile moreover mostly mr much namely near
    neither never nevertheless new next nobody none nonetheless nothing notably note now obviously of often oh ok okay
    once one originally otherwise our overall perhaps please possibly presently previously probably put quite rather
    really recently regarding say second secondly see seeing several should similarly since someone something sometimes
    soon specifically still subsequently suddenly sure surely take tell thank thanks therefore third though thus till
    today together tomorrow tonight toward towards two three four five six seven eight nine ten typically ultimately
    unfortunately unless unlike until upon use using usually well whatever whenever whereas wherever whether while whose
    within worse yeah yes yesterday yet don't i'm it's i've
    """.split()  # noqa: SIM905
)
"""Words that alone are no names, in lower case; sentences open with them."""

FIRST_OF_NAMES = frozenset("new first second third good next last".split())  # noqa: SIM905
"""Those of them that more capitals make part of a name: New York, First World War."""

GIVEN_NAMES = frozenset(("will", "may"))
"""Those that are people's names too: inside a sentence a capital tells them apart."""

NAMED_BY = re.compile(
    r"(?:['’]s| (?:is|was|has|had|said|says|did|does|also|became|began|died|joined|left|made|met|moved|played|plays"
    r"|served|took|went|won|wrote))\b"
)
"""What follows a word without an article at the beginning of a sentence shows that it names one thing."""

_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    "|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_MONTHS = "January February March April May June July August September October November December"
_SHORT = "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
DATE_WORDS = dict.fromkeys(f"{_MONTHS} {_DAYS}".split(), False) | dict.fromkeys(f"{_SHORT} May March".split(), True)
"""Words that begin a written date; True for those that alone are no date."""

_YEAR = r"(?:1\d|20)\d\d"
MONTH_FIRST = rf"{_MONTH}\.?(?: \d{{1,2}}(?:st|nd|rd|th)?\b(?![.,:]\d)(?:,? {_YEAR}\b)?|,? {_YEAR}\b)"
DAY_FIRST = rf"\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}\b\.?(?:,? {_YEAR}\b)?"
"""Dates that say more than the month, `May 3rd, 2021` and `3 May 2021`, as the inside of a regular expression."""
WRITTEN_DATE = re.compile(
    rf"(?:{_DAY},? )?{MONTH_FIRST}"
    rf"|{_DAY}|(?:January|February|April|June|July|August|September|October|November|December)\b"
)

_NUM = r"\d+(?:,\d{3})*+(?:\.\d+)?"
_SCALE = r"(?:[ -](?:hundred|thousand|million|billion|trillion)|(?:[KkMBb]n?(?!\w)|千|万|亿))"
_UNIT = (
    "(?:[kMGTP]i?[Bb](?:ytes?|its?|/s|ps)?|[kmcµn]?m[²³23]?|[kmµn]?g|[mc]?[lL]|[kMG]?Hz|[kMG]?Wh?|[kmM]?V|mA?h?|°[CF]?|px|em|pt|rpm|mph|km/h|dB"
    "|kilomet(?:er|re)s?|met(?:er|re)s?|centimet(?:er|re)s?|miles?|feet|foot|ft|inch(?:es)?|yards?|acres?|hectares?"
    "|kilograms?|kilos?|grams?|pounds?|lbs?|ounces?|oz|tons?|tonnes?|lit(?:er|re)s?|gallons?|barrels?|degrees?"
    "|bytes?|bits?|tokens?|words?|pages?|people|persons?|men|soldiers|times|points?|votes?|seats?|shares?|units?"
    "|公里|千米|米|公斤|千克|克|吨|人|个|元|倍|亩|岁)"
)
NUMBER = re.compile(
    rf"(?P<day>\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?!{_W})|\d{{1,2}}[/.]\d{{1,2}}[/.](?:\d{{4}}|\d\d)(?![\w.])"
    rf"|\d{{2,4}}年(?:\d{{1,2}}月(?:\d{{1,2}}[日号])?)?|\d{{1,2}}月\d{{1,2}}[日号]"
    rf"|{DAY_FIRST}"
    r"|(?:1\d|20)\d0s\b"
    rf"|{_YEAR}(?!{_W}|%|[,.:]\d|[ -](?:{_UNIT}|percent|dollars|euros|hundred|thousand|million|billion)\b)"
    rf"|\d+(?:[ -](?:days?|weeks?|months?|years?|decades?|centuries)\b))"
    r"|(?P<clock>\d{1,2}:\d\d(?::\d\d)?(?![\w:])(?: ?[ap]\.?m\b\.?)?|\d{1,2} ?[ap]\.?m\b\.?|\d{1,2}[点时]\d{0,2}分?"
    rf"|{_NUM}[ -](?:hours?|minutes?|seconds?|milliseconds?|ms)\b)"
    rf"|(?P<part>{_NUM} ?(?:%|％|percent\b|per cent\b))"
    rf"|(?P<money>{_NUM}{_SCALE}? ?(?:dollars?|euros?|cents|yuan|yen|rubles?|roubles?|rupees"
    "|USD|EUR|GBP|CNY|RMB|JPY|美元|欧元|人民币|元)(?![A-Za-z]))"
    rf"|(?P<quantity>{_NUM}{_SCALE}|{_NUM}{_SCALE}?[ -]?{_UNIT}(?![A-Za-z]))"
    r"|(?P<ordinal>\d+(?:st|nd|rd|th)\b)"
    rf"|(?P<cardinal>(?!0\d){_NUM}(?!{_W}))"
)
NUMBER_LABELS = {
    "day": "DATE",
    "clock": "TIME",
    "part": "PERCENT",
    "money": "MONEY",
    "quantity": "QUANTITY",
    "ordinal": "ORDINAL",
    "cardinal": "CARDINAL",
}

_URL_END = r"[^\s<>\"'`，。）》】」、；)\]},.;:!?]"
TOKEN = re.compile(
    rf"(?P<URL>(?:(?:https?|ftp)://|www\.)(?:[^\s<>\"'`，。）》】」、；]*{_URL_END})?)"
    r"|(?P<EMAIL>[\w.+-]{1,64}@[\w-]++(?:\.[\w-]++)++)"
    r"|(?P<CODE>[A-Za-z_][A-Za-z0-9_]*+(?:(?:\.|::)[A-Za-z_][A-Za-z0-9_]*+)*+(?:\(\))?)"
)
"""An address or an identifier, from its beginning."""

WORD_BACKWARDS = re.compile(r"[\w.+-]*+")

_WORD_REST = rf"{_W}*+(?:-{_W}++|['’](?=[{_U}]){_W}++)*+"
_JOIN = (
    r"(?: (?:(?:of the|of|de la|de|del|du|di|da|van der|van den|van|von der|von|bin|ibn|al|el|la|le|y|&) )?"
    r"|\.(?:(?<=\bMr\.)|(?<=\bDr\.)|(?<=\bMs\.)|(?<=\bSt\.)|(?<=\bLt\.)|(?<=\bMrs\.)|(?<=\bGen\.)|(?<=\bCol\.)|(?<=\bSen\.)"
    r"|(?<=\bRep\.)|(?<=\bGov\.)|(?<=\bRev\.)|(?<=\bSgt\.)|(?<=\bProf\.)|(?<=\bCapt\.)) )"
)
_INITIAL = rf"(?<![IVX])\.(?= [{_U}])"
_NEXT = rf"(?:(?:[{_U}]\.){{2,4}}|[{_U}](?:{_INITIAL}|{_WORD_REST}))"
_KANA = "\u30a1-\u30fa"
_AMOUNT = r" ?\d++(?:[,.]\d++)*+(?:[ -]?(?:hundred|thousand|million|billion|trillion|bn|mn|万|亿|[KkMB](?!\w)))?"
_PLAIN_QUOTE = r'[^“”"\n.,;:!?]'

MASTER = re.compile(
    rf"[{_U}\d_.:@$€£¥￥₹“\"`《「『{_KANA}](?:"
    # A capital: a phrase where a word begins, a hump inside a word, or the rest of something else.
    rf"(?<=[{_U}])(?:(?<!{_W}[{_U}])(?P<name>(?:\.(?:[{_U}]\.){{1,3}}|{_INITIAL}|{_WORD_REST})"
    rf"(?:{_JOIN}{_NEXT})*+(?: \d{{1,4}}(?!{_W}|%|[,.:/-]\d))?)"
    rf"|(?<=[a-zß-ÿ][{_U}])(?P<hump>{_W}*+)|{_W}*+)"
    rf"|(?<=\d)(?:(?<!{_W}\d)(?<![.,]\d)(?P<number>)\d*+|{_W}*+)"
    r"|(?<=[A-Za-z0-9]_)(?=_*+[A-Za-z0-9])(?P<underscore>\w++)|(?<=_)_*+"
    r"|(?<=[a-z0-9]\.)(?=[a-z])(?P<dot>)"
    r"|(?<=:)(?=//)(?P<scheme>)"
    r"|(?<=[\w.+-]@)(?=\w)(?P<at>)|(?<=@)(?P<handle>[A-Za-z]\w{1,29}+)(?!\w)"
    rf"|(?<=[$€£¥￥₹])(?P<money>{_AMOUNT})"
    rf"|(?<=“)(?=(?P<curly>\w{_PLAIN_QUOTE}{{1,60}})”)"
    rf'|(?<=")(?<![\w.,;!?]")(?=(?P<straight>\w{_PLAIN_QUOTE}{{1,60}})")'
    r"|(?<=`)(?<!``)(?=(?P<code>[^`\s](?:[^`\n]{0,58}[^`\s])?)`(?!`))"
    r"|(?<=《)(?P<title>[^《》\n]{1,50})(?=》)|(?<=[「『])(?P<term>[^「」『』\n]{1,30})(?=[」』])"
    rf"|(?<=[{_KANA}])(?:(?<![{_KANA}ー・].)(?P<kana>[{_KANA}ー・]{{2,30}}+)(?![{_KANA}ー・])|[{_KANA}ー・]*+)"
    r")"
)
"""Where an entity may begin, or where something inside one gives it away."""
