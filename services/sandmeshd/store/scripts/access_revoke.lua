-- Revokes a token, once; with `within` one for a user or a sandbox of that project. Returns {now_us, field, value, ...}, or {} where it does not exist.
local token, id = key('access', args.id), args.id
if redis.call('EXISTS', token) == 0 then return {} end
local of = redis.call('HMGET', token, 'user', 'sandbox')
if not token_within(args.within, of[1], of[2]) then return {} end
if redis.call('HSETNX', token, 'revoked_us', text(now)) == 1 then
  local name = redis.call('HGET', token, 'name')
  if redis.call('HGET', key('access_names'), name) == id then redis.call('HDEL', key('access_names'), name) end
  local revision = redis.call('INCR', key('access_revision'))
  redis.call('ZADD', key('access_revoked'), revision, id)
  redis.call('HSET', token, 'revision', revision)
  redis.call('PEXPIRE', token, text(math.floor(args.kept_us / 1000)))
  -- What is forgotten is older than any gateway remembers a token.
  for _, old in ipairs(redis.call('ZRANGE', key('access_revoked'), 0, 9)) do
    if redis.call('EXISTS', key('access', old)) == 0 then redis.call('ZREM', key('access_revoked'), old) end
  end
  notify('access-revoked')
end
return {text(now), unpack(redis.call('HGETALL', token))}
