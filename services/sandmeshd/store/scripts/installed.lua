-- The agent of a pooled sandbox has the token in force. Returns {1, record}, or {0, record} where the lease has ended.
local found = redis.call('HMGET', record(args.id), 'state', 'token')
if found[1] ~= 'READY' or found[2] ~= args.token then return {0, whole(args.id)} end
redis.call('HSET', record(args.id), 'installed', '1')
return {1, whole(args.id)}
