-- STOPPING -> GONE: ports, counts and indexes are given back, and a stone remembers the token for a while.
local found = redis.call('HMGET', record(args.id), 'state', 'token')
redis.call('ZREM', key('stopping'), args.id)
if found[1] ~= 'STOPPING' then return {0} end
unload(args.id)
redis.call('SET', key('tomb', args.id), found[2], 'EX', args.tomb_seconds)
redis.call('DEL', record(args.id))
redis.call('ZREM', key('ids'), args.id)
notify('pool')
wake_next()
return {1}
