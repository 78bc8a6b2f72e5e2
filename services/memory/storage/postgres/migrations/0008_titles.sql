-- Titles of chats. Those of before begin with their first words, as far as those are searched; the next line of each
-- chat writes them anew, from the log.

ALTER TABLE chats ADD COLUMN title text NOT NULL DEFAULT '';  -- empty: of a service of an earlier version; its name

UPDATE chats SET title = CASE
    WHEN length(words) <= 60 THEN words
    ELSE coalesce(substring(words FROM '^(.{30,60}) '), left(words, 60)) END
FROM (
    SELECT DISTINCT ON (chat) chat, btrim(regexp_replace(left(ltrim(text), 1000), '\s+', ' ', 'g')) AS words
    FROM texts WHERE kind = 'chat' ORDER BY chat, id
) AS first
WHERE first.chat = chats.id;
