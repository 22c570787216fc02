"""Which language a text is in, by script and by common small words. Enough for "answer in Swahili", not for dialects.

guess("El gato no está en la casa")    # "es"
guess("Він не знає, що це")            # "uk"
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_SCRIPTS = {
    "BENGALI": ("bn",), "THAI": ("th",), "TAMIL": ("ta",), "TELUGU": ("te",), "KANNADA": ("kn",),
    "GUJARATI": ("gu",), "GURMUKHI": ("pa",), "MALAYALAM": ("ml",), "HANGUL": ("ko",), "HEBREW": ("he",),
    "GREEK": ("el",), "HIRAGANA": ("ja",), "KATAKANA": ("ja",), "CJK": ("zh", "ja"), "ARABIC": ("ar", "fa", "ur"),
    "CYRILLIC": ("ru", "uk", "bg"), "DEVANAGARI": ("hi", "mr", "ne"),
    "LATIN": ("en", "es", "pt", "fr", "de", "it", "pl", "vi", "sw", "fi", "nl", "sv", "tr", "id"),
}  # fmt: skip
_SMALL_WORDS = {
    "en": "the of and to in is that it was for on are with as be at this have from or by not but you we an",
    "es": "el la de que y en los se del las por un una con no es para al lo como más pero sus este está",
    "pt": "o a de que e do da em um para com não uma os no se na por mais as dos como mas ao é são você",
    "fr": "le la les de des et en un une du est que dans qui pour pas sur ce il au plus par avec ne se sont",
    "de": "der die das und in den von zu mit sich des auf für ist im dem nicht ein eine als auch es an werden",
    "it": "il di che è la e un a per in una sono con non del si le dei da i gli della nel alla anche come più",
    "pl": "i w na z do się nie że to jest o jak po co ale od za przez są dla tym czy być oraz",
    "vi": "của và là có không một được trong cho người các với những này để đã khi đến về ra như",
    "sw": "ya na wa kwa ni katika la za kuwa hii cha hiyo kama yake lakini kila sana ili au pia",
    "fi": "ja on ei se että oli hän ovat mutta kuin niin myös joka tai ole sen olla minä tämä kun",
    "nl": "de het een en van in is dat op te zijn met voor niet aan er om ook als dan maar bij wordt",
    "sv": "och i att det som en på är av för med den till inte om ett han men var jag sig från vi så kan",
    "tr": "bir ve bu da de için ile çok olarak daha ne gibi ama var kadar olan en sonra değil her",
    "id": "yang dan di untuk dengan ini dari pada tidak dalam adalah itu akan ke juga atau oleh saya karena",
    "ru": "и в не на что он с как это по но они из у за так же от вы для мы её было бы ты",
    "uk": "і в не на що він з як це та до за від але її його вони ми ви для є був чи який",
    "bg": "и в не на че той с като това по но те от за така да се са ли ще е във съм който",
    "hi": "है के में की को और का से हैं कि यह पर ने एक नहीं था भी",
    "mr": "आहे आणि या हे च्या ते मध्ये आहेत तो ती नाही एक व होते",
    "ne": "छ र को मा लाई हो का यो छन् पनि गर्न भएको एक थियो",
    "ar": "في من على إلى أن هذا التي الذي عن مع هو هي ما كان لا قد أو",
    "fa": "در به از که این را با است برای آن یک خود تا بر می های شود",
    "ur": "کے کی میں ہے اور سے کا کو یہ نے ہیں پر کہ نہیں ایک بھی",
}  # fmt: skip
LANGUAGES = frozenset(language for languages in _SCRIPTS.values() for language in languages)
"""ISO 639-1 codes that `guess` can tell apart."""


def guess(text: str) -> str | None:
    """The ISO code of the likeliest language, None for a text without letters. Ties go to the more common one."""
    scripts = Counter(unicodedata.name(character, "?").split()[0] for character in text if character.isalpha())
    if scripts["HIRAGANA"] + scripts["KATAKANA"]:
        return "ja"
    known = [(count, script) for script, count in scripts.items() if script in _SCRIPTS]
    if not known:
        return None
    candidates = _SCRIPTS[max(known)[1]]
    if len(candidates) == 1 or candidates[0] == "zh":
        return candidates[0]
    words = Counter(re.findall(r"[\w\u0900-\u097f]+", text.lower()))
    hits = {language: sum(words[word] for word in _SMALL_WORDS[language].split()) for language in candidates}
    return max(candidates, key=lambda language: hits[language])
