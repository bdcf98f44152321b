-- Reads a token's record, and notes its use by the minute where asked to. Answers {now_us, field, value, ...} or {}.
local token = key('access', args.id)
if redis.call('EXISTS', token) == 0 then return {} end
if args.note_use then redis.call('HSET', token, 'used_us', text(now - now % 60000000)) end
return {text(now), unpack(redis.call('HGETALL', token))}
