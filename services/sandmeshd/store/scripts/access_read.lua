-- Reads a token's record, and records its use by the minute on request. Returns {now_us, field, value, ...} or {}.
local token = key('access', args.id)
if redis.call('EXISTS', token) == 0 then return {} end
if args.note_use then redis.call('HSET', token, 'used_us', text(now - now % 60000000)) end
return {text(now), unpack(redis.call('HGETALL', token))}
