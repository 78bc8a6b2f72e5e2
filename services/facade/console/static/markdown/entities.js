// Character references: numbers, and the names that people write. The others stay as they are.

const NAMES = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", ensp: "\u2002", emsp: "\u2003", thinsp: "\u2009",
  copy: "©", reg: "®", trade: "™", deg: "°", plusmn: "±", times: "×", divide: "÷", middot: "·", bull: "•", hellip: "…",
  ndash: "–", mdash: "—", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", laquo: "«", raquo: "»", sect: "§", para: "¶",
  euro: "€", pound: "£", cent: "¢", yen: "¥", frac12: "½", frac14: "¼", frac34: "¾", sup2: "²", sup3: "³", micro: "µ",
  larr: "←", uarr: "↑", rarr: "→", darr: "↓", harr: "↔", rArr: "⇒", lArr: "⇐", hArr: "⇔", le: "≤", ge: "≥", ne: "≠",
  asymp: "≈", infin: "∞", sum: "∑", prod: "∏", radic: "√", part: "∂", nabla: "∇", int: "∫", isin: "∈", forall: "∀",
  exist: "∃", empty: "∅", and: "∧", or: "∨", cap: "∩", cup: "∪", sub: "⊂", sup: "⊃", minus: "−", check: "✓",
  alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", theta: "θ", lambda: "λ", mu: "μ", pi: "π", rho: "ρ",
  sigma: "σ", tau: "τ", phi: "φ", omega: "ω", Delta: "Δ", Gamma: "Γ", Lambda: "Λ", Pi: "Π", Sigma: "Σ", Omega: "Ω",
  auml: "ä", ouml: "ö", uuml: "ü", Auml: "Ä", Ouml: "Ö", Uuml: "Ü", szlig: "ß", eacute: "é", egrave: "è", agrave: "à",
  ccedil: "ç", ntilde: "ñ", aring: "å", oslash: "ø", aelig: "æ", AElig: "Æ",
}; // prettier-ignore

const REFERENCE = /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z][A-Za-z0-9]{1,30}));/g;

/** Return `text` with its character references as characters. */
export function decodeEntities(text) {
  return text.replace(REFERENCE, (whole, decimal, hex, name) => {
    if (name) return NAMES[name] ?? whole;
    const code = decimal ? Number(decimal) : Number.parseInt(hex, 16);
    const isCharacter = code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return isCharacter ? String.fromCodePoint(code) : "\ufffd";
  });
}
