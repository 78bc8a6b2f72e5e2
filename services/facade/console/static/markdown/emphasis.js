// Finds the ends of emphasis as CommonMark does, and also in scripts that write no spaces: there `**中文。**后` and
// `**"a"**中` would open or close nothing (https://github.com/commonmark/commonmark-spec/issues/650). A letter or mark of
// such a script separates like punctuation from outside, and is no punctuation inside; the rest is as specified.

const CJK = "[\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}\\p{scx=Bopo}\\p{scx=Hang}\\uff00-\\uffef]";
const PUNCTUATION = `(?!~|${CJK})[\\p{P}\\p{S}]`;
const TEXT = `(?:[^\\s\\p{P}\\p{S}]|~|${CJK})`;

/** Return the rules of marked's inline lexer, with those of emphasis and of what is struck out replaced. */
export function adaptRules(rules) {
  const { emStrongLDelim, emStrongRDelimAst, delLDelim, delRDelim, punctuation } = rules;
  return {
    ...rules,
    emStrongLDelim: adaptBegin(emStrongLDelim),
    emStrongRDelimAst: createEnd("\\*", "\\*+", emStrongRDelimAst, 2),
    delLDelim: adaptBegin(delLDelim),
    delRDelim: createEnd("~", "~~?", delRDelim, 1),
    punctuation: new RegExp(`${punctuation.source}|^${CJK}`, "u"),
  };
}

const adaptBegin = ({ source }) => new RegExp(source.replaceAll(/(?:\(\?!~\))?\[\\p\{P\}\\p\{S\}\]/g, PUNCTUATION), "u");

/** Marked reads from a match's groups that a run only closes (1, 2), only opens (3, 4) or may do either (5, 6). */
function createEnd(mark, run, { source }, skips) {
  const isOver = `(?!${mark})`;
  return new RegExp(
    [
      ...source.split("|").slice(0, skips), // what leads to the next run
      `${isOver}${PUNCTUATION}(${run})(?=\\s|$)`,
      `(?=${TEXT}${run}(?:\\s|$)|(?!${CJK})${TEXT}${run}${isOver}${PUNCTUATION})${TEXT}(${run})${isOver}`,
      `\\s(${run})${isOver}(?=\\S)`,
      `${isOver}${PUNCTUATION}(${run})${isOver}(?!${CJK})(?=${TEXT})`,
      `${isOver}${PUNCTUATION}(${run})${isOver}(?=${PUNCTUATION}|${CJK})`,
      `${TEXT}(${run})${isOver}(?=\\S)`,
    ].join("|"),
    "gu",
  );
}
