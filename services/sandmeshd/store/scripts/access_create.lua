-- Creates a token's record; with `within` only for a user or a sandbox of that project. Returns {now_us, field, value, ...}, {}
-- where a valid token has the name, or what keeps it from being made: {'no sandbox'}, {'no project'} or {'outside'}.
if args.sandbox ~= '' and redis.call('EXISTS', record(args.sandbox)) == 0 then return {'no sandbox'} end
if args.project ~= '' and not project_exists(args.project) then return {'no project'} end
if not token_within(args.within, args.user, args.sandbox) then return {args.sandbox ~= '' and 'no sandbox' or 'outside'} end
local names, id = key('access_names'), args.id
local holder = redis.call('HGET', names, args.name)
if holder and holder ~= id then
  local found = redis.call('HMGET', key('access', holder), 'id', 'expires_us', 'revoked_us')
  local expires = tonumber(found[2] or '0')
  if found[1] and not found[3] and (expires == 0 or expires > now) then return {} end
end
local token = key('access', id)
redis.call('HSET', token, 'id', id, 'name', args.name, 'scope', args.scope, 'user', args.user, 'digest', args.digest,
  'created_us', text(now))
if args.sandbox ~= '' then redis.call('HSET', token, 'sandbox', args.sandbox) end
if args.project ~= '' then redis.call('HSET', token, 'project', args.project) end
if args.private then redis.call('HSET', token, 'private', '1') end
if args.ttl_us > 0 then
  redis.call('HSET', token, 'expires_us', text(now + args.ttl_us))
  redis.call('PEXPIREAT', token, text(math.floor((now + args.ttl_us + args.kept_us) / 1000)))
end
redis.call('HSET', names, args.name, id)
redis.call('SADD', key('access_ids'), id)
return {text(now), unpack(redis.call('HGETALL', token))}
