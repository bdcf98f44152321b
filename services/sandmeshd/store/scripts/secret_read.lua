-- Reads a secret of an owner. Returns {record}, or {} where there is none.
local found = redis.call('HGET', key('secrets', args.owner), args.name)
return found and {found} or {}
