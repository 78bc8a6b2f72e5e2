-- Who of those who may read a chat may take part in it, and so whose each run is. A run that there is already is its chat's
-- owner's: until now nobody else could ask.

ALTER TABLE chats ADD COLUMN participants text NOT NULL DEFAULT '';
UPDATE runs SET of_tenant = chats.tenant, of_user = chats.user_name FROM chats
    WHERE chats.id = runs.chat AND runs.of_user = '';
