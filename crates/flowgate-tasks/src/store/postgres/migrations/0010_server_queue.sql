-- The server's queue has a name that nobody else would give one. Where no server has been, `messages` is somebody's own, and stays.
UPDATE queues SET name = 'flowgate:messages' WHERE name = 'messages'
    AND EXISTS (SELECT FROM documents WHERE kind = 'server' AND starts_with(documents.name, 'signing-keys'));
UPDATE dead SET queue = 'flowgate:messages' WHERE queue = 'messages'
    AND EXISTS (SELECT FROM documents WHERE kind = 'server' AND starts_with(documents.name, 'signing-keys'));
