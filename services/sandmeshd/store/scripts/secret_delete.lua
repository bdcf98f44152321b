-- Deletes a secret of an owner. Returns {1}, or {} where there is none.
local secrets = key('secrets', args.owner)
local deleted = redis.call('HDEL', secrets, args.name) == 1
if redis.call('EXISTS', secrets) == 0 then redis.call('SREM', key('secret_owners'), args.owner) end
return deleted and {1} or {}
