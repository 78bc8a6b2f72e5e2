-- Who else may read a chat.

ALTER TABLE chats ADD COLUMN shared_with text NOT NULL DEFAULT '';
CREATE INDEX chats_shared ON chats (tenant, (-updated_at), chat_id) WHERE shared_with <> '';
